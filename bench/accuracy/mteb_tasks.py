"""Tasks of mteb by name (`mteb:STS17`, `mteb:STS17/en-en`): the library loads their data and scores.

Each subset of a task is a result of the document; with a folder, mteb also writes its own files there
(`results/MODEL/REVISION/TASK.json`) and does not run a task again whose file is there.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msdc.bench.accuracy.sets import CODES
from msdc.bench.accuracy.task import plain
from msdc.bench.accuracy.vectors import TruncatedVectors
from msdc.encoders.encoder import SentenceEncoder, configured
from msdc.errors import InputError, MsdcError
from msdc.extras import require

if TYPE_CHECKING:
    from mteb import AbsTask


PREFIX = "mteb:"
BATCH = 1024  # texts; a model of ours splits them by length


def _near(name: str, task_names: Sequence[str]) -> str:
    """`; similar: STS17, STS16`, or nothing."""
    lower = {task_name.lower(): task_name for task_name in task_names}
    near = difflib.get_close_matches(name.lower(), lower, n=5)
    return (
        f"; similar: {', '.join(lower[task_name] for task_name in near)}"
        if near
        else "; `mteb available-tasks` lists them"
    )


def select_tasks(words: Sequence[str], languages: Sequence[str] | None) -> list[AbsTask]:
    """The tasks that the words name, with their subsets in `languages` (and English) or the named one.

    Raises:
        InputError: mteb is not installed; no such task or subset; a task of pictures or sound.
    """
    if not words:
        return []
    require("mteb", f"--tasks {words[0]}")
    import mteb
    from mteb.get_tasks import _TASKS_REGISTRY

    # ISO 639-3, which has several codes for some languages.
    languages_iso = None
    if languages:
        import langcodes

        codes = {"en", *languages}
        languages_iso = sorted({langcodes.Language.get(code).to_alpha3() for code in codes}
                        | {CODES[code][0] for code in codes & CODES.keys()})  # fmt: skip
    tasks_found = []
    for word in words:
        name, _, subset = word.removeprefix(PREFIX).partition("/")
        if name not in _TASKS_REGISTRY:
            raise InputError(f"mteb has no task {name!r}{_near(name, list(_TASKS_REGISTRY))}")
        task = mteb.get_task(name)
        if set(task.metadata.modalities) != {"text"}:
            raise InputError(f"{word}: a task of {' and '.join(task.metadata.modalities)}, not of text alone")
        subsets = list(task.hf_subsets)
        if subset and subset not in subsets:
            raise InputError(f"mteb:{name} has no subset {subset!r}{_near(subset, subsets)}")
        try:
            if subset:
                task.filter_languages(None, hf_subsets=[subset])
            elif languages_iso is not None:
                task.filter_languages(languages_iso, exclusive_language_filter=True)
        except ValueError as error:
            raise InputError(f"mteb:{name} has nothing in {', '.join(languages or ())}") from error
        tasks_found.append(task)
    return tasks_found


def score_task(
    task: AbsTask, models: Sequence[tuple[str, Any]], folder: str | Path | None, progress: bool
) -> list[dict[str, Any]]:
    """Results of every (label, model) on one task, one per subset and split; `folder` gets mteb's own files.

    Raises:
        MsdcError: the task's data cannot be loaded, or mteb fails.
    """
    import mteb

    from msdc.integrations.mteb import MtebEncoder, model_meta

    results = []
    for label, model in models:
        if isinstance(model, TruncatedVectors) and isinstance(model.store.model, SentenceEncoder):
            model = configured(model.store.model, truncate_dim=model.width)
        is_ours = isinstance(model, SentenceEncoder)
        meta = model_meta(model) if is_ours else mteb.models.ModelMeta.create_empty({"name": f"msdc/{label}"})
        adapter: Any = MtebEncoder(model, meta)
        started = time.perf_counter()
        try:
            (outcome,) = mteb.evaluate(
                adapter, task, encode_kwargs={"batch_size": BATCH}, show_progress_bar=progress,
                cache=None if folder is None else mteb.ResultCache(folder), co2_tracker=False,
                # Nothing identifies a model that is not ours: its earlier results may be another's.
                overwrite_strategy="only-missing" if is_ours else "always",
            ).task_results  # fmt: skip
        except MsdcError:
            raise
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            raise MsdcError(f"mteb:{task.metadata.name}: mteb failed: {type(error).__name__}: {reason}") from error
        seconds = round(time.perf_counter() - started, 3)
        results += [_result(task, label, split, scores, seconds, outcome.mteb_version)
                    for split, subsets in outcome.scores.items() for scores in subsets
                    if scores["hf_subset"] in task.hf_subsets]  # fmt: skip
    return results


def _result(
    task: AbsTask, label: str, split: str, scores: Mapping[str, Any], seconds: float, version: str | None
) -> dict[str, Any]:
    """One subset of one split as a result of the document; `scores` as mteb gives them, the main one x 100 too."""
    about, subset = task.metadata, scores["hf_subset"]
    name = f"mteb:{about.name}" + (f"/{subset}" if subset != "default" else "")
    if len(task.eval_splits) > 1:
        name += f" ({split})"
    fields = {"task": "mteb", "name": name, "model": label, "main": "main_score",
             "main_score": 100.0 * scores["main_score"], "metric": about.main_score, "type": about.type,
             "split": split, "revision": about.revision, "mteb_version": version, "scores": scores,
             "seconds": seconds}  # fmt: skip
    result: dict[str, Any] = plain(fields)
    return result
