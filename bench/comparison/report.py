# SPDX-License-Identifier: Apache-2.0
"""Tables and JSON of the times that turns.collect() returns."""

import os
import statistics


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return "unknown processor"


def ratio(cell, name):
    """xylem's time divided by the peer's, as the median over the repetitions; None if one lacks."""
    if "xylem" not in cell or name not in cell:
        return None
    return statistics.median(ours / theirs for ours, theirs in zip(cell["xylem"], cell[name]))


def of_limit(cell):
    """The least possible time divided by xylem's; 100 % is the full bandwidth of the memory."""
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
              + f" {'best':>6} {'of limit':>9}")
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
            print(line + (f" {share:>8.0%}" if share else f" {'-':>8}"))


def to_json(times, descriptions, skipped, options):
    results = [{"op": operation, "ranks": options.ranks, "bytes": size, "type": "float32",
                "best_peer": best_peer(cell), "ratio_to_best": ratio(cell, best_peer(cell)),
                "share_of_limit": of_limit(cell),
                "time_us": {name: {"median": statistics.median(runs), "runs": runs}
                            for name, runs in cell.items()}}
               for operation, by_size in times.items() for size, cell in by_size.items()]
    return {"schema": 2,
            "environment": {"cpu": cpu_model(), "cores": len(os.sched_getaffinity(0)),
                            "bind": options.bind, "in_place": options.in_place,
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
