"""A process killed before a write event loses nothing: doing the same again ends with the same result.

Killed are the windows that once lost a run and a sample of the others; the slow tests kill in every window.
"""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from write_events import contents, differences, no_clock, recipe_tree, run_until, stage, verb

from msdc.bench.quickstart import prepare_folder
from msdc.distill import distill
from msdc.distill.sweep import run_sweep
from msdc.export.bundle import load_bundle
from msdc.files import HOLDER_FILE, LOCK_FILE

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked child; this system has no fork")


@pytest.fixture(autouse=True)
def _no_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "root" / "cache"))
    torch.set_num_threads(1)


def whole_files(name) -> bool:
    # A killed writer leaves its hidden folder beside the target; the next one removes it when it is a day old. Who held
    # a folder is said there until the next one does.
    return name.name in (LOCK_FILE, HOLDER_FILE) or any(
        part.startswith(".") and part.endswith((".partial", ".old")) for part in name.parts
    )


@dataclass(frozen=True)
class Work:
    """`work` in a folder that `before` fills; `again` as a user repeats it; `after_kill` is asked after every kill."""

    work: Callable[[], object]
    again: Callable[[], object]
    before: Callable[[], object] = lambda: None
    after_kill: Callable[[], object] = lambda: None
    leave: Callable[..., bool] = whole_files

    def audit(self, root, windows: Callable[[list[str]], list[int]]) -> None:
        """Kill in the windows chosen from the write events; each time the result is that of no kill."""

        def start():
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir(parents=True)
            self.before()

        start()
        self.work()  # once here: the children inherit what is imported lazily
        start()
        events = run_until(self.work, root)
        expected = contents(root, self.leave)
        assert expected
        chosen = windows(events)
        print(f"{len(chosen)} kills in {len(events)} windows")
        for number in chosen:
            start()
            run_until(self.work, root, number)
            self.after_kill()
            run_until(self.again, root)
            assert differences(expected, contents(root, self.leave)) == [], (number, events[number])


def first(events, text, after=""):
    """The first event that holds `text` after the one that holds `after`."""
    start = next(n for n, event in enumerate(events) if after in event)
    return next(n for n, event in enumerate(events) if n > start and text in event)


def sample(count):
    """`count` windows, evenly spread, with the first and the last."""
    return lambda events: sorted({round(i * (len(events) - 1) / (count - 1)) for i in range(count)})


def every(events):
    return range(len(events))


ALL = pytest.param(every, id="every window", marks=pytest.mark.slow)
# What was lost once: before the recipe is written, between the student and result.json, after the checkpoint at which
# a stage stopped early, inside a copy into its final place (a named student, a stage that a sweep takes over), before a
# warning of the vocabulary is noted, before the hashes of the untrained student are.
ONCE_LOST = {
    "patience": lambda events: [
        first(events, "os.rename .recipe.yaml"),
        first(events, "open .warnings.json"),
        first(events, "open .result.json", "os.rename .student"),
        first(events, "remove step-", "os.rename .done.json"),
        max(n for n, event in enumerate(events) if "os.rename .done.json" in event),
    ],
    "named student": lambda events: [
        first(events, "open config.json", "os.mkdir .student-start"),
        first(events, "shutil.rmtree .student-start"),
    ],
    "sweep": lambda events: [
        first(events, "link model.safetensors", "os.mkdir .0-one"),
        first(events, "os.rename .0-one", "os.mkdir .0-one"),
    ],
}


@pytest.mark.parametrize("windows", [pytest.param(None, id="once lost"), ALL])
@pytest.mark.parametrize("kind", ONCE_LOST)
def test_distill(kind, windows, tmp_path, tiny_teacher, tiny_student):
    root = tmp_path / "root"
    if kind == "sweep":
        stages = [stage("one", train="assistant", steps=2), stage("two", steps=3)]
        file = tmp_path / "sweep.yaml"
        file.write_text(json.dumps(recipe_tree(root, tiny_teacher, stages=stages, report=[])), encoding="utf-8")

        def work():
            run_sweep(str(file), "stages.two.learning_rate=0.001,0.002", root / "sweep")

        again = work
    else:
        named_student = {
            "assistant": None,
            "student": str(tiny_student),
            "stages": [stage("one", steps=2)],
            "report": [],
        }
        tree = recipe_tree(root, tiny_teacher, **(named_student if kind == "named student" else {}))

        def work():
            distill(tree, root / "run")

        def again():
            distill(tree, root / "run", resume=True)

    Work(work, again, leave=no_clock).audit(root, windows or ONCE_LOST[kind])


@pytest.mark.parametrize("windows", [pytest.param(sample(5), id="sample"), ALL])
def test_a_folder_that_is_replaced_is_the_old_or_the_new_one(windows, tmp_path, tiny_student):
    """With --force, at every moment; between two renames the old one has a hidden name."""
    root = tmp_path / "root"
    out, words = root / "out", ("compress", "student", tiny_student, "-o", root / "out", "--unit", "1")
    complete_states = []

    def before():
        verb(*words, "--max-length", "16")
        complete_states.append(contents(out))

    def work():
        verb(*words, "--force")
        complete_states.append(contents(out))

    def after_kill():
        remaining = out if os.path.lexists(out) else next(root.glob(".out.*.old"), None)
        assert remaining is not None
        assert contents(remaining) in complete_states

    Work(work, work, before, after_kill).audit(root, windows)


@pytest.mark.parametrize("windows", [pytest.param(sample(4), id="sample"), ALL])
def test_search_over_a_killed_index(windows, tmp_path, tiny_student):
    lines, root = tmp_path / "lines.txt", tmp_path / "root"
    lines.write_text("\n".join(f"line number {n}" for n in range(40)))

    def work():
        verb("search", lines, "a query", "-m", tiny_student)

    Work(work, work).audit(root, windows)


@pytest.mark.parametrize("windows", [pytest.param(sample(4), id="sample"), ALL])
def test_evaluate(windows, tmp_path, tiny_student):
    """The result is whole or absent, and the same command measures again."""
    root = tmp_path / "root"
    result, results = root / "result.json", []

    def work():
        verb("evaluate", tiny_student, "--tasks", "graded-pairs", "-o", result, "--force")

    def after_kill():
        results.append(json.loads(result.read_text()) if result.exists() else None)

    def leave(name):
        return whole_files(name) or name.name == result.name  # it has the time of the run

    Work(work, work, lambda: (root / "mine.txt").write_text("kept"), after_kill, leave).audit(root, windows)
    assert json.loads(result.read_text())
    assert None in results


@pytest.mark.parametrize("windows", [ALL])
def test_export(windows, tmp_path, tiny_student):
    """With --force, over another bundle: at every moment one of both opens."""
    root = tmp_path / "root"
    out = root / "out"
    words = ("export", tiny_student, "--target", "linux", "--runtime", "onnx", "--no-gates", "--force", "-o", out)

    def before():
        verb(*words, "--precision", "fp32")

    def work():
        verb(*words)

    def after_kill():
        remaining = out if os.path.lexists(out) else next(root.glob(".out.*.old"))
        assert load_bundle(remaining, "onnx").encode(["a text"]).shape == (1, 32)

    Work(work, work, before, after_kill).audit(root, windows)


def test_quickstart_again_over_a_finished_run(tmp_path):
    """Killed while --force removes the old run: the folder is the old run or none, never a part of it."""
    root = tmp_path / "root"
    folder = root / "quick"

    def finished():
        for name in ("recipe.yaml", "environment.json", "report.html", "student/model", "stages/0-one/done.json"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(name)

    def after_kill():
        there = [path for path in folder.rglob("*") if path.is_file() and not whole_files(path.relative_to(folder))]
        assert len(there) in (0, 5)

    def work():
        if folder.exists():
            prepare_folder(folder, True)
        (root / "end").write_text("x")

    Work(work, work, finished, after_kill).audit(root, every)
