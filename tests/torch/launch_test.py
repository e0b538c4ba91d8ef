# SPDX-License-Identifier: Apache-2.0
"""Training under torchrun: DDP and FSDP compared with gloo, two agents, debug mode, and a killed rank.

    python launch_test.py [-k PATTERN]
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
EACH_FORKED = os.path.join(HERE, "each_forked.py")
EXAMPLE = os.path.join(HERE, "..", "..", "examples", "torch", "ddp.py")
PAGE = os.path.join(HERE, "..", "..", "docs", "pytorch.md")
DEADLINE = 200


def torchrun(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", *arguments]


def ended(command: list[str], deadline: float = DEADLINE, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end. If the deadline passes, the command gets SIGTERM, so that torchrun
    ends its ranks, and the test fails.
    """
    done = subprocess.run(
        ["timeout", "--kill-after=60", str(deadline), *command],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=deadline + 120,
    )
    if done.returncode == 124:
        raise AssertionError(f"{' '.join(command)} has not ended in {deadline} s:\n{done.stdout}")
    return done


def run(command: list[str], **environment: str) -> str:
    """Runs a command and returns its output. Fails the test if the exit status is not 0."""
    done = ended(command, **environment)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def run_at_once(commands: list[list[str]], **environment: str) -> str:
    """Runs commands in parallel, and returns the output of all. Fails the test if an exit status is
    not 0.
    """
    programs = [
        subprocess.Popen(
            command,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for command in commands
    ]
    try:
        printed = "".join(program.communicate(timeout=DEADLINE)[0] for program in programs)
    finally:
        for program in programs:
            program.kill()
    if any(program.returncode != 0 for program in programs):
        raise AssertionError(f"ended with {[program.returncode for program in programs]}:\n{printed}")
    return printed


def run_program(program: str, *options: str, **environment: str) -> str:
    """Runs the text of a program, under torchrun if there are options for torchrun."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "program.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(program))
        return run([*(torchrun("--standalone", *options) if options else [sys.executable]), path], **environment)


class Training(unittest.TestCase):
    def losses(self, *options: str, ranks: int, **environment: str) -> list[float]:
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            printed = run(
                torchrun("--standalone", f"--nproc-per-node={ranks}", EXAMPLE, *options,
                         "--steps=60", f"--json={file.name}"),
                **environment,
            )
            self.assertIn(f"all {ranks} ranks have the same parameters", printed)
            return json.load(file)

    def losses_of(self, *trainings: str, ranks: int) -> list[list[float]]:
        """Returns the losses of several trainings. The options of each training are one text.

        In torch 2.15, some runs of gloo end by SIGABRT after the work is done ("terminate called without an active
        exception"; 3 of 14 runs, without xylem). So a run of gloo is valid if it has written its losses. If it has
        not, the runs are repeated, up to three times."""
        for _ in range(3):
            with tempfile.TemporaryDirectory() as directory:
                files = [os.path.join(directory, f"{number}.json") for number in range(len(trainings))]
                printed = self.train_each(trainings, files, ranks)
                written = [open(file, encoding="utf-8").read() if os.path.exists(file) else "" for file in files]
                if all(text.endswith("]") for text in written):
                    return [json.loads(text) for text in written]
        raise AssertionError(f"gloo has not come to an end in three runs, at last:\n{printed}")

    def train_each(self, trainings: tuple[str, ...], files: list[str], ranks: int) -> str:
        """Runs the trainings, and returns their output. Fails the test if a training fails, except
        with gloo.
        """
        runs = [
            word for options, file in zip(trainings, files)
            for word in ("--", *options.split(), "--steps=60", f"--json={file}")
        ]
        # DistributedDataParallel imports this module, which takes seconds.
        start = [EACH_FORKED, "--import", "torch._dynamo", EXAMPLE]
        command = torchrun("--standalone", f"--nproc-per-node={ranks}", *start, *runs)
        done = ended(command, DEADLINE * len(trainings))
        failed = re.findall("^FAILED.*$", done.stdout, re.M)
        if done.returncode != 0 and not failed or any("--backend=gloo" not in line for line in failed):
            raise AssertionError(f"torchrun ended with {done.returncode}:\n{done.stdout}")
        _, *parts = re.split("^RUN .*$", done.stdout, flags=re.M)
        for options, printed in zip(trainings, parts, strict=True):
            if "--backend=gloo" not in options:
                self.assertIn(f"all {ranks} ranks have the same parameters", printed)
        return done.stdout

    def check_alike(
        self, ours: list[float], gloos: list[float], relative: float, steps: int = 60
    ) -> None:
        self.assertLess(ours[-1], ours[0] / 2)
        for a, b in zip(ours[:steps], gloos):
            self.assertAlmostEqual(a, b, delta=relative * max(a, b))

    def test_ddp_and_fsdp_learn_as_with_gloo(self):
        # FSDP is compared with gloo's losses for DDP, since FSDP over gloo diverges in torch 2.7.
        gloos, *ours = self.losses_of("--backend=gloo", "", "--fsdp", ranks=3)
        for losses in ours:
            self.check_alike(losses, gloos, relative=1e-4)

    def test_bfloat16(self):
        # The last bit of sums in bfloat16 depends on the order of additions. Later steps amplify
        # the difference.
        bfloat16 = "--dtype=bfloat16"
        gloos, *ours = self.losses_of(f"--backend=gloo {bfloat16}", bfloat16, f"--fsdp {bfloat16}", ranks=2)
        for losses in ours:
            self.check_alike(losses, gloos, relative=0.03, steps=15)

    def test_one_rank(self):
        self.losses("--fsdp", ranks=1)

    def test_debug_mode(self):
        self.losses(ranks=2, TORCH_DISTRIBUTED_DEBUG="DETAIL")

    def test_two_agents(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        agent = torchrun("--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d",
                         f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=two", EXAMPLE, "--steps=20")
        self.assertIn("all 4 ranks have the same parameters", run_at_once([agent, agent]))


class TwoHosts(unittest.TestCase):
    """Two hosts, made from network namespaces and a virtual cable. They reach each other only over
    TCP.
    """

    ADDRESSES = ("10.97.0.1", "10.97.0.2")

    def setUp(self):
        names = [f"xyt{os.getpid()}{which}" for which in "ab"]
        for name in names:
            self.addCleanup(self.ip, "netns", "del", name)
        made = all(self.ip("netns", "add", name) for name in names) and self.ip(
            "-n", names[0], "link", "add", "wire0", "type", "veth", "peer", "name", "wire0", "netns", names[1]
        )
        if not made:
            # tools/test searches the output for this text, which GoogleTest prints for a skipped
            # test.
            print("[  SKIPPED ] torch.two_hosts: this machine makes no network namespaces")
            self.skipTest("this machine makes no network namespaces")
        for name, address in zip(names, self.ADDRESSES):
            self.assertTrue(self.ip("-n", name, "addr", "add", f"{address}/24", "dev", "wire0"))
            for device in ("wire0", "lo"):
                self.assertTrue(self.ip("-n", name, "link", "set", device, "up"))
        self.names = names

    @staticmethod
    def ip(*arguments: str) -> bool:
        try:
            return subprocess.run(["ip", *arguments], capture_output=True, timeout=DEADLINE).returncode == 0
        except FileNotFoundError:
            return False

    def test_ranks_of_two_hosts_train(self):
        hosts = [
            ["ip", "netns", "exec", name,
             *torchrun("--nnodes=2", f"--node-rank={number}", "--nproc-per-node=2",
                       f"--master-addr={self.ADDRESSES[0]}", "--master-port=29500", EXAMPLE, "--steps=20")]
            for number, name in enumerate(self.names)
        ]
        # Torch resolves the names of addresses, and no name server can be reached.
        printed = run_at_once(hosts, RES_OPTIONS="timeout:1 attempts:1")
        self.assertIn("all 4 ranks have the same parameters", printed)


class Spawned(unittest.TestCase):
    PROGRAM = """
        import torch
        import torch.distributed as dist
        import torch.multiprocessing as processes

        def rank_main(rank, size, path):
            import xylem

            dist.init_process_group(
                "xylem", init_method="file://" + path, rank=rank, world_size=size
            )
            tensor = torch.tensor([rank + 1.0])
            dist.all_reduce(tensor)
            assert tensor.item() == size * (size + 1) / 2
            print(f"rank {rank} is through")
            dist.destroy_process_group()

        if __name__ == "__main__":
            processes.spawn(rank_main, args=(3, __file__ + ".store"), nprocs=3)
    """

    def test_ranks_that_a_program_spawns(self):
        printed = run_program(self.PROGRAM)
        for rank in range(3):
            self.assertIn(f"rank {rank} is through", printed)


class Secrets(unittest.TestCase):
    PROGRAM = """
        import os
        rank = os.environ["RANK"]
        os.environ["XYLEM_SECRET"] = "of-all" if rank == "0" or {same} else "another"
        import torch, datetime
        import torch.distributed as dist
        import xylem

        try:
            dist.init_process_group("xylem", timeout=datetime.timedelta(seconds=20))
            dist.all_reduce(torch.ones(1))
        except dist.DistBackendError as error:
            print(f"rank {{rank}} is refused: {{error}}")
        else:
            print(f"rank {{rank}} is in")
    """

    def printed(self, same: bool) -> str:
        return run_program(self.PROGRAM.format(same=same), "--nproc-per-node=2")

    def test_the_users_own_is_what_counts(self):
        """Other users are refused, although all of them can read the job's derived secret in
        torch's store.
        """
        self.assertEqual(self.printed(same=True).count(" is in"), 2)
        printed = self.printed(same=False)
        self.assertNotIn(" is in", printed)
        self.assertIn("XYLEM_SECRET", printed)


class Restarts(unittest.TestCase):
    PROGRAM = """
        import os, signal, sys, time, torch
        import torch.distributed as dist
        import xylem

        directory = sys.argv[1]
        dist.init_process_group("xylem")
        rank, incarnation = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        checkpoint = os.path.join(directory, "step")
        first = int(open(checkpoint).read()) if os.path.exists(checkpoint) else 0
        for step in range(first, 10):
            if step == 5 and incarnation == 0 and rank == 1:
                with open(os.path.join(directory, "killed"), "w") as file:
                    file.write(str(time.time()))
                os.kill(os.getpid(), signal.SIGKILL)
            tensor = torch.full((1000,), float(step))
            try:
                dist.all_reduce(tensor)
            except dist.DistBackendError as error:
                killed = float(open(os.path.join(directory, "killed")).read())
                with open(os.path.join(directory, f"survivor{rank}"), "w") as file:
                    file.write(f"{time.time() - killed:.2f} {error}")
                raise
            assert tensor[0].item() == step * dist.get_world_size()
            if rank == 0:
                with open(checkpoint + ".new", "w") as file:
                    file.write(str(step + 1))
                os.replace(checkpoint + ".new", checkpoint)
        dist.barrier()
        print(f"rank {rank} is through, incarnation {incarnation}, from step {first}")
        dist.destroy_process_group()
    """

    def test_a_killed_rank_is_named_and_the_job_resumes(self):
        with tempfile.TemporaryDirectory() as directory:
            program = os.path.join(directory, "train.py")
            with open(program, "w", encoding="utf-8") as file:
                file.write(textwrap.dedent(self.PROGRAM))
            # The survivors end by themselves, or the agent ends them when it notices the death.
            printed = run(
                torchrun("--standalone", "--nproc-per-node=3", "--max-restarts=2",
                         "--monitor-interval=4", program, directory)
            )
            for rank in range(3):
                self.assertIn(f"rank {rank} is through, incarnation 1, from step 5", printed)
            for rank in (0, 2):
                with open(os.path.join(directory, f"survivor{rank}"), encoding="utf-8") as file:
                    seconds, error = file.read().split(" ", 1)
                self.assertLess(float(seconds), 3)
                self.assertRegex(error, "rank 1 .* was lost")


class Page(unittest.TestCase):
    """The programs and commands of docs/pytorch.md."""

    def first_program(self) -> str:
        with open(PAGE, encoding="utf-8") as page:
            return re.search(r"## First program\n\n```python\n(.*?)```", page.read(), re.DOTALL)[1]

    def test_the_first_program(self):
        program = self.first_program().replace(
            "dist.destroy_process_group()", "print(sorted(set(tensor.tolist())))\ndist.destroy_process_group()"
        )
        self.assertEqual(run_program(program, "--nproc-per-node=4").count("[6.0]"), 4)
        import torch

        if int(torch.__version__.split(".")[1]) >= 15:  # Earlier versions need the import.
            program = re.sub("import xylem.*\n", "", program)
            self.assertEqual(run_program(program, "--nproc-per-node=2").count("[1.0]"), 2)

    def test_slurm(self):
        """Runs the script of docs/pytorch.md, with stand-ins for Slurm's commands, on a host with
        two ranks.
        """
        with open(PAGE, encoding="utf-8") as page:
            script = re.search(r"```sh\n(#SBATCH .*?)```", page.read(), re.DOTALL)[1]
        self.assertIn("python program.py", script)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            script = script.replace("29500", str(probe.getsockname()[1]))
        program = self.first_program().replace("dist.destroy", "print(tensor.sum().item())\ndist.destroy")
        scontrol = 'echo localhost; echo "and others"'
        srun = '''
            for rank in 0 1; do
              SLURM_PROCID=$rank SLURM_LOCALID=$rank SLURM_NTASKS=2 "$@" & ranks[rank]=$!
            done
            for rank in "${ranks[@]}"; do wait "$rank" || exit 1; done'''
        with tempfile.TemporaryDirectory() as folder:
            files = {"scontrol": scontrol, "srun": srun, "script": script, "python": f'exec {sys.executable} "$@"'}
            for name, text in files.items():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    os.chmod(file.name, 0o700)
                    file.write(f"#!/bin/bash\n{text}\n")
            with open(os.path.join(folder, "program.py"), "w", encoding="utf-8") as file:
                file.write(program)
            printed = run(
                ["bash", "-c", f"cd {folder} && ./script"], PATH=f"{folder}:{os.environ['PATH']}",
                SLURM_JOB_NODELIST="some",
            )
        self.assertEqual(printed.count("1000.0"), 2, printed)

    def test_one_backend_for_each_kind_of_device(self):
        printed = run_program(
            """
            import torch
            import torch.distributed as dist
            import xylem

            def names():
                group = dist.group.WORLD
                return [group._get_backend(torch.device(kind)).name() for kind in ("cpu", "cuda")]

            for backends in ("cpu:xylem,cuda:xylem", "cpu:xylem,cuda:gloo"):
                dist.init_process_group(backends, store=dist.HashStore(), rank=0, world_size=1)
                print(names())
                dist.destroy_process_group()
            """
        )
        self.assertIn("['xylem', 'xylem']\n['xylem', 'gloo']", printed)


class Package(unittest.TestCase):
    def test_another_torch_is_refused(self):
        printed = run_program(
            """
            import torch

            torch.__version__ = "2.99.0+cpu"
            try:
                import xylem
            except ImportError as error:
                print(error)
            """
        )
        self.assertRegex(printed, r"built against torch \S+, and this is torch 2.99.0.*install xylem again")

    def test_nothing_of_cuda_is_linked(self):
        import torch  # noqa: F401
        import xylem._C as native

        needed = run(["readelf", "--dynamic", native.__file__])
        names = re.findall(r"\(NEEDED\).*\[(.*)\]", needed)
        self.assertIn("libtorch_cpu.so", names)
        self.assertFalse([name for name in names if "cuda" in name.lower() or "nccl" in name], names)


class Store(unittest.TestCase):
    PROGRAM = """
        import os
        import time
        import torch.distributed as dist
        import xylem

        def links():
            for name in os.listdir("/proc/self/fd"):
                try:
                    yield os.readlink("/proc/self/fd/" + name)
                except FileNotFoundError:
                    pass  # That of the folder itself.

        def connections():
            # How many connections to torch's store this process has.
            own, port, count = set(links()), f":{int(os.environ['MASTER_PORT']):04X}", 0
            for table in ("tcp", "tcp6"):
                for line in list(open("/proc/self/net/" + table))[1:]:
                    columns = line.split()
                    is_own = f"socket:[{columns[9]}]" in own
                    count += columns[2].endswith(port) and columns[3] == "01" and is_own
            return count

        def wait_for_one():
            # torch may close another connection of its own after init_process_group() has returned.
            end = time.monotonic() + 20
            while connections() != 1:
                assert time.monotonic() < end, connections()

        dist.init_process_group("xylem")
        wait_for_one()
        groups = [dist.new_group() for _ in range(5)]
        wait_for_one()
        print(f"rank {dist.get_rank()}: one connection")
        dist.barrier()
        dist.destroy_process_group()
    """

    def test_a_job_uses_the_connection_to_the_store_that_torch_has(self):
        printed = run_program(self.PROGRAM, "--nproc-per-node=2")
        for rank in range(2):
            self.assertIn(f"rank {rank}: one connection", printed)


if __name__ == "__main__":
    unittest.main(verbosity=2)
