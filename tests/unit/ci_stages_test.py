# SPDX-License-Identifier: Apache-2.0
"""The stages that `tools/test --ci` runs (tools/changes.py), and its record of the results of
stages.
"""

import datetime
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

sys.dont_write_bytecode = True  # Leaves no files in the repository.
ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tools"))

import changes

DAY = datetime.date(2026, 12, 1)
GROUPS = [set(group) for group in changes.TURNS]


def product_files(name):
    """Yields the paths of files with this name in the product."""
    for folder in ("base", "bindings", "collectives", "execution", "runtime", "tools", "topology", "transport"):
        yield from glob.glob(f"{folder}/**/{name}", root_dir=ROOT, recursive=True)


def chosen(files=(), failed=(), day=DAY, **others):
    """Returns the parts of a run if these files differ. `others` contains the files of single
    parts.
    """
    changed = {part: others.get(part.replace("-", "_"), list(files)) for part in changes.PARTS}
    return set(changes.choose(changed, set(failed), day)) - set(changes.ALWAYS)


def asked_for(*files):
    """Returns the parts that are chosen on every day."""
    return set.intersection(*(chosen(files, day=DAY + datetime.timedelta(days)) for days in range(2)))


class Choice(unittest.TestCase):
    def test_has_what_every_change_needs(self):
        stages = changes.choose({part: [] for part in changes.PARTS}, set(), DAY)
        for stage in ("format", "shell", "build", "headers", "tests", "layering", "package", "torch", "tidy"):
            self.assertIn(stage, stages)

    def test_has_the_parts_that_files_need(self):
        for path, parts in {
            "base/src/status.cc": {"tsan"},
            "base/src/log.cc": {"tsan", "fuzz"},
            "execution/src/engine.cc": {"tsan"},
            "runtime/src/progress/progress_thread.h": {"tsan"},
            "transport/src/shm/door.cc": {"tsan"},
            "transport/src/ucx/lanes.cc": {"tsan", "ucx"},
            "tests/conformance/seats_test.cc": {"tsan"},
            "runtime/src/bootstrap/wire.cc": {"tsan", "fuzz"},
            "runtime/src/wires/peer_facts.cc": {"tsan", "fuzz"},
            "topology/src/json.cc": {"asan", "fuzz"},
            "collectives/src/text.cc": {"asan", "fuzz"},
            "collectives/src/choose.cc": {"asan"},
            "bindings/c/src/work.cc": {"asan"},
            "tools/src/run/run.cc": {"asan"},
            "bindings/torch/src/backend.cc": {"torch-oldest"},
            "tests/torch/works_test.py": {"torch-oldest"},
            "execution/src/cuda/driver.cc": {"tsan", "gpu"},
            "execution/include/xylem/execution/cuda.h": {"tsan", "gpu"},
            "tests/gpu/run.py": {"gpu"},
            "bindings/torch/torch_requirement.py": {"torch-oldest", "wheel"},
            "pyproject.toml": {"wheel", "ucx"},
            "tools/wheel": {"wheel", "ucx"},
            "tests/fuzz/corpus/options_fuzz/size": {"fuzz"},
            "CMakePresets.json": set(changes.PARTS),
            "cmake/XylemTargets.cmake": set(changes.PARTS),
            "tools/test": set(changes.PARTS),
            "docs/testing.md": set(),
            "README.md": set(),
            "tests/CMakeLists.txt": set(),
        }.items():
            self.assertEqual(asked_for(path), parts, path)

    def test_joins_what_several_files_need(self):
        self.assertEqual(asked_for("docs/gpu.md", "bindings/c/src/work.cc", "base/src/check.cc"), {"asan", "tsan"})

    def test_runs_a_sanitizer_for_every_source_of_the_product(self):
        product = list(product_files("*.cc"))
        self.assertGreater(len(product), 100)
        for path in product:
            if not path.startswith("bindings/torch/"):  # Torch is not built for sanitizers.
                self.assertTrue(asked_for(path) & {"asan", "tsan"}, path)

    def test_runs_the_fuzz_targets_for_what_they_read(self):
        sources = glob.glob("tests/fuzz/*_fuzz.cc", root_dir=ROOT) + ["tests/fuzz/topology_property.h"]
        self.assertGreater(len(sources), 5)
        for source in sources:
            with open(os.path.join(ROOT, source), encoding="utf-8") as file:
                included = changes.INCLUDE.findall(file.read())
            for include in included:
                for path in product_files(include):
                    self.assertTrue(path.endswith("base/check.h") or "fuzz" in asked_for(path), (source, path))

    def test_gives_each_part_two_days_in_any_seven(self):
        for start in range(400):
            days = [chosen(day=DAY + datetime.timedelta(start + day)) for day in range(7)]
            for part in changes.PARTS:
                self.assertGreaterEqual(sum(part in day for day in days), 2, part)

    def test_has_one_group_by_date(self):
        for day in range(30):
            self.assertIn(chosen(day=DAY + datetime.timedelta(day)), GROUPS)

    def test_has_no_part_by_date_that_has_passed_on_that_day(self):
        nothing = {part: [] for part in changes.PARTS}
        self.assertEqual(set(changes.choose(nothing, set(), DAY, fresh=changes.PARTS)), set(changes.ALWAYS))

    def test_has_what_has_failed_until_it_passes(self):
        for day in range(30):
            self.assertIn("wheel", chosen(failed={"wheel"}, day=DAY + datetime.timedelta(day)))

    def test_has_what_never_passed(self):
        for day in range(30):
            self.assertIn("gpu", chosen(gpu=None, day=DAY + datetime.timedelta(day)))

    def test_judges_each_part_by_what_has_changed_since_that_part_passed(self):
        days = range(7)
        for part, others in (("tsan", "torch_oldest"), ("torch-oldest", "tsan")):
            files = {"tsan": ["runtime/src/job.cc"], "torch-oldest": ["bindings/torch/src/jobs.cc"]}[part]
            runs = [part in chosen(files, day=DAY + datetime.timedelta(day), **{others: []}) for day in days]
            self.assertEqual(runs, [True] * 7)


class Readers(unittest.TestCase):
    TEXTS = {
        "base/include/xylem/base/status.h": "#pragma once\n",
        "base/include/xylem/base/result.h": '#include "xylem/base/status.h"\n',
        "runtime/src/job.cc": '#include "job.h"\n# include "xylem/base/result.h"\n',
        "runtime/src/job.h": "#pragma once\n#include <vector>\n",
        "tools/src/run/job.h": "#pragma once\n",
        "tools/src/run/run.cc": '#include "run/job.h"\n',
        "base/src/info.cc": "#include <xylem/base/version.h>\n",
        "base/version.h.in": "",
        "docs.cc": '// #include "xylem/base/status.h"\n',
    }

    def readers(self, *changed):
        return {path for path in changes.readers_of(changed, self.TEXTS) if path.endswith(".cc")}

    def test_are_found_through_other_headers(self):
        self.assertEqual(self.readers("base/include/xylem/base/status.h"), {"runtime/src/job.cc"})

    def test_are_told_apart_by_the_folder_that_an_include_names(self):
        self.assertEqual(self.readers("tools/src/run/job.h"), {"tools/src/run/run.cc", "runtime/src/job.cc"})
        self.assertEqual(self.readers("runtime/src/job.h"), {"runtime/src/job.cc"})

    def test_of_a_generated_header_are_found_by_its_name(self):
        self.assertEqual(self.readers("base/version.h.in"), {"base/src/info.cc"})

    def test_of_a_removed_header_are_found(self):
        del (texts := dict(self.TEXTS))["runtime/src/job.h"]
        self.assertIn("runtime/src/job.cc", changes.readers_of(["runtime/src/job.h"], texts))

    def test_are_the_source_itself(self):
        self.assertEqual(self.readers("base/src/info.cc"), {"base/src/info.cc"})


class Repository(unittest.TestCase):
    """A repository with tools/test, in which stand-ins replace the programs that build and test."""

    def setUp(self):
        self.place = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.place)
        for path in ("tools/test", "tools/changes.py"):
            os.makedirs(os.path.dirname(self.path(path)), exist_ok=True)
            shutil.copy(os.path.join(ROOT, path), self.path(path))
        for path in ("tools/setup", "tools/wheel", "tests/torch/check", "tests/gpu/check", "tests/wheel/check"):
            self.write(path, "#!/bin/sh\n", executable=True)
        for program in ("cmake", "ctest", "shellcheck", "python3"):
            self.write(f"bin/{program}", self.stand_in(program), executable=True)
        self.write("bin/broken", "")
        self.write("build/torch/newest/bin/python", "", executable=True)
        self.write(".gitignore", "/build/\n/bin/\n")
        self.write("tests/allowed_skips.txt", "gpu.rehearsal  a CUDA compiler\n")
        self.git("init", "--quiet")
        self.commit()

    def stand_in(self, program):
        """Returns a program that fails if its arguments contain a line of the file `broken`."""
        if program == "python3":  # Makes environments, which nobody needs here.
            return f'#!/bin/sh\nexec {sys.executable} -B "$@"\n'
        return textwrap.dedent(f"""\
            #!/bin/bash
            for tree in build build/asan build/tsan; do
              mkdir -p $tree/Testing/Temporary
              : >$tree/Testing/Temporary/LastTest.log
            done
            ! grep -qF -f {self.path("bin/broken")} <<<"{program} $*"
            """)

    def path(self, path):
        return os.path.join(self.place, path)

    def write(self, path, text, executable=False):
        os.makedirs(os.path.dirname(self.path(path)), exist_ok=True)
        with open(self.path(path), "w", encoding="utf-8") as file:
            file.write(text)
        if executable:
            os.chmod(self.path(path), 0o755)

    def call(self, *command, status=0):
        paths = f"{self.path('bin')}:{os.environ['PATH']}"
        environment = os.environ | {"PATH": paths, "GIT_CONFIG_GLOBAL": "/dev/null"}
        done = subprocess.run(command, cwd=self.place, env=environment, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout

    def git(self, *arguments):
        return self.call("git", "-c", "user.name=test", "-c", "user.email=test@test", *arguments).strip()

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message=change")
        return self.git("rev-parse", "HEAD")

    def within(self, function, *arguments):
        """Calls a function of changes.py for this repository."""
        before = os.getcwd()
        os.chdir(self.place)
        try:
            return function(*arguments)
        finally:
            os.chdir(before)

    def parts(self, day):
        return set(self.within(changes.stages_of, day)) - set(changes.ALWAYS)

    def asked_for(self):
        """Returns the parts that are chosen on every day."""
        return set.intersection(*(self.parts(DAY + datetime.timedelta(day)) for day in range(2)))

    def all_pass(self, commit):
        for stage in changes.PARTS + ("tidy",):
            self.within(changes.write_record, stage, commit, False)

    def record(self):
        with open(self.path(".ci/passed"), encoding="utf-8") as file:
            return dict(line.split(maxsplit=1) for line in file.read().splitlines() if not line.startswith("#"))

    def run_stages(self, *stages, broken=(), status=0):
        self.write("bin/broken", "".join(f"{line}\n" for line in broken))
        return self.call("tools/test", "--only", ",".join(stages), status=status)


class Record(Repository):
    """The parts that CI runs, depending on the record of earlier runs."""

    def test_without_a_record_everything_runs(self):
        self.assertEqual(self.asked_for(), set(changes.PARTS))

    def test_with_a_commit_that_the_clone_lacks_everything_runs(self):
        self.all_pass("0123456789012345678901234567890123456789")
        self.assertEqual(self.asked_for(), set(changes.PARTS))

    def test_changes_ask_for_their_parts_until_these_pass_whatever_comes_in_between(self):
        self.all_pass(self.commit())
        self.assertEqual(self.asked_for(), set())
        self.write("runtime/src/job.cc", "")
        self.assertEqual(self.asked_for(), {"tsan"}, "not yet tracked")
        self.commit()
        self.write("docs/page.md", "")
        self.commit()  # CI may have failed for the commit before.
        self.assertEqual(self.asked_for(), {"tsan"})
        self.run_stages("tsan")
        self.assertEqual(self.asked_for(), set())
        os.remove(self.path("runtime/src/job.cc"))
        self.assertEqual(self.asked_for(), {"tsan"}, "removed")

    def test_comments_ask_for_nothing(self):
        self.write("runtime/src/job.cc", "// One.\nint a = 1;  ///< Two.\nint b = 2;  // Three.\n")
        self.all_pass(self.commit())
        self.write("runtime/src/job.cc", "// A.\n\n/// B.\nint a = 1;\nint b = 2;  // Three.\n")
        self.assertEqual(self.asked_for(), set())
        self.write("runtime/src/job.cc", "// NOLINTNEXTLINE\nint a = 1;\nint b = 2;  // Three.\n")
        self.assertEqual(self.asked_for(), {"tsan"})
        self.write("runtime/src/job.cc", "int a = 2;\nint b = 2;  // Three.\n")
        self.assertEqual(self.asked_for(), {"tsan"})
        self.write("runtime/src/job.cc", 'const char* a = R"(\n// One.\n)";\n')
        self.all_pass(self.commit())
        self.write("runtime/src/job.cc", 'const char* a = R"(\n// Two.\n)";\n')
        self.assertEqual(self.asked_for(), {"tsan"}, "a raw string")
        self.write("cmake/Checks.cmake", "# One.\nset(a 1)\n")
        self.all_pass(self.commit())
        self.write("cmake/Checks.cmake", "# Two.\nset(a 1)\n")
        self.assertEqual(self.asked_for(), set())
        self.write("cmake/Checks.cmake", "# Two.\nset(a 2)\n")
        self.assertEqual(self.asked_for(), set(changes.PARTS))

    def test_a_stage_that_fails_is_owed_until_it_passes(self):
        first = self.commit()
        self.all_pass(first)
        self.run_stages("asan", "tsan", broken=["ctest --preset asan"], status=1)
        self.assertEqual(self.record()["asan"], f"{first} failed")
        self.assertEqual(self.asked_for(), {"asan"})
        second = self.commit()
        self.assertEqual(self.asked_for(), {"asan"})
        self.run_stages("asan")
        self.assertEqual(self.record()["asan"], second)
        self.assertEqual(self.asked_for(), set())

    def test_what_passes_with_files_that_no_commit_has_proves_nothing(self):
        first = self.commit()
        self.all_pass(first)
        self.write("runtime/src/job.cc", "")
        self.run_stages("tsan")
        self.assertEqual(self.record()["tsan"], first)
        self.run_stages("tsan", broken=["ctest --preset tsan"], status=1)
        self.run_stages("tsan")
        self.assertEqual(self.record()["tsan"], f"{first} failed")

    def test_what_is_skipped_as_a_whole_proves_nothing(self):
        first = self.commit()
        self.all_pass(first)
        self.write("tests/gpu/check", "#!/bin/sh\necho '[  SKIPPED ] gpu.rehearsal: no compiler'\n", executable=True)
        self.commit()
        self.assertIn("skipped gpu.rehearsal", self.run_stages("gpu"))
        self.assertEqual(self.record()["gpu"], first)

    def test_what_leaves_out_torch_proves_nothing(self):
        first = self.commit()
        self.all_pass(first)
        self.commit()
        os.remove(self.path("build/torch/newest/bin/python"))
        self.run_stages("asan", "tsan", "tidy", "fuzz")
        self.assertEqual([self.record()[stage] == first for stage in ("asan", "tsan", "tidy", "fuzz")],
                         [True, True, True, False])

    def test_ci_runs_what_was_chosen_and_only_a_full_pass_of_tidy_counts(self):
        first = self.commit()
        self.all_pass(first)
        self.write("bin/broken", "-L ^layering$\n")
        self.commit()
        output = self.call("tools/test", "--ci", status=1)
        summary = output[output.index("=== summary"):]
        today = datetime.datetime.now(datetime.timezone.utc).date()
        for stage in changes.ALWAYS + tuple(self.parts(today)):
            self.assertRegex(summary, rf"(?m)^{stage} +{'FAILED' if stage == 'layering' else 'passed'} ")
        self.assertEqual(len([line for line in summary.splitlines() if " busy " in line]),
                         len(changes.ALWAYS) + len(self.parts(today)))
        self.assertEqual(self.record()["tidy"], first)
        self.run_stages("tidy")
        self.assertNotEqual(self.record()["tidy"], first)


class TidySources(Repository):
    """The sources that the stage tidy of --ci checks."""

    def stand_in(self, program):
        if program != "cmake":
            return super().stand_in(program)
        # Makes a database of the commands that the file CMakeLists.txt lists.
        return textwrap.dedent(f"""\
            #!{sys.executable}
            import json, os
            lines = [line.split("|") for line in open("CMakeLists.txt").read().splitlines()]
            os.makedirs("build/tidy", exist_ok=True)
            json.dump([dict(file=os.path.join(os.getcwd(), name), command="c++ " + options.replace("@", os.getcwd()))
                       for name, options in lines], open("build/tidy/compile_commands.json", "w"))
            open("build/tidy/CMakeCache.txt", "w").close()
            """)

    def setUp(self):
        super().setUp()
        self.write("base/a.h", "")
        self.write("base/a.cc", '#include "a.h"\n')
        self.write("base/b.cc", "")
        self.write("CMakeLists.txt", "base/a.cc|-I@/base\nbase/b.cc|-I@/base\n")
        self.all_pass(self.commit())
        self.commit()

    def sources(self):
        self.call("cmake", "--preset", "tidy")
        return self.call("tools/changes.py", "sources").strip()

    def expect(self, *sources):
        expression = self.sources()
        for source in ("base/a.cc", "base/b.cc", "base/c.cc"):
            found = bool(expression) and re.search(expression, os.path.join(os.path.realpath(self.place), source))
            self.assertEqual(bool(found), source in sources, (source, expression))

    def test_are_none_if_nothing_differs(self):
        self.assertEqual(self.sources(), "")

    def test_are_those_that_include_what_differs(self):
        self.write("base/a.h", "int a;\n")
        self.expect("base/a.cc")

    def test_are_those_that_are_compiled_otherwise(self):
        self.write("CMakeLists.txt", "base/a.cc|-I@/base\nbase/b.cc|-I@/base -DB\nbase/c.cc|-I@\n")
        self.write("base/c.cc", "")
        self.expect("base/b.cc", "base/c.cc")

    def test_are_all_if_the_checks_differ(self):
        for path in (".clang-tidy", "base/.clang-tidy", "cmake/XylemChecks.cmake", "tools/setup"):
            self.write(path, "#!/bin/sh\n# other\n", executable=True)
            self.expect("base/a.cc", "base/b.cc", "base/c.cc")
            self.git("stash", "--quiet", "--include-untracked")
        self.assertEqual(self.sources(), "")

    def test_are_all_without_a_full_pass(self):
        os.remove(self.path(".ci/passed"))
        self.expect("base/a.cc", "base/b.cc", "base/c.cc")


if __name__ == "__main__":
    unittest.main()
