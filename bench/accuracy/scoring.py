"""Score every contender on every data set, with paired tests between a contender and its baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from msdc.bench.accuracy.config import EvaluateConfig
from msdc.bench.accuracy.contamination.check import Findings
from msdc.bench.accuracy.contender import Contender, drift_goal
from msdc.bench.accuracy.evaluate import plain, result_of
from msdc.bench.accuracy.readers.parallel import Parallel
from msdc.bench.accuracy.sets.registry import SUITES, DataSet
from msdc.bench.accuracy.statistics import Items, interval, paired_test
from msdc.bench.accuracy.vector_files import VectorFiles
from msdc.errors import InputError
from msdc.progress import warn

Answers = dict[str, tuple[dict[str, Any], Items | None]]


@dataclass(frozen=True)
class Loaded:
    """The data sets with their data, what a suite did not find, and how many files matched the folder's checksums."""

    sets: tuple[tuple[DataSet, Any], ...]
    absent: tuple[dict[str, str], ...]
    verified: int


def score_all(
    config: EvaluateConfig,
    contenders: Sequence[Contender],
    reference: Contender | None,
    loaded: Loaded,
    findings: Findings | None,
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Results of every data set and contender, and records of the sets that could not be scored.

    Raises:
        InputError: a set named by itself needs a second model, and none is named.
        MsdcError: vectors that cannot be scored.
    """
    results: list[dict[str, Any]] = []
    absent = list(loaded.absent)
    for one, data in loaded.sets:
        answers: Answers = {}
        for contender in contenders:
            answer = _answer(config, contender, reference, one, data)
            if answer is None:
                if len(contenders) == 1 and not _from_suite(config, one):
                    raise InputError(f"{one.name} compares with another model: name it with --reference MODEL")
                continue
            if findings is not None and one.name in findings.by_set:
                answer[0]["contamination"] = findings.by_set[one.name]
                if one.task.name == "tatoeba" and answer[1] is not None:
                    answer[0]["unseen"] = plain(unseen(config, findings, one.name, data, answer[1]))
            answers[contender.label] = answer
        if not answers:
            absent.append({"task": one.task.name, "name": one.name, "looked_for": "--reference MODEL"})
        results += _tested(config, contenders, answers, one.task.main)
    return results, absent


def unseen(config: EvaluateConfig, findings: Findings, name: str, data: Parallel, items: Items) -> dict[str, Any]:
    """Retrieval accuracy x 100 over the pairs of which the training text holds neither side.

    The candidates remain those of the whole set, so that the pool has the same size. Both counts of the check apply:
    exact copies and near duplicates.
    """
    first, second = data.sides.values()
    kept_N = np.array([
        not (findings.is_seen(name, one) or findings.is_seen(name, other))
        for one, other in zip(first, second, strict=True)
    ])  # fmt: skip
    count = int(kept_N.sum())
    if not count:
        return {"accuracy": None, "interval": None, "pairs": 0}
    kept = Items(items.kind, items.values_N[kept_N])
    bounds = interval(kept, config.options.resamples, config.options.seed)
    return {"accuracy": 100.0 * float(kept.values_N.mean()), "interval": bounds, "pairs": count}


def _answer(
    config: EvaluateConfig, contender: Contender, reference: Contender | None, one: DataSet, data: Any
) -> tuple[dict[str, Any], Items | None] | None:
    """Result and per-item answers of one contender.

    None where the task needs a second model and there is none, or where vectors from files lack a text.
    """
    goal = drift_goal(contender, reference) if one.task.needs_reference else None
    if one.task.needs_reference and goal is None:
        return None
    if isinstance(contender.store.model, VectorFiles) and (absent := contender.store.model.missing(data.texts())):
        warn(f"{contender.label}: {one.name} is not scored, {len(absent)} texts have no vector ({absent[0][:60]!r})")
        return None
    options = replace(config.options, reference=goal.store if goal else None)
    result, outcome = result_of(one.task, contender.store, data, options)
    return result | {"name": one.name, "model": contender.label}, outcome.items


def _from_suite(config: EvaluateConfig, one: DataSet) -> bool:
    named = {word for word in config.tasks if word not in SUITES}
    return one.name not in named and one.name.split("/")[0] not in named


def _tested(
    config: EvaluateConfig, contenders: Sequence[Contender], answers: Answers, main: str
) -> Iterator[dict[str, Any]]:
    """Each result, with the paired test against the contender's baseline where both answered item by item."""
    for one in contenders:
        if one.label not in answers:
            continue
        result, items = answers[one.label]
        if one.baseline is not None and one.baseline.label in answers and items is not None:
            other, other_items = answers[one.baseline.label]
            if other_items is not None:
                entry: dict[str, Any] = {"model": one.baseline.label, main: other[main]}
                if config.options.resamples:
                    test = paired_test(items, other_items, config.options.resamples, config.options.seed)
                    entry |= {"difference": test.difference, "interval": [test.low, test.high], "p": test.p}
                result["against"] = plain(entry)
        yield result
