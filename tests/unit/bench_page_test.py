# SPDX-License-Identifier: Apache-2.0
"""The tables that bench/report makes from results, and the files into which it writes them."""

import importlib.machinery
import importlib.util
import os
import re
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True  # Leaves no files in the repository.
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
loader = importlib.machinery.SourceFileLoader("report", os.path.join(ROOT, "bench", "report"))
report = importlib.util.module_from_spec(importlib.util.spec_from_loader("report", loader))
loader.exec_module(report)
page = report.page


def compared(ranks, **fields):
    times = {"xylem": {"median": 2.0, "runs": [2.0]}, "gloo": {"median": 8.0, "runs": [8.0]}}
    result = {"op": "all_reduce", "ranks": ranks, "bytes": 65536, "ratio_to_best": 0.5, "ratio_95": [0.4, 0.6],
              "share_of_limit": None, "time_us": times, **fields}
    return {"results": [result], "environment": {"versions": {"mpich": "mpirun.mpich 4"}, "skipped": {"ucc": "no ucc"}}}


class Tables(unittest.TestCase):
    def test_of_comparisons_have_the_ratio_its_interval_and_the_time(self):
        text = page.compared(compared(2, share_of_limit=0.62), compared(4, ratio_to_best=None, ratio_95=None))
        self.assertIn("| 2 ranks, 64 KiB | 0.50 [0.40, 0.60] (2.00) | 0.25 |", text)
        self.assertIn("| 4 ranks, 64 KiB | - (2.00) | 0.25 |", text)
        self.assertIn("| of the limit: 2 ranks, 64 KiB | 62 % | - |", text)
        self.assertIn("Not measured beside ucc (no ucc).", text)
        self.assertIn("Versions: mpirun.mpich 4.", page.collectives(compared(2), compared(4)))

    def test_of_hosts_compare_within_rounds(self):
        rows = [{"bytes": 8, "variant": name, "times_us": times, "share": None}
                for name, times in (("tcp:auth", [1, 20, 3]), ("ucx-tcp", [2, 10, 3]))]
        text = page.hosts({"hosts": 2, "rows": rows, "cpu_s_per_GB": {"tcp:auth": 1, "ucx-tcp": 2}})
        self.assertIn("| 2 hosts, µs |", text)
        self.assertIn("| 8 B | 3.00 | 3.00 | 1.00 |", text)
        self.assertIn("| CPU s/GB | 1.00 | 2.00 | - |", text)

    def test_of_busy_cores_show_the_worst_cell(self):
        cell = {"ratio": 0.5, "low": 0.4, "high": 0.6, "control": 1}
        text = page.busy({"2 ranks": {"cells": {"barrier 0": cell, "reduce 4096": {**cell, "ratio": 0.3}},
                                      "mean": {"ratio": 0.4, "control": 1}, "p99": {"barrier": {"ratio": 0.7}}}})
        self.assertIn("| 2 ranks | 0.40 | 1.00 | 0.50 [0.40, 0.60] barrier | 0.70 barrier |", text)

    def test_of_plans_read_what_xylem_plan_prints(self):
        text = ("  chosen      ring, 4.18 ms predicted\n  verified    16 ranks, 1008 steps, all at once; 628 us\n"
                "  effort      planning rank 0's schedule takes 2.94 us (median of 11); peak memory 6.91 MiB\n")
        self.assertIn("| ring | 1,008 | all at once | 628 us | 6.91 MiB | 2.94 us |", page.plans(text))
        text = text.replace(", all at once", "; every rank's compared with rank 0's by symmetry, which is proven")
        self.assertIn("| ring | 1,008 | by symmetry | 628 us | 6.91 MiB | 2.94 us |", page.plans(text))


class Sections(unittest.TestCase):
    def test_name_each_command(self):
        self.assertEqual(page.show_commands("abc, folder", ["a --b 1", "c x", "c y"]),
                         "abc, folder: `a --b 1`; `c x|y`\n")

    def test_end_at_the_next_heading(self):
        with tempfile.TemporaryDirectory() as root:
            path = os.path.join(root, "page.md")
            for after in ("", "\n## Next\n\n<!-- report b -->\nkept\n"):
                with open(path, "w", encoding="utf-8") as file:
                    file.write("# Page\n\n<!-- report a -->\nold\n\n| old |\n" + after)
                page.write_sections(root, ["page.md"], {"a": "new\n"})
                with open(path, encoding="utf-8") as file:
                    self.assertEqual(file.read(), "# Page\n\n<!-- report a -->\nnew\n" + after)

    def test_of_all_parts_are_in_the_pages(self):
        marks = []
        for name in report.PAGES:
            with open(os.path.join(ROOT, name), encoding="utf-8") as file:
                marks += re.findall(r"<!-- report (\w+) -->", file.read())
        self.assertEqual(sorted(marks), sorted(report.PARTS))


if __name__ == "__main__":
    unittest.main()
