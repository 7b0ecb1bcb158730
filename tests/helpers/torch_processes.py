"""Several processes that train together, with the environment that torchrun gives them."""

import atexit
import multiprocessing
import multiprocessing.context
import multiprocessing.forkserver
import os
import socket
import sys
import tempfile
from pathlib import Path

import pytest

# sentence_transformers reads stock teachers; its import takes longer than the rest.
PRELOADED = ["training_processes", "msdc.distill.run", "msdc.distill.sweep", "sentence_transformers",
             "transformers.models.bert.modeling_bert"]  # fmt: skip
ENDED_S = 240  # only processes that hang take so long


def forkserver() -> multiprocessing.context.ForkServerContext:
    """Processes that start with PyTorch, msdc and sentence-transformers imported, but inherit nothing of the tests.

    What tests left in their process (thread pools, sessions to collect) hangs a forked child.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with pytest.MonkeyPatch.context() as patch:
        # The server of Python 3.11 ignores the path that it is given, and modules that it does not find.
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        multiprocessing.forkserver.ensure_running()
    return context


def free_port() -> int:
    """A port of loopback that nothing uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _execute(script: str, arguments: list[str], environment: dict[str, str], output: Path) -> None:
    os.environ.clear()
    os.environ.update(environment)
    with open(output, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = ["-c", *arguments]
    try:
        exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
    finally:
        atexit._run_exitfuncs()  # multiprocessing's processes end without


def together(script: str, *arguments: str, world: int = 2) -> list[tuple[int, str]]:
    """Run the Python code `script` in `world` processes; returns the exit code and the output of each."""
    environment = {**os.environ, "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
                   "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, str(rank)) for rank in range(world)]
        ranks = [environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)]
        processes = [
            forkserver().Process(target=_execute, args=(script, list(arguments), rank, output))
            for rank, output in zip(ranks, outputs, strict=True)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(ENDED_S)
            process.kill()
        return [
            (process.exitcode, output.read_text(encoding="utf-8"))
            for process, output in zip(processes, outputs, strict=True)
        ]
