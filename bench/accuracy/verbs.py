"""`msdc evaluate` in Python: one data set (`evaluate`), or several models on several (`evaluate_all`)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from msdc.arguments import checked
from msdc.bench.accuracy import contamination
from msdc.bench.accuracy.document import Evaluation
from msdc.bench.accuracy.evaluation import (
    NO_CORPUS,
    ModelLike,
    card_languages,
    document_of,
    exported,
    is_bundle,
    load_one,
    load_sets,
    open_evaluated,
    score_set,
    training_text,
)
from msdc.bench.accuracy.mteb_tasks import PREFIX, score_task, select_tasks
from msdc.bench.accuracy.sets import CARD, SUITES, DataSet, find_data_folder
from msdc.bench.accuracy.statistics import RESAMPLES
from msdc.bench.accuracy.task import Margin, Settings
from msdc.errors import InputError
from msdc.export.manifest import read_manifest


@checked
def evaluate(
    model: ModelLike, task: str = "sts", path: str | Path | None = None, *, margin: Margin = "ratio", **options: Any
) -> dict[str, Any]:
    """Measure the accuracy of `model` on one data set.

        from msdc.bench import evaluate

        evaluate("msdc-mini", "sts", "pairs.tsv")["spearman"]  # a task and your file
        evaluate("msdc-mini", "sts17/en-en", data="data")  # a named data set

    The data is read before the model is opened. Each distinct text is encoded once. Correlations, accuracies and F1 are
    x 100.

    Args:
        model: as for `evaluate_all`.
        task: a task (with `path`), or the name of one data set such as `graded-pairs`.
        path: file or folder of the task.
        margin: of bitext mining: ratio, distance or absolute.
        options: all others of `evaluate_all`, such as `reference`, `data` and `resamples`.

    Raises:
        InputError: as `evaluate_all`; a name of several data sets.
        MsdcError: vectors that cannot be scored (NaN, all the same).
    """
    one = load_one(task, path, find_data_folder(options.get("data"), options.get("languages")))
    result: dict[str, Any] = evaluate_all(model, [one], margin=margin, **options).as_json()["results"][0]
    return result


@checked
def evaluate_all(
    model: ModelLike,
    tasks: Sequence[str | DataSet],
    *,
    against: ModelLike | None = None,
    artifacts: Sequence[str | Path] = (),
    truncate_dims: Sequence[int] = (),
    reference: ModelLike | None = None,
    corpora: Sequence[str | Path] = (),
    near: float | None = 0.7,
    runtime: str | None = None,
    prompt_name: str | None = None,
    prompt: str | None = None,
    data: str | Path | None = None,
    languages: Sequence[str] | None = None,
    cache: Path | None = None,
    mteb_output: Path | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    threads: int | None = None,
    neighbours: int = 4,
    margin: Margin = "ratio",
    candidates: int = 200_000,
    queries: int = 2_000,
    folds: int = 10,
    progress: bool = False,
) -> Evaluation:
    """Measure the accuracy of several models on several data sets, as `msdc evaluate`.

        from msdc.bench import evaluate_all

        evaluate_all("msdc-mini", ["sts17", "stsb"], against="my-model", data="data").results

    All data is read before a model runs, so that a bad file stops the evaluation early. Each distinct text is encoded
    once per model.

    Args:
        model: a shipped name, a folder, a hub id, a bundle, or anything with `.encode(texts) -> float32 [N, D]`.
        tasks: sets, suites, `TASK=PATH` (`msdc evaluate --list` shows them), and tasks of mteb (`mteb:STS17`).
        against: also score this model, with a paired test on the same items.
        artifacts: bundles of `model`, scored on every runtime they contain.
        truncate_dims: also score vectors truncated to their first N dimensions.
        reference: float model for drift, teacher for mse; None: the baseline of each model.
        corpora: training text (files, folders, recipes) to search for test sentences.
        near: Jaccard similarity of near duplicates; None searches for exact ones only.
        runtime: runtime of `model` when it is a bundle.
        prompt_name: prompt of `model` and its artifacts, by name.
        prompt: the same, as text.
        data: data folder; None: that of MSDC_DATA.
        languages: two-letter codes; None: those of the set or the model.
        cache: folder to keep vectors in.
        mteb_output: folder for the files that mteb writes; a task of mteb whose file is there is not run again.
        resamples: of bootstrap and permutation; 0 skips intervals and tests.
        seed: of both.
        threads: of bundles and of the neighbour search.
        neighbours: k of the margin of bitext mining.
        margin: ratio, distance or absolute.
        candidates: sentences in XSR's pool.
        queries: of XSR.
        folds: of SentEval's cross-validation.
        progress: show progress.

    Raises:
        InputError: an unknown task or set, absent data, a bad file (with the line), a model that cannot be opened.
        MsdcError: vectors that cannot be scored (NaN, all the same).
    """
    own = Settings(resamples, seed, threads, progress, neighbours, margin, candidates, queries, folds)
    words = [task if isinstance(task, str) else task.name for task in tasks]
    external = select_tasks([word for word in words if word.startswith(PREFIX)], languages)
    opened = partial(open_evaluated, settings=own, taken=set(), cache=cache)
    prompted = partial(opened, prompt_name=prompt_name, prompt=prompt)
    main = prompted(model, runtime)
    if CARD in tasks and not languages:
        languages = card_languages(main)
    folder = find_data_folder(data, tuple(languages) if languages else None)
    sets = [task for task, word in zip(tasks, words, strict=True) if not word.startswith(PREFIX)]
    loaded, absent = load_sets(sets, folder) if sets or not external else ([], [])
    listed_sums = folder.check_sums(source for _, content in loaded for source in content.sources)

    reason = NO_CORPUS
    with contextlib.ExitStack() as temporary:
        if CARD in tasks:
            if not corpora:
                corpora, reason = training_text(main, folder.folder)
            if not artifacts and main.manifest is None and isinstance(model, (str, Path)):
                artifacts = (temporary.enter_context(exported(model)),)
        scored = [main, *(main.truncated(width) for width in truncate_dims)]
        for bundle in artifacts:
            scored += [replace(prompted(bundle, name), baseline=main) for name in read_manifest(bundle).runtimes]
        if against is not None:
            same = isinstance(against, (str, Path)) and is_bundle(against)
            main.baseline = opened(against, runtime if same else None)
            scored.append(main.baseline)
        goal = None if reference is None else main if reference == model else opened(reference)

        findings = None
        if corpora:
            tests = {one.name: content.tested for one, content in loaded if one.task.name != "drift"}
            findings = contamination.check(tests, corpora, near=near or None, progress=progress, data=folder.folder)
        results: list[dict[str, Any]] = []
        for task in external:
            results += score_task(task, scored, mteb_output, progress)
        named = set(words) - SUITES.keys()
        for one, content in loaded:
            found = score_set(one, content, scored, goal, own, findings)
            if not found and len(scored) == 1 and not named.isdisjoint((one.name, one.name.split("/")[0])):
                raise InputError(f"{one.name} compares with another model: name it as `reference`")
            if not found:
                absent.append({"task": one.task.name, "name": one.name, "looked_for": "a reference model"})
            results += found
        for each in [*scored, *([goal] if goal else [])]:
            each.store.save()
        searched: dict[str, Any] = {"checked": False, "reason": reason}
        if findings is not None:
            searched = {"checked": True, "near_at": near or None, "corpora": findings.corpora}
        return document_of(words, scored, results, absent, listed_sums, searched, own)
