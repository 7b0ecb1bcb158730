"""Measure a model: its accuracy (`evaluate`), its speed and memory on devices, reports of both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

from pydantic import JsonValue

from msdc.bench.accuracy import SupportsEncode
from msdc.bench.accuracy.document import Document

ModelSource = str | Path | SupportsEncode


@overload
def evaluate(
    model: ModelSource, task: str = ..., path: str | Path | None = ..., **options: Any
) -> dict[str, JsonValue]: ...


@overload
def evaluate(model: ModelSource, task: Sequence[str], path: None = ..., **options: Any) -> Document: ...


def evaluate(  # type: ignore[misc]  # the overloads tell a result from a document only
    model: ModelSource,
    task: str | Sequence[str] = "sts",
    path: str | Path | None = None,
    *,
    against: ModelSource | None = None,
    artifacts: Sequence[str | Path] = (),
    truncate_dims: Sequence[int] = (),
    vectors: Sequence[str | Path] = (),
    reference: ModelSource | None = None,
    runtime: str | None = None,
    prompt_name: str | None = None,
    prompt: str | None = None,
    data: str | Path | None = None,
    languages: Sequence[str] | None = None,
    corpora: Sequence[str | Path] = (),
    near: float | None = 0.7,
    cache: Path | None = None,
    resamples: int = 1000,
    seed: int = 0,
    threads: int | None = None,
    progress: bool = False,
    neighbours: int = 4,
    margin: str = "ratio",
    candidates: int = 200_000,
    queries: int = 2_000,
    folds: int = 10,
) -> dict[str, JsonValue] | Document:
    """Measure the accuracy of `model` on one data set, or of several models on several.

        from msdc.bench import evaluate

        evaluate("msdc-mini", "sts", "pairs.tsv")["spearman"]  # a task and your file
        evaluate(encoder, "sts17/en-en", data="data")  # a named data set -> its result
        evaluate("msdc-mini", ["sts17", "stsb"], against="my-model", data="data").results  # a list -> a document

    All data is read before a model runs, so that a bad file stops the evaluation early; each distinct text is encoded
    once per model. Correlations, accuracies and F1 are x 100.

    Args:
        model: a shipped name, a folder, a hub id, a bundle, or anything with `.encode(texts) -> float32 [N, D]`.
        task: a task (with `path`) or a data set such as `graded-pairs` gives one result; a list of sets, suites and
            `TASK=PATH` gives a `Document`, as `msdc evaluate --tasks` (`--list` shows them).
        path: file or folder of the task; `hub:OWNER/NAME[/FILE]` is downloaded.
        against: also score this model, with a paired test on the same items.
        artifacts: bundles of `model`, scored on every runtime they hold.
        truncate_dims: also score vectors truncated to their first N dimensions.
        vectors: folders of vectors of other encoders, scored beside the model: NAME.txt with NAME.npy [N, D].
        reference: float model for drift, teacher for mse; None: the baseline of each model.
        runtime: runtime of `model` when it is a bundle.
        prompt_name: prompt of `model` and its artifacts, by name.
        prompt: the same, as text.
        data: data folder; None: that of MSDC_DATA.
        languages: two-letter codes; None: those of the set or the model.
        corpora: training text (files, folders, recipes) to search for test sentences.
        near: Jaccard similarity of near duplicates; None searches for exact ones only.
        cache: folder to keep vectors in.
        resamples: of bootstrap and permutation; 0 skips intervals and tests.
        seed: of resamples, folds and classifiers.
        threads: of bundles and of the neighbour search; None: all cores.
        progress: show progress bars on a terminal.
        neighbours: k of the margin of bitext mining.
        margin: ratio, distance or absolute.
        candidates: size of XSR's pool.
        queries: number of XSR's queries.
        folds: of SentEval's cross-validation.

    Raises:
        InputError: an unknown task or set, absent data, a bad file (with the line), a model that cannot be opened.
        MsdcError: vectors that cannot be scored (NaN, all the same).
    """
    arguments = dict(locals())
    from msdc.bench.accuracy.evaluation import evaluate_models

    return evaluate_models(**arguments)
