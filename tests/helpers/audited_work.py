"""Work whose every write event is a window: what is done, how it is repeated after a kill, what must be there then."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from write_events import Ended, contents, run_until

import msdc.cli
from msdc.distill import distill
from msdc.distill.catalog import parse_recipe
from msdc.distill.recipe import Recipe
from msdc.distill.sweep import sweep as sweep_points
from msdc.text import quickstart


@dataclass(frozen=True)
class Audited:
    """Work in a folder.

    Attributes:
        work: does it; called in a forked child.
        again: does it after a kill: resumes or repeats, as a user would.
        result: what must be equal to the uninterrupted work, by name.
        prepare: makes what is there before.
        kept: asked after every kill, before `again`: what was there before is still there, or the new one is.
    """

    work: Callable[[], object]
    again: Callable[[], object]
    result: Callable[[], object]
    prepare: Callable[[], object] = lambda: None
    kept: Callable[[], object] = lambda: None


def attempt(audited: Audited, root: Path, kill_at: int | None, here: bool = False) -> tuple[Ended, object]:
    """Prepare, work with a kill, work again, in an empty `root`; how the first ended, and the result.

    `here`: in this process, without a kill.
    """
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    audited.prepare()
    if here:
        audited.work()
        return Ended(False, False, ()), audited.result()
    ended = run_until(audited.work, root, kill_at)
    if ended.killed:
        audited.kept()
        second = run_until(audited.again, root)
        assert not second.failed, f"after a kill before {ended.events[-1:]}: cannot go on"
    return ended, audited.result()


def differences(expected: dict, got: dict) -> list[str]:
    """Names that are missing, new, or of other content."""
    return sorted(name for name in expected.keys() | got.keys() if expected.get(name) != got.get(name))


# --- distill -------------------------------------------------------------------------------------------------------


def _tree(root: Path, teacher: Path) -> dict:
    return {
        "name": "tiny",
        "teacher": str(teacher),
        "assistant": {"vocabulary": {"train": 500, "sentences_per_language": 60}, "rows": "cooccurrence",
                      "max_length": 20},
        "student": {"bottleneck": 8, "unit": 1, "repeats": 2, "max_length": 20, "dropout": 0.1},
        "corpora": [{"path": str(quickstart.PARALLEL), "languages": ["de", "es"], "limit": 16}],
        "heldout": {"pairs": 3, "share": 0.1},
        "threads": 1,
        "precision": "float32",
        "cache": str(root / "guides"),
    }  # fmt: skip


def _stage(name: str, **changes) -> dict:
    common = {"name": name, "train": "student", "guide": "teacher", "objective": "multilingual_mse", "batch": 8}
    return {**common, "max_length": 20, "learning_rate": 1e-3, "evaluate_every": 2, **changes}


def patience(root: Path, teacher: Path) -> Recipe:
    """An assistant, a student whose stage stops early (nothing improves after its first validation), a report."""
    stages = [
        _stage("one", train="assistant", steps=2),
        _stage("two", epochs=12, patience=1, learning_rate=1e-12),
    ]
    return parse_recipe({**_tree(root, teacher), "stages": stages, "report": [str(quickstart.GRADED_PAIRS)]}, "tiny")


def named_student(root: Path, teacher: Path, student: Path) -> Recipe:
    """A student by name, without an assistant."""
    tree = {**_tree(root, teacher), "assistant": None, "student": str(student), "stages": [_stage("one", steps=2)]}
    return parse_recipe(tree, "tiny")


def _no_clock(name: Path) -> bool:
    # The card tells how long the run took; the guide's store is a cache.
    return name.parts[0] == "guides" or name.parts[-2:] == ("student", "README.md")


def _no_drawing(name: Path) -> bool:
    return _no_clock(name) or name.name in ("report.html", "table.md")  # with seconds


def one_run(root: Path, recipe: Recipe) -> Audited:
    """A run, resumed with the resume option."""
    folder = root / "run"
    return Audited(
        lambda: distill(recipe, folder), lambda: distill(recipe, folder, resume=True), lambda: contents(root, _no_clock)
    )


def sweep(root: Path, teacher: Path) -> Audited:
    """Two points that share a stage; repeated by the same command."""
    import json

    stages = [_stage("one", train="assistant", steps=2), _stage("two", steps=3)]
    file = root.parent / "sweep.yaml"
    file.write_text(json.dumps({**_tree(root, teacher), "stages": stages}), encoding="utf-8")

    def work() -> None:
        sweep_points(str(file), "stages.two.learning_rate=0.001,0.002", root / "sweep")

    return Audited(work, work, lambda: contents(root, _no_drawing))


# --- the other verbs -----------------------------------------------------------------------------------------------


def verb(*words: object) -> None:
    """The command line in this process, without its handler of errors."""
    msdc.cli.msdc.main([str(word) for word in words], standalone_mode=False)


def _tops(name: Path) -> bool:
    # A killed writer leaves its hidden folder beside the target; the next one removes it when it is a day old.
    return any(part.startswith(".") and part.endswith((".partial", ".old")) for part in name.parts)


def same(root: Path) -> Callable[[], object]:
    """Every file with its content."""
    return lambda: contents(root, _tops)


def makes(root: Path, target: str, *words: object, result: Callable[[Path], Callable[[], object]] = same) -> Audited:
    """A verb that writes `target`: absent or whole at every moment; repeated where it is absent."""
    path = root / target

    def again() -> None:
        if not path.exists():
            verb(*words)

    return Audited(lambda: verb(*words), again, result(root))


def repeats(root: Path, *words: object, result: Callable[[Path], Callable[[], object]] = same) -> Audited:
    """A verb that may be called again, whatever is there."""
    return Audited(lambda: verb(*words), lambda: verb(*words), result(root))


def replaces(root: Path, target: str, before: Callable[[], object], *words: object) -> Audited:
    """A verb with --force over a `target` of before: the old or the new one, whole, at every moment.

    Between two renames the old one has a hidden name, from which the next writer puts it back.
    """
    path = root / target
    whole: list[dict[str, str]] = []

    def prepare() -> None:
        before()
        if not whole:
            whole.append(contents(path))

    def result() -> object:
        if len(whole) == 1:
            whole.append(contents(path))  # of the first call, which nobody kills
        return contents(root, _tops)

    def kept() -> None:
        found = path if os.path.lexists(path) else next(root.glob(f".{target}.*.old"), None)
        assert found is not None, "the old one is gone, and the new one is not there"
        assert contents(found) in whole, "neither the old one nor the new one"

    def work() -> None:
        verb(*words, "--force")

    return Audited(work, work, result, prepare, kept)
