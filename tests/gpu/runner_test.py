# SPDX-License-Identifier: Apache-2.0
"""The runner of tests/gpu/check: other steps run even if one step fails, hangs, or has no time
left.
"""

import json
import os
import sys
import tarfile
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from runner import FAILED, NOT_RUN, PASSED, Figure, Missing, Runner


class Steps(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.results = directory.name
        self.runner = self.make(seconds=60)

    def make(self, seconds, judges=True):
        return Runner(self.results, seconds, {"GPU": "none"}, judges, ["part"])

    def run_shell(self, script, seconds=20):
        self.runner.step("part", script, seconds, lambda: self.runner.command(["sh", "-c", script]))
        return self.runner.outcomes[-1]

    def summary(self):
        with open(os.path.join(self.results, "summary.md")) as file:
            return file.read()

    def test_a_failure_is_told_and_the_rest_goes_on(self):
        failed = self.run_shell("echo the reason; exit 3")
        self.assertEqual(failed.status, FAILED)
        self.assertIn("exit status 3", failed.reason)
        self.assertIn("the reason", failed.reason)
        self.assertEqual(self.run_shell("true").status, PASSED)
        self.assertIn("1 passed, 1 FAILED, 0 not run", self.summary())

    def test_a_step_that_hangs_is_ended_with_its_children(self):
        own = os.path.join(self.results, "own")
        # The child process holds a lock until it ends.
        hung = self.run_shell(f"echo begun; flock {own} tail -f /dev/null & wait", seconds=1)
        self.assertEqual(hung.status, FAILED)
        self.assertIn("did not end within 1 s", hung.reason)
        self.assertIn("begun", hung.reason)
        self.assertEqual(self.run_shell(f"flock -w 10 {own} true").status, PASSED)

    def test_other_groups_are_left_out(self):
        self.runner.step("other", "step", 5, lambda: self.fail("this step was not wanted"))
        self.assertEqual(self.runner.outcomes, [])

    def test_without_time_nothing_begins(self):
        self.runner = self.make(seconds=0)
        self.assertEqual(self.run_shell("true").status, NOT_RUN)
        self.assertIn("no time was left", self.summary())
        self.runner = self.make(seconds=0, judges=False)
        self.assertEqual(self.run_shell("true").status, FAILED)

    def test_a_mistake_of_a_step_and_what_is_missing_are_told(self):
        def is_missing():
            raise Missing("there is none")

        self.runner.step("part", "mistake", 5, lambda: {}["key"])
        self.runner.step("part", "missing", 5, is_missing)
        mistake, missing = self.runner.outcomes
        self.assertEqual((mistake.status, missing.status), (FAILED, NOT_RUN))
        self.assertIn("KeyError", mistake.reason)
        self.assertIn("not run: there is none", self.summary())

    def test_figures_answers_and_logs_are_kept(self):
        def act():
            self.runner.command(["sh", "-c", "echo told"])
            self.runner.figure("share", 85, "%", 90)
            self.runner.answer("a stream", "runs | waits")
            self.runner.note("3 tests")

        self.runner.step("part", "step", 20, act)
        self.runner.pack_logs()
        text = self.summary()
        self.assertIn("| step | share | 85 % | at least 90 %: MISSED |", text)
        self.assertIn("| step | a stream | runs \\| waits |", text)
        self.assertIn("passed; 3 tests", text)
        with open(os.path.join(self.results, "results.json")) as file:
            (step,) = json.load(file)["steps"]
        self.assertEqual(step["figures"][0]["value"], 85)
        with tarfile.open(os.path.join(self.results, "logs.tar.gz")) as archive:
            name = next(name for name in archive.getnames() if name.endswith(".out"))
            self.assertEqual(archive.extractfile(name).read(), b"told\n")

    def test_rows_are_kept_although_the_command_fails(self):
        script = "echo '{\"us\": 1}'; printf '{\"us\": '; exit 1"
        rows = []
        self.runner.step("part", "rows", 20,
                         lambda: self.runner.rows(["sh", "-c", script], rows.append))
        self.assertEqual(self.runner.outcomes[0].status, FAILED)
        self.assertEqual(rows, [{"us": 1}])

    def test_targets(self):
        self.assertEqual(Figure("", 95, "%", 90).verdict(), "at least 90 %: met")
        self.assertEqual(Figure("", 16, "us", 15, True).verdict(), "at most 15 us: MISSED")
        self.assertEqual(Figure("", 16, "us").verdict(), "")
        runner = self.make(seconds=9, judges=False)
        runner.figure("", 1, "%", 90)
        self.assertEqual(runner._outcome.figures[0].verdict(), "")


if __name__ == "__main__":
    unittest.main()
