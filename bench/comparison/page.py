# SPDX-License-Identifier: Apache-2.0
"""The tables that bench/report writes into pages, from the results in a folder.

A section of a page begins at a mark, `<!-- report NAME -->`, and ends at the next heading.
"""

import os
import re
import statistics
import textwrap

from .report import interval, ratio

SECTION = re.compile(r"(?P<mark><!-- report (?P<name>\w+) -->\n)(?P<text>.*?)(?=\n#|\Z)", re.DOTALL)
WAYS = {"ddp": "DDP", "ddp_view": "DDP, gradients as views of buckets", "fsdp2": "FSDP2"}


def number(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def size_text(size):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def bounds(low_and_high):
    return f" [{number(low_and_high[0])}, {number(low_and_high[1])}]" if low_and_high else ""


def table(headings, rows):
    lines = [headings, ["---"] + ["---:"] * (len(headings) - 1), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def matrix(corner, rows, columns, cell, row_text=str, column_text=str):
    """A table whose cells are cell(row, column), or "-" where that is None."""
    return table([corner, *map(column_text, columns)],
                 [[row_text(row), *(cell(row, column) or "-" for column in columns)] for row in rows])


def distinct(values):
    return list(dict.fromkeys(values))


def compared(*data):
    """What bench/compare found in one or more runs with different numbers of ranks: the ratio to the quickest MPI with
    its interval and the time of Xylem, the ratio to Gloo if that took part, the shares of the limit, and the peers that
    are missing.
    """
    found = {((result["ranks"], result["bytes"]), result["op"]): result for one in data for result in one["results"]}
    rows, operations = (distinct(key[place] for key in found) for place in (0, 1))
    all_reduces = {key[0]: result for key, result in found.items() if "gloo" in result["time_us"]}
    columns = [*operations, "all_reduce over Gloo"] if all_reduces else operations

    def cell(row, operation):
        if operation not in operations:
            runs = {name: times["runs"] for name, times in all_reduces.get(row, {"time_us": {}})["time_us"].items()}
            return number(ratio(runs, "gloo")) if runs else None
        result = found.get((row, operation))
        if not result:
            return None
        against = result["ratio_to_best"]
        return ((number(against) if against else "-") + bounds(result["ratio_95"])
                + f" ({number(result['time_us']['xylem']['median'])})")

    def share(row, operation):
        of_limit = found.get((row, operation), {}).get("share_of_limit")
        return f"{100 * of_limit:.0f} %" if of_limit else None

    def row_text(row):
        return f"{row[0]} ranks, {size_text(row[1])}" if len(data) > 1 else size_text(row[1])

    limited = [row for row in rows if any(share(row, operation) for operation in operations)]
    text = matrix("size", rows, columns, cell, row_text)
    text += "".join(matrix("", limited, columns, share, lambda row: f"of the limit: {row_text(row)}")
                    .splitlines(keepends=True)[2:])
    lacks = distinct(f"Not measured beside {name} ({reason.splitlines()[0]}).\n" for one in data
                     for name, reason in one["environment"]["skipped"].items())
    return "\n".join([text, *lacks])


def collectives(*data):
    versions = distinct(text for one in data for text in one["environment"]["versions"].values())
    return f"{compared(*data)}\nVersions: {', '.join(versions)}.\n"


def kernels(data):
    rates = {}
    for row in data["benchmarks"]:
        name = re.fullmatch(r"reduce/(\w+)_sum/sources:2/bytes:(\d+)", row["run_name"])
        if name and row.get("aggregate_name") == "median":
            rates[name[1], int(name[2])] = row["bytes_per_second"] / 1e9
    return matrix("type", distinct(kind for kind, _ in rates), distinct(size for _, size in rates),
                  lambda kind, size: number(rates[kind, size]), column_text=size_text)


def busy(data):
    rows = []
    for condition, found in data.items():
        cell, worst = max(found["cells"].items(), key=lambda item: item[1]["ratio"])
        operation, size = cell.split()
        slow, tail = max(found["p99"].items(), key=lambda item: item[1]["ratio"])
        rows.append([condition, number(found["mean"]["ratio"]), number(found["mean"]["control"]),
                     number(worst["ratio"]) + bounds((worst["low"], worst["high"]))
                     + f" {operation} {size_text(int(size)) if int(size) else ''}".rstrip(),
                     f"{number(tail['ratio'])} {slow}"])
    return table(["ranks, neighbours", "mean", "gloo over gloo", "largest ratio of a cell", "largest p99 over gloo's"],
                 rows)


def speed(data):
    def cell(op, size):
        theirs, ours = (found[op, size][name] for name in ("gloo", "xylem"))
        faster = [b / a for a, b in zip(ours, theirs)]
        return number(statistics.median(faster)) + bounds(interval(faster)) + f" ({number(statistics.median(ours))})"

    found = {(row["op"], row["bytes"]): row["times_us"] for row in data["rows"]}
    return matrix("call", distinct(op for op, _ in found), distinct(size for _, size in found), cell,
                  column_text=size_text)


def steps(*data):
    return table(["training step", "Xylem: step, cost (ms)", "gloo: step, cost (ms)", "ratio of the costs"],
                 [[f"{WAYS[row['way']]}, {one['ranks']} ranks",
                   *(f"{row[name]['step_ms']:.0f}, {row[name]['cost_ms']:.0f}" for name in ("xylem", "gloo")),
                   number(row["ratio"]) + bounds((row["low"], row["high"]))] for one in data for row in one["rows"]])


def starts(data):
    def cell(backend, ranks):
        times = data[ranks][backend]
        return f"{statistics.median(times):.1f} ({min(times):.1f} to {max(times):.1f})"

    backends = list(next(iter(data.values())))
    return matrix("start (ms)", backends, list(data), cell, column_text=lambda ranks: f"{ranks} ranks")


def hosts(data):
    """Times if the links have no rate limit, otherwise bandwidths as fractions of that limit."""
    rows = {(row["bytes"], row["variant"]): row for row in data["rows"]}
    variants, last = distinct(variant for _, variant in rows), data["rows"][-1]["variant"]

    def cell(size, variant):
        row = rows[size, variant]
        return f"{row['share']:.3f}" if row["share"] else number(statistics.median(row["times_us"]))

    def against(size):
        over = [ours / theirs for ours, theirs in zip(rows[size, "tcp:auth"]["times_us"], rows[size, last]["times_us"])]
        return number(statistics.median(over)) + bounds(interval(over))

    lines = [[size_text(size), *(cell(size, variant) for variant in variants), against(size)]
             for size in distinct(size for size, _ in rows)]
    if data["cpu_s_per_GB"]:
        lines.append(["CPU s/GB", *(number(data["cpu_s_per_GB"][variant]) for variant in variants), "-"])
    unit = "share of the link" if data["rows"][0]["share"] else "µs"
    return table([f"{data['hosts']} hosts, {unit}", *variants, f"tcp:auth over {last}"], lines)


def plan(text):
    """The row for one output of `xylem plan`."""
    said = dict(line.strip().split("  ", 1) for line in text.splitlines() if "  " in line.strip())
    verified = re.fullmatch(r" *\d+ ranks, (\d+) steps[,;] (.*); (.*)", said["verified"])
    proof = "by symmetry" if "by symmetry" in verified[2] else verified[2]
    effort = re.fullmatch(r" *planning .* takes (.*) \(.*; peak memory (.*)", said["effort"])
    return [said["chosen"].split(",")[0].strip(), f"{int(verified[1]):,}", proof, verified[3], effort[2], effort[1]]


def plans(*texts):
    return table(["algorithm", "steps of all ranks", "proof", "proof takes", "memory", "one rank's schedule"],
                 [plan(text) for text in texts])


def for_readme(*data):
    found = {(result["op"], result["bytes"]): result["ratio_to_best"] for one in data for result in one["results"]}

    def cell(op, size):
        return number(found[op, size]) if found.get((op, size)) else None

    return matrix("", ["all_reduce", "all_gather", "exchange"], [8, 4 << 10, 64 << 10, 1 << 20, 16 << 20], cell,
                  column_text=size_text)


def show_commands(origin, commands):
    """A paragraph with all commands. Those that differ only in the last word are written as one, with "|"."""
    merged = {}
    for command in commands:
        begin, _, last = command.rpartition(" ")
        merged.setdefault(begin, []).append(last)
    text = f"{origin}: " + "; ".join(f"`{begin} {'|'.join(words)}`" for begin, words in merged.items())
    return textwrap.fill(text, 120, break_on_hyphens=False, break_long_words=False) + "\n"


def write_sections(root, pages, sections):
    """Replaces the named sections of a page."""
    for page in pages:
        path = os.path.join(root, page)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        fresh = SECTION.sub(lambda found: found["mark"] + sections.get(found["name"], found["text"]), text)
        with open(path, "w", encoding="utf-8") as file:
            file.write(fresh)
