"""A process killed before any of its write events loses nothing: doing the same again ends with the same result.

The default suite kills in the windows that once lost a run, and in a sample of the others; the slow suite in every one.
"""

from __future__ import annotations

import os

import audited_work as work
import pytest
import torch
from audited_work import attempt, differences
from write_events import windows

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked child; this system has no fork")


@pytest.fixture(autouse=True)
def _no_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    torch.set_num_threads(1)


def distill(kind, root, tiny_teacher, tiny_student):
    if kind == "sweep":
        return work.sweep(root, tiny_teacher)
    named = kind == "named student"
    recipe = work.named_student(root, tiny_teacher, tiny_student) if named else work.patience(root, tiny_teacher)
    return work.one_run(root, recipe)


def audit(audited, root, sample=None, where=None):
    """Kill in windows (all, a sample, or those that `where` finds in the list of events); what was lost."""
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
        first(events, "mkstemp .result.json", "os.rename .student"),
        first(events, "remove step-", "os.rename .done.json"),
    ],
    "named student": lambda events: [first(events, "open config.json", "mkdtemp .student-start")],
    "sweep": lambda events: [
        first(events, "link model.safetensors", "mkdtemp .0-one"),
        first(events, "os.rename .0-one", "mkdtemp .0-one"),
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
