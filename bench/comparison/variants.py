# SPDX-License-Identifier: Apache-2.0
"""Compares unusual calls of xylem with plain ones, in turns."""

import copy
import statistics
from typing import NamedTuple, Optional

from .peers import Xylem, environment_of_launchers


class Variant(NamedTuple):
    """An unusual call, the plain call for comparison, and how many times as long it may take.

    Both sides are flags of xylem bench, with a number of ranks and, for the unusual call, a number
    of extra elements. The ratio is that of the times per byte that one rank transfers, as busbw
    counts bytes. For the same operation and number of ranks it is the ratio of the times.
    """

    name: str
    operation: str
    most: Optional[float]  # None: no limit.
    flags: tuple = ()
    ranks: int = 2
    extra: int = 0
    plain_flags: tuple = ()
    plain_ranks: int = 0  # 0: `ranks`.


def odd_ranks(operation):
    """Odd numbers of ranks compared with the next even number, which puts as many ranks on the
    busier of two cores; and, without a limit, with the previous even number, which may put fewer.
    """
    for ranks in (3, 5, 7):
        yield Variant(f"{ranks} ranks, {ranks + 1}", operation, 1.3, ranks=ranks,
                      plain_ranks=ranks + 1)
        yield Variant(f"{ranks} ranks, {ranks - 1}", operation, None, ranks=ranks,
                      plain_ranks=ranks - 1)


VARIANTS = [
    Variant("bfloat16, float32", "all_reduce", 1.25, ("--type", "bfloat16")),
    Variant("float16, float32", "all_reduce", 1.25, ("--type", "float16")),
    Variant("avg, sum", "all_reduce", 1.02, ("--redop", "avg")),
    *odd_ranks("all_reduce"),
    *odd_ranks("all_gather"),
    *odd_ranks("reduce_scatter"),
    Variant("1 element more", "all_reduce", 1.3, extra=1),
    Variant("1 element less", "all_reduce", 1.3, extra=-1),
    Variant("1 element more", "broadcast", 1.3, extra=1),
    Variant("unaligned by 4 B", "all_reduce", 1.1, ("--offset", "4")),
    Variant("unaligned by 4 B", "all_gather", 1.1, ("--offset", "4")),
    Variant("unaligned by 4 B", "reduce_scatter", 1.1, ("--offset", "4")),
    Variant("unaligned by 4 B", "broadcast", 1.1, ("--offset", "4")),
    *(Variant(f"_v, 90 % at one, {ranks} ranks", f"{operation}_v", 1.1, ("--parts", "one"), ranks,
              plain_flags=("--parts", "even"))
      for operation in ("all_gather", "reduce_scatter") for ranks in (2, 4)),
]


def with_ranks(options, ranks):
    changed = copy.copy(options)
    changed.ranks = ranks
    return Xylem(changed)


def compare_variants(options):
    """Prints the ratio of times for each variant and size. Returns the rows above their limit."""
    environment = environment_of_launchers()
    element = 4
    complaints = []
    print("microseconds of the variant and of the plain call, and time over time for equal bytes "
          "moved by a rank")
    print(f"{'operation':<18} {'variant':<26} {'size (B)':>9} {'variant':>10} {'plain':>10} "
          f"{'ratio':>6} {'at most':>8}")
    for variant in VARIANTS:
        operation = variant.operation.removesuffix("_v")
        if operation not in options.ops:
            continue
        ours = with_ranks(options, variant.ranks)
        plain = with_ranks(options, variant.plain_ranks or variant.ranks)
        for size in options.sizes[operation]:
            pairs = []
            for _ in range(options.reps):
                one = ours.bench(variant.operation, size + element * variant.extra, environment,
                                 options.timeout, *variant.flags)
                other = plain.bench(variant.operation, size, environment,
                                    options.timeout, *variant.plain_flags)
                pairs.append((one, other))
            over = statistics.median(other["busbw_GBps"] / one["busbw_GBps"]
                                     for one, other in pairs)
            times = [statistics.median(row["time_us"]["p50"] for row in side)
                     for side in zip(*pairs)]
            is_over = variant.most is not None and over > variant.most
            most = "-" if variant.most is None else f"{variant.most:.2f}"
            print(f"{variant.operation:<18} {variant.name:<26} {size:>9} {times[0]:>10.2f} "
                  f"{times[1]:>10.2f} {over:>6.2f} {most:>8}" + ("  <" if is_over else ""),
                  flush=True)
            wrong = sum(row["wrong"] for pair in pairs for row in pair)
            where = f"{variant.operation} {size} B, {variant.name}"
            if wrong:
                complaints.append(f"{where}: {wrong} wrong elements")
            if is_over:
                complaints.append(f"{where}: {over:.2f}, at most {variant.most}")
    return complaints
