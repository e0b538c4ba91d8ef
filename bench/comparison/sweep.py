# SPDX-License-Identifier: Apache-2.0
"""Compares xylem's algorithms with each other, to check its choice."""

import statistics

from .peers import Skipped, environment_of_launchers


def sweep(xylem, options):
    """Times each algorithm by forcing it. The algorithm that xylem chooses by itself may take a
    tenth longer than the fastest, as the median over the turns. Returns the rows in which it takes
    longer than that.
    """
    environment = environment_of_launchers()
    complaints = []
    for operation in options.ops:
        print(f"\n{operation}, {options.ranks} ranks: microseconds of the algorithms, and the "
              "chosen one's time over the quickest's")
        names = xylem.algorithms(operation)
        for size in options.sizes[operation]:
            times, chosen = {name: [] for name in names}, []
            for _ in range(options.reps):
                row = xylem.bench(operation, size, environment, options.timeout)
                chosen.append(row["algorithm"])
                for name in list(times):
                    try:
                        row = xylem.bench(operation, size, environment, options.timeout,
                                          "--algorithm", name)
                        times[name].append(row["time_us"]["p50"])
                    except Skipped:
                        del times[name]  # The algorithm does not support this job.
            medians = {name: statistics.median(runs) for name, runs in times.items()}
            quickest = min(medians, key=medians.get)
            over = statistics.median(times[name][turn] / times[quickest][turn]
                                     for turn, name in enumerate(chosen))
            # The choice may differ between starts, since its constants are measured at each start.
            usual = " or ".join(sorted(set(chosen)))
            others = ", ".join(f"{name} {medians[name]:.2f}"
                               for name in sorted(medians, key=medians.get))
            print(f"{size:>12}  {usual:<20} {over:>5.2f}   {others}", flush=True)
            if over > 1.1:
                complaints.append(f"{operation} {size} B: {usual} is chosen, which takes "
                                  f"{over:.2f} times as long as {quickest}")
    return complaints
