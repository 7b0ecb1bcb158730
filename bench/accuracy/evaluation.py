"""Models x data sets -> results: the work of `msdc.bench.evaluate`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import JsonValue

from msdc.bench.accuracy.contamination import Findings, check
from msdc.bench.accuracy.document import FORMAT, KIND, Document, read_document
from msdc.bench.accuracy.models import (
    NO_CORPUS,
    EvaluatedModel,
    card_languages,
    exported,
    is_bundle,
    open_evaluated,
    training_text,
)
from msdc.bench.accuracy.paper_tables import paper_tables
from msdc.bench.accuracy.parallel import Parallel
from msdc.bench.accuracy.sets import CARD, SETS, SUITES, DataSet, find_data_folder, find_task, read_path, select_sets
from msdc.bench.accuracy.statistics import Items, interval, paired_test
from msdc.bench.accuracy.task import Data, Settings, plain
from msdc.bench.accuracy.vectors import VectorFiles
from msdc.errors import InputError
from msdc.export.manifest import read_manifest
from msdc.machine import versions
from msdc.progress import warn
from msdc.text.duplicates import normalise

if TYPE_CHECKING:
    from msdc.bench import ModelSource


PACKAGES = ("msdc", "numpy", "scipy", "scikit-learn", "faiss-cpu", "torch", "executorch", "onnxruntime")


def evaluate_models(
    *,
    model: ModelSource,
    task: str | Sequence[str],
    path: str | Path | None,
    against: ModelSource | None,
    artifacts: Sequence[str | Path],
    truncate_dims: Sequence[int],
    vectors: Sequence[str | Path],
    reference: ModelSource | None,
    runtime: str | None,
    prompt_name: str | None,
    prompt: str | None,
    data: str | Path | None,
    languages: Sequence[str] | None,
    corpora: Sequence[str | Path],
    near: float | None,
    cache: Path | None,
    **settings: Any,
) -> dict[str, JsonValue] | Document:
    """`msdc.bench.evaluate`, which documents the arguments; `settings` are the fields of `Settings`."""
    own = Settings(**settings)
    words = (task,) if isinstance(task, str) else tuple(task)
    if not words:
        raise InputError(f"no tasks; give sets ({', '.join(SETS)}) or suites ({', '.join(SUITES)})")
    opened = partial(open_evaluated, settings=own, taken=set(), cache=cache)
    prompted = partial(opened, prompt_name=prompt_name, prompt=prompt)
    main = prompted(model, runtime)
    if CARD in words and not languages:
        languages = card_languages(main)

    folder = find_data_folder(data, tuple(languages) if languages else None)
    absent: list[dict[str, str]] = []
    if path is not None:
        read = partial(read_path, find_task(words[0]), path)
        content = read()
        loaded = [(DataSet(content.name, find_task(words[0]), read), content)]
    else:
        found, absent = select_sets(words, folder)
        if isinstance(task, str) and len(found) != 1:
            names = ", ".join(one.name for one in found)
            raise InputError(f"{task} is {len(found)} data sets; name one of: {names}")
        loaded = [(one, one.load()) for one in found]
    listed_sums = folder.check_sums(source for _, content in loaded for source in content.sources)

    no_corpora = NO_CORPUS
    with contextlib.ExitStack() as temporary:
        if CARD in words:
            if not corpora:
                corpora, no_corpora = training_text(main, folder.folder)
            if not artifacts and main.manifest is None and isinstance(model, (str, Path)):
                artifacts = (temporary.enter_context(exported(model)),)
        models = [main, *(main.truncated(width) for width in truncate_dims)]
        for bundle in artifacts:
            models += [replace(prompted(bundle, name), baseline=main) for name in read_manifest(bundle).runtimes]
        models += [opened(VectorFiles(one)) for one in vectors]
        if against is not None:
            main.baseline = opened(
                against, runtime if isinstance(against, (str, Path)) and is_bundle(against) else None
            )
            models.append(main.baseline)
        goal = None if reference is None else main if reference == model else opened(reference)

        findings = None
        if corpora:
            tests = {one.name: content.tested for one, content in loaded if one.task.name != "drift"}
            findings = check(tests, corpora, near=near or None, progress=own.progress, data=folder.folder)
        elif not isinstance(task, str):
            warn(f"contamination: not checked ({no_corpora}); name the model's training corpora with --corpus")

        results: list[dict[str, Any]] = []
        named = {word for word in words if word not in SUITES}
        for one, content in loaded:
            scored = _score_set(one, content, models, goal, own, findings)
            asked = len(models) == 1 and not named.isdisjoint((one.name, one.name.split("/")[0]))
            if not scored and (asked or isinstance(task, str)):
                raise InputError(f"{one.name} compares with another model: name it with --reference MODEL")
            if not scored:
                absent.append({"task": one.task.name, "name": one.name, "looked_for": "--reference MODEL"})
            results += scored
        for one_model in [*models, *([goal] if goal else [])]:
            one_model.store.save()
        if isinstance(task, str):
            return results[0]
        by_model = {one.label: {r["name"]: r for r in results if r["model"] == one.label} for one in models}
        searched: dict[str, Any] = {"checked": False, "reason": no_corpora}
        if findings is not None:
            searched = {"checked": True, "near_at": near or None, "corpora": findings.corpora}
        return read_document({
            "format": FORMAT,
            "kind": KIND,
            "tasks": list(words),
            "models": [one.record() for one in models],
            "results": results,
            "tables": paper_tables(words, by_model),
            "absent": absent,
            "files_with_listed_sums": listed_sums,
            "contamination": searched,
            "settings": {key: getattr(own, key) for key in ("resamples", "seed", "neighbours", "margin")},
            "versions": versions(PACKAGES),
        })  # fmt: skip


def _score_set(
    one: DataSet,
    content: Data,
    models: Sequence[EvaluatedModel],
    reference: EvaluatedModel | None,
    settings: Settings,
    findings: Findings | None,
) -> list[dict[str, Any]]:
    """Results of every model on one data set, with paired tests against their baselines.

    A model is left out where the task compares with a second model and there is none, or where vectors from files lack
    a text.
    """
    task = one.task
    answers: dict[str, tuple[dict[str, Any], Items | None]] = {}
    for model in models:
        goal = model.drift_goal(reference) if task.needs_reference else None
        if task.needs_reference and goal is None:
            continue
        encoder = model.store.model
        if isinstance(encoder, VectorFiles) and (missing := encoder.missing(content.texts())):
            warn(f"{model.label}: {one.name} is not scored, {len(missing)} texts have no vector ({missing[0][:60]!r})")
            continue
        started = time.perf_counter()
        outcome = task.score(model.store, content.content, replace(settings, reference=goal.store if goal else None))
        result: dict[str, Any] = {"task": task.name, "name": one.name, "model": model.label, "main": task.main}
        result |= outcome.scores | {"data": [source.as_dict() for source in content.sources]}
        if content.notes:
            result["notes"] = list(content.notes)
        result["seconds"] = round(time.perf_counter() - started, 3)
        if findings is not None and one.name in findings.by_set:
            result["contamination"] = findings.by_set[one.name]
            if task.name == "tatoeba" and outcome.items is not None:
                result["unseen"] = unseen(findings, one.name, content.content, outcome.items, settings)
        answers[model.label] = result, outcome.items
    for model in models:
        baseline = model.baseline.label if model.baseline is not None else None
        if model.label not in answers or baseline not in answers:
            continue
        (result, items), (other, other_items) = answers[model.label], answers[baseline]
        if items is not None and other_items is not None:
            result["against"] = {"model": baseline, task.main: other[task.main]}
            if settings.resamples:
                test = paired_test(items, other_items, settings.resamples, settings.seed)
                result["against"] |= {"difference": test.difference, "interval": [test.low, test.high], "p": test.p}
    return [plain(result) for result, _ in answers.values()]


def unseen(findings: Findings, name: str, data: Parallel, items: Items, settings: Settings) -> dict[str, Any]:
    """Retrieval accuracy x 100 over the pairs of which the training text holds neither side.

    The candidates remain those of the whole set, so that the pool has the same size. Both counts of the check apply:
    exact copies and near duplicates.
    """
    rows = zip(*data.two_sides(), strict=True)
    kept_N = np.array([findings.seen[name].isdisjoint(map(normalise, row)) for row in rows])
    count = int(kept_N.sum())
    if not count:
        return {"accuracy": None, "interval": None, "pairs": 0}
    kept = Items(items.kind, items.values_N[kept_N])
    bounds = interval(kept, settings.resamples, settings.seed)
    return {"accuracy": 100.0 * float(kept.values_N.mean()), "interval": bounds, "pairs": count}
