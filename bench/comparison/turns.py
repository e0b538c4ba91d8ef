# SPDX-License-Identifier: Apache-2.0
"""Measures the peers in turns."""

import sys

from .peers import Skipped, environment_of_launchers


def collect(peers, options):
    """Returns times[operation][bytes][peer] (a list of medians, one for each repetition), the
    errors, and the peers that were dropped. The key "limit", in place of a peer, has the least
    times in which the memory can carry the traffic of the operation.

    The peers take turns at each size. A turn is short, so that changes in the machine's state
    affect all turns of a repetition equally, and ratios are computed within a repetition.
    """
    times, wrong, dropped = {}, [], {}
    environment = environment_of_launchers()
    for operation in options.ops:
        for size in options.sizes[operation]:
            print(f"{operation}, {size} B", file=sys.stderr)
            cell = times.setdefault(operation, {}).setdefault(size, {})
            for _ in range(options.reps):
                for peer in peers:
                    if peer.name in dropped:
                        continue
                    try:
                        turn = peer.measure(operation, size, environment, options.timeout)
                    except Skipped as reason:
                        dropped[peer.name] = f"{operation}, {size} B: {reason}"
                        cell.pop(peer.name, None)
                        continue
                    if turn is None:
                        continue  # The peer has no such operation.
                    cell.setdefault(peer.name, []).append(turn.time)
                    if turn.limit:
                        cell.setdefault("limit", []).append(turn.limit)
                    if turn.wrong:
                        wrong.append(f"{peer.name} {operation} {size} B: {turn.wrong} wrong "
                                     "elements")
    return times, wrong, dropped
