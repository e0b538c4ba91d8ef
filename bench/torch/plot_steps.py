# SPDX-License-Identifier: Apache-2.0
"""Draws the costs of training steps beyond their reference, from files that steps.py has written.

    torchrun --nproc-per-node 2 bench/torch/steps.py --json 2.json
    torchrun --nproc-per-node 4 bench/torch/steps.py --json 4.json
    python bench/torch/plot_steps.py 2.json 4.json --output steps.svg       # needs matplotlib

A bar is the median of the costs of all rounds, and a line its interval of 95 % (2000 bootstrap samples).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics

WAYS = {
    "ddp": "DDP",
    "ddp_view": "DDP, views",
    "ddp_static": "DDP, static graph",
    "ddp_bf16": "DDP, bf16 hook",
    "ddp_powersgd": "DDP, PowerSGD",
    "fsdp2": "FSDP2",
    "fsdp2_bf16": "FSDP2, bf16",
}


def costs(report: dict, way: str, name: str) -> list[float]:
    """The time of each step less that of its reference, in milliseconds."""
    times = report["times"]
    reference = times["alone" if way.startswith("fsdp2") else "hook"]
    return [taken - other for taken, other in zip(times[f"{way} {name}"], reference)]


def interval(values: list[float]) -> tuple[float, float]:
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(2000))
    return medians[50], medians[1949]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reports", nargs="+", help="files of steps.py --json")
    parser.add_argument("--output", required=True, help="the SVG file")
    arguments = parser.parse_args()
    try:
        import matplotlib
    except ImportError:
        parser.error("this draws with matplotlib: pip install matplotlib")
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "steps"  # The same file for the same figures.
    import matplotlib.pyplot as pyplot

    reports = []
    for path in arguments.reports:
        with open(path) as file:
            reports.append(json.load(file))
    ways = [report["arguments"]["ways"].split(",") for report in reports]
    figure, axes = pyplot.subplots(
        1, len(reports), squeeze=False, layout="constrained",
        figsize=(2 + 1.5 * sum(map(len, ways)), 4), width_ratios=[len(some) for some in ways],
    )
    for axis, report, some in zip(axes[0], reports, ways):
        names = report["arguments"]["backends"].split(",")
        for number, name in enumerate(names):
            width = 0.8 / len(names)
            places = [index + (number - (len(names) - 1) / 2) * width for index in range(len(some))]
            values = [costs(report, way, name) for way in some]
            medians = [statistics.median(value) for value in values]
            ends = [interval(value) for value in values]
            errors = [
                [median - low for median, (low, _) in zip(medians, ends)],
                [high - median for median, (_, high) in zip(medians, ends)],
            ]
            axis.bar(places, medians, width, yerr=errors, capsize=3, label=name)
        axis.set_xticks(range(len(some)), [WAYS[way] for way in some], fontsize="small")
        axis.set(title=f"{report['arguments']['model']}, {report['ranks']} ranks", ylabel="cost of a step (ms)")
        axis.axhline(0, color="black", linewidth=0.5)
        axis.grid(axis="y", alpha=0.3)
        axis.legend(fontsize="small")
    figure.savefig(arguments.output, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
