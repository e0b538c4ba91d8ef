# SPDX-License-Identifier: Apache-2.0
from datetime import timedelta
from enum import Enum

from torch.distributed import Backend, Store

__version__: str
torch_version: str

class BlockingWait(Enum):
    by_need = 0
    never = 1
    always = 2

def create(
    store: Store,
    rank: int,
    size: int,
    timeout: timedelta,
    name: str,
    global_ranks: list[int],
    blocking_wait: BlockingWait = BlockingWait.by_need,
) -> Backend: ...
def leave_jobs() -> None: ...
def serve_private_device() -> None: ...
def configure_record(entries: int, prefix: str) -> None: ...
def record_stacks(are_recorded: bool) -> None: ...
def record() -> bytes: ...
def dump() -> str: ...
def dump_on_signal(number: int) -> None: ...
