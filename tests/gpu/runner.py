# SPDX-License-Identifier: Apache-2.0
"""Runs steps one after another, each with a deadline, and records how each step ended.

If a step fails or hangs, the other steps still run. The summary is written after each step, so that
it exists even if the run is cut short.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import tarfile
import time
from dataclasses import asdict, dataclass, field
from typing import Callable, Container, Optional

PASSED, FAILED, NOT_RUN = "passed", "FAILED", "not run"
LAST_LINES, LAST_WORDS = 12, "; its last words:"


@dataclass
class Figure:
    """A measured number. `target` is the value that it should reach, or None."""

    name: str
    value: float
    unit: str
    target: Optional[float] = None
    is_upper_limit: bool = False  # Of `target`: the value should be at most this.

    def verdict(self) -> str:
        if self.target is None:
            return ""
        is_met = self.value <= self.target if self.is_upper_limit else self.value >= self.target
        bound = f"{'at most' if self.is_upper_limit else 'at least'} {self.target:g} {self.unit}"
        return f"{bound}: {'met' if is_met else 'MISSED'}"


@dataclass
class Outcome:
    """The result of a step."""

    group: str
    name: str
    status: str = NOT_RUN
    reason: str = ""
    seconds: float = 0
    command: str = ""
    figures: list[Figure] = field(default_factory=list)
    answers: list[dict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Trouble(Exception):
    """A step has failed. `output` is what its command has printed."""

    def __init__(self, why: str, output: str = ""):
        super().__init__(why)
        self.output = output


class Missing(Exception):
    """A step cannot run here. The text is the reason."""


class Runner:
    """Runs commands for steps, and stores their output."""

    def __init__(self, results: str, seconds: float, facts: dict, judges: bool,
                 groups: Container[str]):
        self.results, self.facts, self.judges, self.groups = results, facts, judges, groups
        self.end = time.monotonic() + seconds
        self.outcomes: list[Outcome] = []
        self.logs = os.path.join(results, "logs")
        os.makedirs(self.logs, exist_ok=True)
        self.environment = dict(os.environ)
        self._outcome = Outcome("", "")
        self._step_end = self.end

    def left(self) -> float:
        return self.end - time.monotonic()

    def step(self, group: str, name: str, seconds: float, act: Callable[[], None]) -> None:
        """Runs a step if its group is selected. `act` calls command() and the functions below.

        Takes at most `seconds`.
        """
        if group not in self.groups:
            return
        outcome = self._outcome = Outcome(group, name)
        self.outcomes.append(outcome)
        begin = time.monotonic()
        self._step_end = min(begin + seconds, self.end)
        try:
            if self.left() < 5:
                # A rehearsal is short. It would prove nothing if steps were omitted by chance.
                raise (Missing if self.judges else Trouble)("no time was left")
            act()
            outcome.status = PASSED
        except Missing as why:
            outcome.reason = str(why)
        except Trouble as why:
            outcome.status, outcome.reason = FAILED, str(why)
        except Exception as why:  # An error in a step must not end the run.
            outcome.status, outcome.reason = FAILED, f"{type(why).__name__}: {why}"
        outcome.seconds = round(time.monotonic() - begin, 1)
        print(f"{outcome.status:8} {outcome.seconds:6.1f} s  {group}: {name}", flush=True)
        if outcome.reason:
            print("    " + outcome.reason.replace("\n", "\n    "), flush=True)
        self.write()

    def command(self, arguments: list[str], *, environment: Optional[dict] = None,
                name: str = "", accepts: tuple[int, ...] = (0,)) -> str:
        """Runs a command until the step's deadline. Returns its standard output.

        Raises Trouble with the end of the output if the command fails, or does not end in time.
        """
        shown = shlex.join(os.path.basename(arguments[0]) if i == 0 else a
                           for i, a in enumerate(arguments))
        self._outcome.command = self._outcome.command or shown
        number = len(os.listdir(self.logs)) // 2
        base = os.path.join(self.logs, f"{number:03d}-{name or os.path.basename(arguments[0])}")
        limit = max(1, self._step_end - time.monotonic())
        with open(base + ".out", "w+") as out, open(base + ".err", "w+") as err:
            err.write(f"$ {shown}\n")
            err.flush()
            # A new process group, so that all its processes can be killed.
            process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                       env={**self.environment, **(environment or {})},
                                       start_new_session=True)
            is_late = False
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                is_late = True
            finally:
                end_group(process)
            out.seek(0)
            text = out.read()
            err.seek(0)
            errors = err.read().partition("\n")[2]  # Without the command.
        if is_late or process.returncode not in accepts:
            how = (f"did not end within {limit:.0f} s" if is_late
                   else f"exit status {process.returncode}")
            last = "\n".join((text + errors).strip().splitlines()[-LAST_LINES:])
            raise Trouble(f"{shown}: {how}{LAST_WORDS}\n{last}", text)
        return text

    def rows(self, arguments: list[str], keep: Callable[[dict], None],
             environment: Optional[dict] = None) -> None:
        """Runs a command that prints a line of JSON for each result, and calls `keep` for each
        line.

        Lines are also processed if the command fails or does not end.
        """
        trouble = None
        try:
            text = self.command(arguments, environment=environment)
        except Trouble as why:
            text, trouble = why.output, why
        for line in text.splitlines(keepends=True):
            if line.startswith("{") and line.endswith("\n"):
                keep(json.loads(line))
        if trouble:
            raise trouble

    def figure(self, name: str, value: float, unit: str, target: Optional[float] = None,
               is_upper_limit: bool = False) -> None:
        """Records a number. With the stand-in, it is not compared with the target."""
        self._outcome.figures.append(
            Figure(name, value, unit, target if self.judges else None, is_upper_limit))

    def answer(self, subject: str, text: str) -> None:
        self._outcome.answers.append({"subject": subject, "answer": text})

    def note(self, text: str) -> None:
        self._outcome.notes.append(text)

    def keep(self, name: str, text: str) -> None:
        """Writes a file of results."""
        with open(os.path.join(self.results, name), "w") as file:
            file.write(text)

    def write(self) -> None:
        report = {**self.facts, "steps": [asdict(outcome) for outcome in self.outcomes]}
        self.keep("results.json", json.dumps(report, indent=1) + "\n")
        self.keep("summary.md", summary(self.facts, self.outcomes))

    def pack_logs(self) -> None:
        """Packs all output into one file, for machines from which only few files can be copied."""
        with tarfile.open(os.path.join(self.results, "logs.tar.gz"), "w:gz") as archive:
            archive.add(self.logs, "logs")
        for name in os.listdir(self.logs):
            os.unlink(os.path.join(self.logs, name))
        os.rmdir(self.logs)


def end_group(process: subprocess.Popen) -> None:
    """Kills a process and the processes that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        pass  # The driver may block its end. The summary reports the time-out.


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")


def summary(facts: dict, outcomes: list[Outcome]) -> str:
    """Returns the report as Markdown."""
    counts = {status: sum(o.status == status for o in outcomes)
              for status in (PASSED, FAILED, NOT_RUN)}
    lines = ["# Xylem on a machine with a GPU", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += ["", ", ".join(f"{count} {status}" for status, count in counts.items()), "",
              "| part | step | result | seconds |", "| --- | --- | --- | --- |"]
    for outcome in outcomes:
        first = outcome.reason.splitlines()[:1]
        reason = f": {first[0].removesuffix(LAST_WORDS)}" if first else ""
        notes = "".join(f"; {note}" for note in outcome.notes)
        lines.append(f"| {outcome.group} | {cell(outcome.name)} | "
                     f"{cell(outcome.status + reason + notes)} | {outcome.seconds:.1f} |")
    figures = [(outcome, figure) for outcome in outcomes for figure in outcome.figures]
    if figures:
        lines += ["", "## Figures", "", "| step | what | value | target |",
                  "| --- | --- | --- | --- |"]
        lines += [f"| {cell(o.name)} | {cell(f.name)} | {f.value:.4g} {f.unit} | {f.verdict()} |"
                  for o, f in figures]
    answers = [(outcome, answer) for outcome in outcomes for answer in outcome.answers]
    if answers:
        lines += ["", "## Answers", "", "| question | about | answer |", "| --- | --- | --- |"]
        lines += [f"| {cell(o.name)} | {cell(a['subject'])} | {cell(a['answer'])} |"
                  for o, a in answers]
    failures = [outcome for outcome in outcomes if outcome.status == FAILED]
    if failures:
        lines += ["", "## Failures"]
        for outcome in failures:
            lines += ["", f"### {outcome.name}", "", "```", outcome.reason, "```"]
    return "\n".join(lines) + "\n"
