# SPDX-License-Identifier: Apache-2.0
"""Tables and JSON of the times that turns.collect() returns."""

import math
import os
import statistics


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return "unknown processor"


def load():
    """The load averages of 1, 5 and 15 minutes. They show whether other programs used the machine."""
    return " ".join(f"{average:.2f}" for average in os.getloadavg())


def ratios(cell, name):
    """xylem's time divided by the peer's, for each repetition; empty if a time is missing."""
    return [ours / theirs for ours, theirs in zip(cell.get("xylem", []), cell.get(name, []))]


def ratio(cell, name):
    """The median of ratios() over the repetitions; None if there are none."""
    found = ratios(cell, name)
    return statistics.median(found) if found else None


def interval(values):
    """A 95 % confidence interval of the median of the distribution that the values come from; None
    if there are too few values.

    It extends from the k-th smallest value to the k-th largest, with the largest k that has at
    least 95 % confidence. The k-th smallest value is above the median if fewer than k values are
    below the median. Each value is below it with probability 1/2, whatever the distribution.
    """
    count = len(values)
    k, cases = 0, 1  # `cases` of 2 ** count have at most k values below the median.
    while 2 * cases <= 0.05 * 2 ** count:
        k += 1
        cases += math.comb(count, k)
    ordered = sorted(values)
    return (ordered[k - 1], ordered[count - k]) if k > 0 else None


def of_limit(cell):
    """The least time that the memory's bandwidth allows, divided by xylem's time."""
    against = ratio(cell, "limit")
    return 1 / against if against else None


def best_peer(cell):
    """The fastest peer; None if there is none."""
    others = [name for name in cell if name not in ("xylem", "limit")]
    return min(others, key=lambda name: statistics.median(cell[name]), default=None)


def print_tables(times, names, ranks):
    others = [name for name in names if name != "xylem"]
    for operation, by_size in times.items():
        print(f"\n{operation}, {ranks} ranks: microseconds, and xylem's time over the peer's")
        print(f"{'size (B)':>12} {'xylem':>11}" + "".join(f" {n:>14} {'ratio':>6}" for n in others)
              + f" {'best':>6} {'95 %':>13} {'of limit':>9}")
        for size, cell in by_size.items():
            ours = statistics.median(cell["xylem"]) if "xylem" in cell else None
            line = f"{size:>12} " + (f"{ours:>11.2f}" if ours is not None else f"{'-':>11}")
            for name in others:
                theirs = statistics.median(cell[name]) if name in cell else None
                line += f" {theirs:>14.2f}" if theirs is not None else f" {'-':>14}"
                against = ratio(cell, name)
                line += f" {against:>6.2f}" if against else f" {'-':>6}"
            against, share = ratio(cell, best_peer(cell)), of_limit(cell)
            line += f" {against:>6.2f}" if against else f" {'-':>6}"
            between = interval(ratios(cell, best_peer(cell)))
            text = f"{between[0]:.2f} to {between[1]:.2f}" if between else "-"
            line += f" {text:>13}"
            print(line + (f" {share:>8.0%}" if share else f" {'-':>8}"))


def to_json(times, descriptions, skipped, loads, options):
    results = [{"op": operation, "ranks": options.ranks, "bytes": size, "type": "float32",
                "best_peer": best_peer(cell), "ratio_to_best": ratio(cell, best_peer(cell)),
                "ratio_95": interval(ratios(cell, best_peer(cell))),
                "share_of_limit": of_limit(cell),
                "time_us": {name: {"median": statistics.median(runs), "runs": runs}
                            for name, runs in cell.items()}}
               for operation, by_size in times.items() for size, cell in by_size.items()]
    return {"schema": 2,
            "environment": {"cpu": cpu_model(), "cores": len(os.sched_getaffinity(0)),
                            "bind": options.bind, "in_place": options.in_place,
                            "load_averages": loads,
                            "versions": descriptions, "skipped": skipped},
            "results": results}


def over_limit(times, limit):
    """The rows in which xylem takes more than `limit` times as long as a peer."""
    found = []
    for operation, by_size in times.items():
        for size, cell in by_size.items():
            for name in cell:
                against = ratio(cell, name) if name not in ("xylem", "limit") else None
                if against and against > limit:
                    found.append(f"{operation} {size} B: {against:.2f} x {name}")
    return found
