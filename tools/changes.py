#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What CI runs for a change: the stages of `tools/test --ci`, and the sources that clang-tidy reads.

.ci/passed names, for each stage that CI does not run every time, the commit at which the stage passed last. A stage
runs if files that concern it differ from this commit, if it has failed since, if it is its turn, or if .ci/passed does
not name it. So nothing is missed if a run fails or is interrupted: .ci/passed still names the earlier commit.
"""

import argparse
import datetime
import json
import os
import re
import subprocess
import sys

# In the order in which tools/test runs them.
ALWAYS = ("format", "shell", "build", "headers", "tests", "package", "layering", "torch", "tidy")
PARTS = ("ucx", "gpu", "torch-oldest", "wheel", "tsan", "asan", "fuzz")

# Which files require which parts. A component with threads requires the thread sanitizer, any other component the
# address sanitizer; the other sanitizer runs when it is its turn. bindings/torch requires neither, since torch itself
# is not built with sanitizers: both run when it is their turn.
NEEDS = (
    (r"(base|execution|runtime|transport)/|tests/(conformance|mixed|support)/|tests/sanitizer/tsan", ("tsan",)),
    (r"(bindings/c|collectives|tools/src|topology)/|tests/sanitizer/lsan", ("asan",)),
    # Code that reads foreign text or bytes, and has a fuzz target.
    (r"topology/|runtime/src/(bootstrap/|wires/peer_facts|progress/cores)|collectives/.*(verify|text)|"
     r"base/.*(log|quantity)|tests/fuzz/", ("fuzz",)),
    (r"execution/(src|include/.*)/cuda|tests/(gpu|fakes/cuda_driver)/", ("gpu",)),
    (r"transport/src/ucx/|tests/(unit|process)/ucx", ("ucx",)),
    (r"bindings/torch/|tests/torch/", ("torch-oldest",)),
    (r"pyproject\.toml|tools/wheel|tests/wheel/", ("wheel", "ucx")),
    (r"bindings/torch/(CMakeLists\.txt|.*\.py$)", ("wheel",)),
    # Files that decide how everything is built and run.
    (r"cmake/|CMakeLists\.txt|CMakePresets\.json|tools/(test|setup)$", PARTS),
)

# Parts that run by turns, one group a day, so that each of them runs twice in any seven days. The groups take about
# equally long.
TURNS = (("tsan", "ucx"), ("asan", "fuzz"), ("torch-oldest", "wheel", "gpu"))

RECORD = ".ci/passed"
RECORD_HEAD = """\
# The commit at which each stage passed last, written by tools/test: commit it with your change (docs/testing.md).
# "failed" after a commit: the stage has failed since. "tidy" names the last commit of which it has read all sources.
"""


def reasons_for(part, changed, failed, day, is_fresh=False):
    """Why `tools/test --ci` runs a part, or None. `changed` are the files that differ from the commit at which the part
    passed last, or None if there is no such commit."""
    if failed:
        return "has failed since it passed last"
    if changed is None:
        return f"{RECORD} names no commit of this clone at which it passed"
    concerned = [path for path in changed for pattern, parts in NEEDS if part in parts and re.match(pattern, path)]
    if concerned:
        return f"asked for by {concerned[0]}" + (f" and {len(concerned) - 1} more" if len(concerned) > 1 else "")
    if part in TURNS[day.toordinal() % len(TURNS)] and not is_fresh:
        return "it is its turn"
    return None


def choose(changed, failed, day, fresh=()):
    """The stages of a run, with their reasons: {stage: reason}. `changed` gives for each part the files that differ, or
    None; `failed` are the parts that have failed since they passed last."""
    chosen = {stage: "every change needs it" for stage in ALWAYS}
    for part in PARTS:
        reason = reasons_for(part, changed[part], part in failed, day, part in fresh)
        if reason:
            chosen[part] = reason
    return chosen


# --- clang-tidy ---------------------------------------------------------------------------------------


INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.MULTILINE)


def readers_of(changed, texts):
    """`changed` and all files that include one of them, directly or not. `texts` has the text of each C++ file. An
    include refers to each file whose path ends with the included path or, if there is no such file (since it is
    generated), to each file with the same name."""
    by_name = {}
    for path in set(texts) | set(changed):
        path = path.removesuffix(".in")
        by_name.setdefault(os.path.basename(path), set()).add(path)
    included_by = {}
    for path, text in texts.items():
        for include in INCLUDE.findall(text):
            named = by_name.get(os.path.basename(include), set())
            whole = {other for other in named if f"/{other}".endswith(f"/{include.removeprefix('./')}")}
            for other in whole or named:
                included_by.setdefault(other, set()).add(path)
    found, queue = set(), [path.removesuffix(".in") for path in changed]
    while queue:
        path = queue.pop()
        if path not in found:
            found.add(path)
            queue.extend(included_by.get(path, ()))
    return found


def asks_for_all(path):
    """Whether a change of the file affects how clang-tidy checks every source."""
    return os.path.basename(path) == ".clang-tidy" or path in ("cmake/XylemChecks.cmake", "tools/setup")


def is_of_cmake(path):
    return os.path.basename(path) in ("CMakeLists.txt", "CMakePresets.json") or path.endswith(".cmake")


def commands_of(root):
    """The command that compiles each source in the build tree of the preset tidy. The paths of the root and of the
    repository are removed, so that the commands of two trees can be compared."""
    with open(os.path.join(root, "build/tidy/compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    places = (os.path.abspath(root), os.getcwd())
    return {os.path.relpath(entry["file"], root): without(places, entry["command"]) for entry in entries}


def without(places, text):
    for place in places:
        text = text.replace(place, "")
    return text


def commands_at(commit):
    """commands_of() for the files of a commit, in a build tree that this function configures."""
    place = "build/tidy-base"
    subprocess.run(["rm", "-rf", place], check=True)
    os.makedirs(place)
    archive = subprocess.run(["git", "archive", commit], check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-x", "-C", place], input=archive, check=True)
    with open("build/tidy/CMakeCache.txt", encoding="utf-8") as file:
        found = re.findall(r"^((?:XYLEM_BUILD_TORCH|Python3_EXECUTABLE|XYLEM_NVCC):\w+=.+)$", file.read(), re.MULTILINE)
    subprocess.run(
        ["cmake", "--preset", "tidy", *(f"-D{setting}" for setting in found)],
        check=True, cwd=place, stdout=subprocess.DEVNULL,
    )
    return commands_of(place)


def sources_to_read():
    """The sources for the stage tidy, or None for all."""
    commit = read_record().get("tidy", (None, False))[0]
    changed = changed_since(commit)
    if changed is None or any(map(asks_for_all, changed)):
        return None
    texts = {}
    for path in git("ls-files", "--cached", "--others", "--exclude-standard").splitlines():
        if path.endswith((".cc", ".h", ".c", ".cu", ".inc", ".in")) and os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                texts[path] = file.read()
    found = readers_of(changed, texts)
    if any(map(is_of_cmake, changed)):
        before, now = commands_at(commit), commands_of(".")
        found |= {path for path, command in now.items() if before.get(path) != command}
    return sorted(path for path in found if path.endswith(".cc") and path in texts)


# --- the repository -----------------------------------------------------------------------------------


def git(*arguments):
    return subprocess.run(["git", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


# A line of C++ that is a comment, or a comment behind a declaration. Comments with NOLINT do not match, since clang-tidy
# reads them.
COMMENT = re.compile(r"^[ \t]*//(?!.*NOLINT).*\n|[ \t]*///<(?!.*NOLINT).*$", re.MULTILINE)


# In CMake, `#include` may be a line of a program in a string, so only `# ` begins a comment here.
CMAKE_COMMENT = re.compile(r"^[ \t]*# .*\n", re.MULTILINE)


def without_comments(text):
    """The lines of C++ code that have an effect, also for clang-tidy."""
    if 'R"' in text:  # A raw string may contain lines that look like comments.
        return text.splitlines()
    return [line for line in COMMENT.sub("", text).splitlines() if line.strip()]


def differs_in_code(path, commit):
    """Whether a file differs from that of a commit in more than comments."""
    is_code = path.endswith((".cc", ".h", ".c", ".cu", ".inc"))
    if not (is_code or is_of_cmake(path)) or not os.path.exists(path):
        return True
    known = subprocess.run(
        ["git", "show", f"{commit}:{path}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, errors="replace"
    )
    with open(path, encoding="utf-8", errors="replace") as file:
        now = file.read()
    if known.returncode != 0:
        return True
    if is_code:
        return without_comments(known.stdout) != without_comments(now)
    return CMAKE_COMMENT.sub("", known.stdout) != CMAKE_COMMENT.sub("", now)


def changed_since(commit):
    """The files that differ from a commit in more than comments, also those that git does not track yet; None if the
    clone lacks the commit."""
    if commit is None:
        return None
    exists = subprocess.run(["git", "cat-file", "-e", f"{commit}^{{commit}}"], stderr=subprocess.DEVNULL)
    if exists.returncode != 0:
        return None
    differ = git("diff", "--name-only", "--no-renames", commit).splitlines()
    differ = [path for path in differ if differs_in_code(path, commit)]
    return [path for path in differ + git("ls-files", "--others", "--exclude-standard").splitlines() if path != RECORD]


def read_record():
    """{stage: (commit, whether it has failed since)}"""
    record = {}
    if os.path.exists(RECORD):
        with open(RECORD, encoding="utf-8") as file:
            for line in file:
                words = line.split("#")[0].split()
                if len(words) in (2, 3):
                    record[words[0]] = (words[1], words[2:] == ["failed"])
    return record


def write_record(stage, commit, failed):
    """Records how a stage ended. If `commit` is None, the commit that was recorded before stays."""
    if stage not in PARTS + ("tidy",):
        return
    record = read_record()
    known = record.get(stage, (None, False))[0]
    if commit or known:  # CI runs a stage without a line in any case.
        record[stage] = (commit or known, failed)
        os.makedirs(os.path.dirname(RECORD), exist_ok=True)
        with open(RECORD, "w", encoding="utf-8") as file:
            file.write(RECORD_HEAD)
            for stage, (commit, failed) in sorted(record.items()):
                file.write(f"{stage} {commit}{' failed' if failed else ''}\n")


def stages_of(day):
    """The stages of a run in this repository, with their reasons."""
    record = read_record()
    commits = {part: record.get(part, (None, False))[0] for part in PARTS}
    differ = {commit: changed_since(commit) for commit in set(commits.values())}
    failed = {part for part, (_, failed) in record.items() if failed}
    fresh = {part for part, commit in commits.items() if differ[commit] is not None and is_of_day(commit, day)}
    return choose({part: differ[commit] for part, commit in commits.items()}, failed, day, fresh)


def is_of_day(commit, day):
    """Whether a commit was made on this day (UTC), so that a part that passed at it has had its turn."""
    made = int(git("show", "--no-patch", "--format=%ct", commit))
    return datetime.datetime.fromtimestamp(made, datetime.timezone.utc).date() == day


def main():
    parser = argparse.ArgumentParser(description="What changes ask of CI (tools/test --ci).")
    verbs = parser.add_subparsers(dest="verb", required=True)
    stages = verbs.add_parser("stages", help="the stages to run, one a line; the reasons on stderr")
    stages.add_argument("--day", type=datetime.date.fromisoformat, help="by itself, today (UTC)")
    verbs.add_parser("sources", help="the sources that clang-tidy reads, as a regular expression")
    passed = verbs.add_parser("passed", help="notes that a stage has passed")
    passed.add_argument("stage")
    passed.add_argument("commit", nargs="?", help="the commit; by itself, the one that is noted already")
    verbs.add_parser("failed", help="notes that a stage has failed").add_argument("stage")
    arguments = parser.parse_args()
    os.chdir(git("rev-parse", "--show-toplevel").strip())
    if arguments.verb == "stages":
        day = arguments.day or datetime.datetime.now(datetime.timezone.utc).date()
        for stage, reason in stages_of(day).items():
            print(stage)
            if stage not in ALWAYS:
                print(f"tools/test: {stage}: {reason}", file=sys.stderr)
    elif arguments.verb == "sources":
        sources = sources_to_read()
        root = re.escape(os.getcwd())
        names = r"(?!build/).*\.cc" if sources is None else "(" + "|".join(map(re.escape, sources)) + ")"
        print(f"^{root}/{names}$" if sources != [] else "")
    else:
        write_record(arguments.stage, getattr(arguments, "commit", None), arguments.verb == "failed")


if __name__ == "__main__":
    main()
