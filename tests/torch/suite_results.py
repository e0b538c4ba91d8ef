# SPDX-License-Identifier: Apache-2.0
"""The results of the tests of a suite."""

from __future__ import annotations

import json
import time
import unittest


class Results(unittest.TextTestResult):
    """The outcome of each test with its reason and duration, keyed by class and test name."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.tests: dict[str, dict] = {}

    def startTest(self, test):
        super().startTest(test)
        self._begun = time.monotonic()

    def _note(self, test, outcome: str, why: str = "") -> None:
        name = ".".join(test.id().split(".")[-2:])
        seconds = round(time.monotonic() - self._begun, 2)
        self.tests[name] = {"outcome": outcome, "why": why, "seconds": seconds}

    def addSuccess(self, test):
        super().addSuccess(test)
        self._note(test, "passed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._note(test, "skipped", reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._note(test, "failed", str(err[1]))

    def addError(self, test, err):
        super().addError(test, err)
        self._note(test, "failed", str(err[1]))

    def counts(self) -> dict[str, int]:
        """Returns how many tests passed, were skipped, and failed."""
        return {
            outcome: sum(test["outcome"] == outcome for test in self.tests.values())
            for outcome in ("passed", "skipped", "failed")
        }

    def write(self, path: str, **facts) -> None:
        """Writes all results as JSON, with the given facts about the run."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**facts, "tests": self.tests}, file, indent=1, sort_keys=True)
