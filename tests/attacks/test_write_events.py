"""A process killed before any of its write events loses nothing: doing the same again ends with the same result.

The default suite kills in the windows that once lost a run, and in a sample of the others; the slow suite in every one.
"""

from __future__ import annotations

import os
import shutil

import audited_work as work
import pytest
import torch
from audited_work import attempt, differences
from write_events import windows

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked child; this system has no fork")


@pytest.fixture(autouse=True)
def _no_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "root" / "cache"))
    torch.set_num_threads(1)


def distill(kind, root, tiny_teacher, tiny_student):
    if kind == "sweep":
        return work.sweep(root, tiny_teacher)
    named = kind == "named student"
    recipe = work.named_student(root, tiny_teacher, tiny_student) if named else work.patience(root, tiny_teacher)
    return work.one_run(root, recipe)


def audit(audited, root, sample=None, where=None):
    """Kill in windows (all, a sample, or those that `where` finds in the list of events); nothing may be lost."""
    # Once in this process: the children inherit what is imported lazily.
    attempt(audited, root, None, here=True)
    whole, expected = attempt(audited, root, None)
    assert not whole.failed and expected
    points = windows(len(whole.events), sample) if where is None else where(list(whole.events))
    lost = []
    for point in points:
        try:
            ended, got = attempt(audited, root, point)
        except AssertionError as error:
            lost.append((point, whole.events[point], str(error)))
            continue
        assert ended.killed, (point, len(whole.events))
        if wrong := differences(expected, got):
            lost.append((point, whole.events[point], wrong[:5]))
    print(f"{len(points)} kills in {len(whole.events)} windows, {len(lost)} lost")
    assert not lost, lost[:10]


def first(events, text, after=""):
    """The first event that holds `text` after the one that holds `after`."""
    start = next(n for n, event in enumerate(events) if after in event)
    return next(n for n, event in enumerate(events) if n > start and text in event)


# What was lost once: before the recipe is written, between the student and result.json, inside a copy into its final
# place (a named student, a stage that a sweep takes over).
ONCE_LOST = {
    "patience": lambda events: [
        first(events, "os.rename .recipe.yaml"),
        first(events, "open .result.json", "os.rename .student"),
        first(events, "remove step-", "os.rename .done.json"),
    ],
    "named student": lambda events: [first(events, "open config.json", "os.mkdir .student-start")],
    "sweep": lambda events: [
        first(events, "link model.safetensors", "os.mkdir .0-one"),
        first(events, "os.rename .0-one", "os.mkdir .0-one"),
    ],
}


@pytest.mark.parametrize("kind", ONCE_LOST)
def test_distill_in_the_windows_that_lost_a_run(kind, tmp_path, tiny_teacher, tiny_student):
    root = tmp_path / "root"
    audit(distill(kind, root, tiny_teacher, tiny_student), root, where=ONCE_LOST[kind])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ONCE_LOST)
def test_distill_in_every_window(kind, tmp_path, tiny_teacher, tiny_student):
    root = tmp_path / "root"
    audit(distill(kind, root, tiny_teacher, tiny_student), root)


# --- the other verbs -----------------------------------------------------------------------------------------------


def cut(model, out, *words):
    return ("compress", "student", model, "-o", out, "--unit", "1", *words)


def over_another(root, model):
    """A student over one of another length."""

    def before():
        work.verb(*cut(model, root / "out", "--max-length", "16"))

    return work.replaces(root, "out", before, *cut(model, root / "out"))


def search(root, model):
    lines = root.parent / "lines.txt"
    lines.write_text("\n".join(f"line number {n}" for n in range(40)))
    return work.repeats(root, "search", lines, "a query", "-m", model)


VERBS = {
    "student": lambda root, model, ask: work.makes(root, "out", *cut(model, root / "out")),
    "student --force": lambda root, model, ask: over_another(root, model),
    "vocabulary": lambda root, model, ask: work.makes(
        root, "out", "compress", "vocabulary", model, "-o", root / "out", "--size", "200"
    ),
    "quantize": lambda root, model, ask: work.makes(
        root, "out", "compress", "quantize", model, "-o", root / "out"
    ),
    "search": lambda root, model, ask: search(root, model),
    "export": lambda root, model, ask: work.makes(
        root, "out", "export", model, "--target", "linux", "--runtime", "onnx", "--no-gates", "-o", root / "out"
    ),
}  # fmt: skip
# Those of seconds: a sample of their windows.
LONG = {"export": 40}


def audit_verb(name, tmp_path, request, sample=None):
    root = tmp_path / "root"
    ask = request.getfixturevalue
    audit(VERBS[name](root, ask("tiny_student"), ask), root, sample)


@pytest.mark.parametrize(("name", "sample"), [("student", 3), ("student --force", 5), ("search", 4)])
def test_a_sample_of_the_windows_of_other_verbs(name, sample, tmp_path, request):
    audit_verb(name, tmp_path, request, sample)


@pytest.mark.slow
@pytest.mark.parametrize("name", VERBS)
def test_other_verbs_in_every_window(name, tmp_path, request):
    audit_verb(name, tmp_path, request, LONG.get(name))


def test_quickstart_again_over_a_finished_run(tmp_path):
    """Killed while --force removes the old run: the folder is the old run or none, never a part of it."""
    from msdc.bench.quickstart import prepare

    root = tmp_path / "root"
    folder = root / "quick"

    def finished():
        for name in ("recipe.yaml", "report.html", "student/model", "stages/0-one/done.json"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(name)

    def kept():
        assert not folder.exists() or len([p for p in folder.rglob("*") if p.is_file()]) == 4

    def again():
        if folder.exists():
            prepare(folder, True)
        shutil.rmtree(folder, ignore_errors=True)
        (root / "end").write_text("x")

    def first():
        prepare(folder, True)
        (root / "end").write_text("x")

    audit(work.Audited(first, again, work.same(root), finished, kept), root)
