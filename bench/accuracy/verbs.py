"""`msdc evaluate` in Python: one data set (`evaluate`), or several models on several (`evaluate_all`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ParamSpec, Protocol, cast

from pydantic import Field, SkipValidation

from msdc.bench.accuracy import contamination
from msdc.bench.accuracy.document import Evaluation
from msdc.bench.accuracy.evaluation import (
    NO_CORPUS,
    ModelLike,
    card_languages,
    document_of,
    exported,
    load_one,
    load_sets,
    open_evaluated,
    score_set,
    training_text,
)
from msdc.bench.accuracy.mteb_tasks import PREFIX, score_task, select_tasks
from msdc.bench.accuracy.search import SEARCH
from msdc.bench.accuracy.sets import CARD, SUITES, DataSet, find_data_folder
from msdc.bench.accuracy.task import Settings
from msdc.encoders.encoder import Precision
from msdc.encoders.folder import is_bundle
from msdc.errors import InputError
from msdc.export.manifest import locate_bundle, read_manifest
from msdc.options import AnyPath, Names, listed, with_option_keywords

P = ParamSpec("P")


class EvaluateOptions(Settings):
    """What to score, and how; see `evaluate_all`."""

    against: Annotated[ModelLike | None, SkipValidation] = Field(
        default=None, description="also score this model, with a paired test on the same items"
    )
    documents: Annotated[ModelLike | None, SkipValidation] = Field(
        default=None, description="model of the documents' vectors (task retrieval); None: the model that is scored"
    )
    artifacts: Sequence[str | Path] = Field(
        default=(), description="bundles of `model`: the same scores on each of their runtimes, drift, paired test"
    )
    truncate_dims: Sequence[int] = Field(
        default=(), description="also score vectors truncated to their first N dimensions"
    )
    reference: Annotated[ModelLike | None, SkipValidation] = Field(
        default=None, description="float model for drift, teacher for mse; None: the baseline of each model"
    )
    corpora: Sequence[str | Path] = Field(
        default=(), description="training text of the model (files, folders, recipes) to search for test sentences"
    )
    near: float | None = Field(
        default=0.7, description="Jaccard similarity of near duplicates; None searches for exact ones only"
    )
    runtime: str | None = Field(default=None, description="runtime of `model` when it is a bundle")
    precision: Precision | None = Field(
        default=None,
        description="precision of models that are no bundles; None: float next to artifacts and for `card`, "
        "else that of `load_encoder`",
    )
    prompt_name: str | None = Field(default=None, description="prompt of `model` and its artifacts, by name")
    prompt: str | None = Field(default=None, description="the same, as text")
    data: AnyPath | None = Field(default=None, description="data folder; None: that of MSDC_DATA")
    languages: Names = Field(
        default=None, description="comma-separated two-letter codes, or a list; None: those of the set or the model"
    )
    cache: AnyPath | None = Field(default=None, description="folder to keep vectors in")
    mteb_output: AnyPath | None = Field(
        default=None, description="folder for the files that mteb writes; a task whose file is there is not run again"
    )


class Evaluate(Protocol[P]):
    """The type of `evaluate`: the fields of `EvaluateOptions` are its keywords."""

    def __call__(
        self, model: ModelLike, task: str = "sts", path: str | Path | None = None, *args: P.args, **options: P.kwargs
    ) -> dict[str, Any]:
        """See `_evaluate`."""


class EvaluateAll(Protocol[P]):
    """The type of `evaluate_all`."""

    def __call__(
        self, model: ModelLike, tasks: str | Sequence[str | DataSet], *args: P.args, **options: P.kwargs
    ) -> Evaluation:
        """See `_evaluate_all`."""


def _verbs(options: Callable[P, EvaluateOptions]) -> tuple[Evaluate[P], EvaluateAll[P]]:
    verbs = [with_option_keywords(EvaluateOptions, function) for function in (_evaluate, _evaluate_all)]
    return cast(Evaluate[P], verbs[0]), cast(EvaluateAll[P], verbs[1])


def _evaluate(
    model: ModelLike, task: str = "sts", path: str | Path | None = None, *, options: EvaluateOptions
) -> dict[str, Any]:
    """Measure the accuracy of `model` on one data set.

        from msdc.bench import evaluate

        evaluate("msdc-mini", "sts", "pairs.tsv")["spearman"]  # a task and your file
        evaluate("msdc-mini", "sts17/en-en", data="data")  # a named data set

    The data is read before the model is opened. Each distinct text is encoded once. Correlations, accuracies and F1 are
    x 100.

    Args:
        model: a shipped name, a folder, a hub id, a bundle, or anything with `.encode(texts) -> float32 [N, D]`.
        task: a task (with `path`), or the name of one data set such as `graded-pairs`.
        path: file or folder of the task.

    Raises:
        InputError: as `evaluate_all`; a name of several data sets.
        MsdcError: vectors that cannot be scored (NaN, all the same).
    """
    languages = tuple(options.languages) if options.languages else None
    data_set = load_one(task, path, find_data_folder(options.data, languages))
    result: dict[str, Any] = _evaluate_all(model, [data_set], options=options).as_json()["results"][0]
    return result


def _evaluate_all(model: ModelLike, tasks: str | Sequence[str | DataSet], *, options: EvaluateOptions) -> Evaluation:
    """Measure the accuracy of several models on several data sets, as `msdc evaluate`.

        from msdc.bench import evaluate_all

        evaluate_all("msdc-mini", ["sts17", "stsb"], against="my-model", data="data").results

    All data is read before a model runs, so that a bad file stops the evaluation early. Each distinct text is encoded
    once per model.

    Args:
        model: a shipped name, a folder, a hub id, a bundle, or anything with `.encode(texts) -> float32 [N, D]`.
        tasks: sets, suites, `TASK=PATH` (`msdc evaluate --list` shows them), and tasks of mteb (`mteb:STS17`);
            comma-separated or a list.

    Raises:
        InputError: an unknown task or set, absent data, a bad file (with the line), a model that cannot be opened.
        MsdcError: vectors that cannot be scored (NaN, all the same).
    """
    tasks, corpora, artifacts, languages = listed(tasks), options.corpora, options.artifacts, options.languages
    words = [task if isinstance(task, str) else task.name for task in tasks]
    external = select_tasks([word for word in words if word.startswith(PREFIX)], languages)
    precision = options.precision or ("float" if artifacts or CARD in tasks else None)
    opened = partial(open_evaluated, settings=options, taken=set(), cache=options.cache, precision=precision)
    prompted = partial(opened, prompt_name=options.prompt_name, prompt=options.prompt)
    main = prompted(model, options.runtime)
    if CARD in tasks and not languages:
        languages = card_languages(main)
    folder = find_data_folder(options.data, tuple(languages) if languages else None)
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
        scored = [main, *(main.truncated(width) for width in options.truncate_dims)]
        for bundle in artifacts:
            runtimes = read_manifest(locate_bundle(bundle)).runtimes
            scored += [replace(prompted(bundle, name), baseline=main) for name in runtimes]
        if (against := options.against) is not None:
            same = isinstance(against, (str, Path)) and is_bundle(against)
            main.baseline = opened(against, options.runtime if same else None)
            scored.append(main.baseline)
        reference = options.reference
        goal = None if reference is None else main if reference == model else opened(reference, precision="float")

        if options.documents is not None:
            names = {data_set.task.name for data_set, _ in loaded} | {word for word in words if word.startswith(PREFIX)}
            if other := sorted(names - {SEARCH.name}):
                raise InputError(f"`documents` is for the task {SEARCH.name}, not for {other[0]}")
            index = main if options.documents == model else opened(options.documents)
            options = options.model_copy(update={"index": index.store})
        findings, near = None, options.near or None
        if corpora:
            tests = {data_set.name: content.tested for data_set, content in loaded if data_set.task.name != "drift"}
            findings = contamination.check(tests, corpora, near=near, progress=options.progress, data=folder.folder)
        results: list[dict[str, Any]] = []
        for task in external:
            results += score_task(
                task,
                [(data_set.label, data_set.store.model) for data_set in scored],
                options.mteb_output,
                options.progress,
            )
        named = set(words) - SUITES.keys()
        for data_set, content in loaded:
            scores = score_set(data_set, content, scored, goal, options, findings)
            if not scores and len(scored) == 1 and not named.isdisjoint((data_set.name, data_set.name.split("/")[0])):
                raise InputError(f"{data_set.name} compares with another model: name it as `reference`")
            if not scores:
                absent.append({"task": data_set.task.name, "name": data_set.name, "looked_for": "a reference model"})
            results += scores
        for scored_model in [*scored, *([goal] if goal else [])]:
            scored_model.store.save()
        searched: dict[str, Any] = {"checked": False, "reason": reason}
        if findings is not None:
            searched = {"checked": True, "near_at": near, "corpora": findings.corpora}
        return document_of(words, scored, results, absent, listed_sums, searched, options)


evaluate, evaluate_all = _verbs(EvaluateOptions)
