"""A run holds its folder: whoever else comes is refused in one line that names it, and changes nothing."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import pytest
import torch
import yaml
from torch_processes import together
from weights import same_weights

from msdc.bench.quickstart import prepare_folder
from msdc.distill import distill
from msdc.distill.sweep import FailedPointsError, run_sweep
from msdc.distill.training.trainer import Trainer
from msdc.errors import InputError
from msdc.files import HOLDER_FILE, held

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked child; this system has no fork")
IN_USE = (
    r"^{folder}: in use by process {pid} on {host} since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC; wait until it ends, or "
)


@contextlib.contextmanager
def live(work, folder: Path):
    """A forked child that does `work`, stands still in its sixth step, after a checkpoint, and is killed at the end."""
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(1)
            step = Trainer._step

            def stand(self, batch):
                while self.position.step == 5:
                    time.sleep(1)
                return step(self, batch)

            Trainer._step = stand
            work()
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    try:
        metrics, holder = folder / "metrics.jsonl", folder / HOLDER_FILE
        while (
            not holder.is_file()
            or not metrics.is_file()
            or (str(child) not in holder.read_text() or metrics.read_bytes().count(b"\n") < 6)
        ):
            assert os.waitpid(child, os.WNOHANG) == (0, 0)
            time.sleep(0.01)
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def state(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(folder: Path, pid: int, attempt) -> None:
    with pytest.raises(InputError) as caught:
        attempt()
    message = IN_USE.format(folder=re.escape(str(folder)), pid=pid, host=re.escape(socket.gethostname()))
    assert re.match(message, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)
    assert "--force" not in str(caught.value)


def short(tree: dict) -> dict:
    return tree | {"stages": tree["stages"][3:]}


def test_nobody_works_beside_a_live_run(tiny_tree, tmp_path):
    """Resumed, started anew, replaced by the quickstart; then killed with SIGKILL: the next one goes on at once."""
    tree, folder = short(tiny_tree), tmp_path / "run"
    with live(lambda: distill(tree, folder), folder) as pid:
        # What it has not yet put into its place.
        part = folder / "stages" / ".0-four.00000000.partial"
        part.write_text("half")
        (tmp_path / "link").symlink_to(folder)
        before = state(folder)
        refused(folder, pid, lambda: distill(tree, folder, True))
        refused(folder, pid, lambda: distill(tree, folder))
        refused(tmp_path / "link", pid, lambda: distill(tree, tmp_path / "link", True))
        refused(folder, pid, lambda: prepare_folder(folder, False))
        refused(folder, pid, lambda: prepare_folder(folder, True))
        assert state(folder) == before
        assert part.is_file()
    assert (folder / HOLDER_FILE).is_file()  # of the killed one: it holds nothing
    distill(tree, folder, True)
    uninterrupted = distill(tree, tmp_path / "whole")
    rows = [[json.loads(line).get("step") for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
            for run_folder in (folder, tmp_path / "whole")]  # fmt: skip
    assert rows[0] == rows[1]
    assert same_weights(folder / "student", uninterrupted.student)
    assert not (folder / HOLDER_FILE).exists()


def test_two_sweeps_of_one_folder(tiny_tree, tmp_path):
    file, folder, point = tmp_path / "tiny.yaml", tmp_path / "sweep", "stages.four.learning_rate=0.001"
    file.write_text(yaml.safe_dump(short(tiny_tree)))
    with live(lambda: run_sweep(str(file), point, folder), folder / point) as pid:
        (folder / ".table.json.00000000.partial").write_text("half")
        before = state(folder)
        refused(folder, pid, lambda: run_sweep(str(file), point, folder))
        refused(folder / point, pid, lambda: distill(str(file), folder / point, True, overrides=[point]))
        assert state(folder) == before
    # A point that a run of its own trains.
    held = live(lambda: distill(str(file), folder / point, True, overrides=[point]), folder / point)
    with held as pid, pytest.raises(FailedPointsError, match=rf"1 of 1 points failed: .*in use by process {pid} on"):
        run_sweep(str(file), point, folder)
    run_sweep(str(file), point, folder)
    assert (folder / "table.md").is_file()


def test_of_two_that_start_together_one_is_told_the_truth(tiny_tree, tmp_path, monkeypatch):
    """Neither finds a folder; the loser hears of the winner, not of options that distill lacks.

    The winner takes its time between its lock and the words on who holds it.
    """
    monkeypatch.setattr("msdc.files.socket.gethostname", lambda: time.sleep(0.2) or "host")
    tree, folder, refusals = short(tiny_tree), tmp_path / "run", []

    def attempt():
        try:
            distill(tree, folder)
        except InputError as error:
            refusals.append(str(error))

    threads = [threading.Thread(target=attempt) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refusals) == 2
    assert (folder / "result.json").is_file()
    for text in refusals:
        assert f"in use by process {os.getpid()} on" in text or "exists already: pass --resume" in text, text


def test_a_refused_run_leaves_no_folder(tiny_tree, tmp_path):
    with pytest.raises(InputError, match="no such model folder"):
        distill(short(tiny_tree) | {"teacher": "./nothing"}, tmp_path / "runs" / "run")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    with pytest.raises(InputError, match="not a run folder"):
        distill(short(tiny_tree), tmp_path / "photos")
    assert [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.jpg"]


JOB = """
import atexit, os, sys
import torch.distributed as dist
from msdc.cli import main
os.chdir(sys.argv[1])
atexit.register(lambda: dist.is_initialized() and print('error: threads are left', file=sys.stderr))
main(['distill', 'tiny.yaml', '-o', 'run'])
"""


def test_the_processes_of_one_job_are_refused_together(tiny_tree, tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(short(tiny_tree)))
    with held(tmp_path / "run"):
        results = together(JOB, str(tmp_path))
        assert all(code for code, _ in results), results
        assert not any("Traceback" in output for _, output in results), results
        errors = {line for _, output in results for line in output.splitlines() if line.startswith("error:")}
        assert len(errors) == 1
        assert f"in use by process {os.getpid()} on" in errors.pop()
        assert [path.name for path in (tmp_path / "run").iterdir() if path.suffix != ".json"] == [".lock"]


def test_the_processes_of_one_job_share_the_folder(tiny_tree, tmp_path):
    """As torchrun starts them."""
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(short(tiny_tree)))
    (tmp_path / "job.py").write_text(JOB)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "job.py", "."]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "threads are left" not in done.stderr


DIFFERENT = """
import os, sys
from msdc.cli import main
os.chdir(sys.argv[1])
rate = 'stages.four.learning_rate=' + ('1e-3', '2e-3')[int(os.environ['RANK'])]
main(['distill', 'tiny.yaml', '-o', 'run', '--set', rate])
"""


def test_processes_with_different_recipes_are_refused_together(tiny_tree, tmp_path):
    """As of two machines with different files: their weights would part in silence."""
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(short(tiny_tree)))
    results = together(DIFFERENT, str(tmp_path))
    assert all(code for code, _ in results), results
    errors = {line for _, output in results for line in output.splitlines() if line.startswith("error:")}
    assert errors == {"error: the processes have different recipes: start all of them with the same file and options"}
