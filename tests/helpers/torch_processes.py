"""Several processes that train together, as torchrun starts them."""

import os
import socket
import subprocess
import sys


def together(script: str, *arguments: str, world: int = 2) -> list[tuple[int, str]]:
    """Run the Python code `script` in `world` processes; returns the exit code and the output of each."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo",
              "PYTHONPATH": os.pathsep.join(sys.path)}  # fmt: skip
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, *arguments], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(world)
    ]  # fmt: skip
    outputs = [one.communicate(timeout=240)[0] for one in processes]
    return [(one.returncode, output) for one, output in zip(processes, outputs, strict=True)]
