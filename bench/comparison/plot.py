# SPDX-License-Identifier: Apache-2.0
"""Plots bandwidth over size, in one picture for each operation."""

import statistics

from .peers import Skipped


def require():
    """Loads the plotting library; called before any time is spent on measuring."""
    try:
        import matplotlib
    except ImportError:
        raise Skipped("--plot draws with matplotlib: apt-get install python3-matplotlib") from None
    matplotlib.use("svg")
    import matplotlib.pyplot
    return matplotlib.pyplot


def size_text(size):
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size / (1 << shift):g} {unit}"
    return f"{size} B"


def draw(pyplot, times, names, title, path):
    """Writes an SVG: algbw (10^9 bytes/s) over size, for each peer and for the machine's memory."""
    operations = [operation for operation in times if operation != "barrier"]
    figure, axes = pyplot.subplots(1, len(operations), squeeze=False, layout="constrained",
                                   figsize=(1.5 + 5 * len(operations), 4.5))
    for axis, operation in zip(axes[0], operations):
        for name in [*names, "limit"]:
            points = [(size, size / statistics.median(cell[name]) / 1e3)
                      for size, cell in times[operation].items() if name in cell]
            if not points:
                continue
            style = {"marker": "o", "markersize": 3}
            if name == "limit":
                style = {"marker": "_", "markersize": 12, "color": "black", "linestyle": "--"}
            axis.plot(*zip(*points), linewidth=2 if name == "xylem" else 1,
                      label="limit by memory traffic" if name == "limit" else name, **style)
        sizes = list(times[operation])
        axis.set(xscale="log", yscale="log", title=operation, xlabel="size",
                 ylabel="algbw (GB/s)")
        axis.set_xticks(sizes[::max(1, len(sizes) // 6)],
                        [size_text(size) for size in sizes[::max(1, len(sizes) // 6)]])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    figure.suptitle(title, fontsize="small")
    figure.savefig(path, format="svg")
