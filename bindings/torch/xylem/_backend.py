# SPDX-License-Identifier: Apache-2.0
"""Registration with torch.distributed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from ._record import configure
from ._version import native

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Backend as C10dBackend

NAME = "xylem"


def _create(options: Any, backend_options: Any) -> C10dBackend:
    """Called by torch for each group that this process is a member of."""
    configure()
    return native.create(
        store=options.store,
        rank=options.group_rank,
        size=options.group_size,
        timeout=options.timeout,
        name=options.group_id,
        global_ranks=list(options.global_ranks_in_group),
    )


def register() -> None:
    """Registers the backend "xylem" for tensors in CPU memory. Further calls have no effect.

    Raises:
        RuntimeError: another package has registered a backend with that name.
    """
    known = dist.Backend._plugins.get(NAME.upper())
    if known is not None:
        if known.creator_fn is _create:
            return
        raise RuntimeError(
            f"xylem: a backend named '{NAME}' is registered already, by "
            f"{known.creator_fn.__module__}: uninstall one of the two packages"
        )
    # This backend records its calls itself (xylem.record()). Without this line torch would record
    # them, too, which takes as long as a small call.
    getattr(dist.distributed_c10d, "_FR_SELF_RECORDING_BACKENDS", set()).add(NAME)
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
