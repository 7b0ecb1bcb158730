"""Measure a model: its accuracy (`evaluate`), its speed and memory on devices (`bench`), reports of both."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from msdc.errors import GateError, InconclusiveError, InputError, MsdcError
from msdc.progress import say, warn

if TYPE_CHECKING:
    from pydantic import JsonValue

    from msdc.bench.accuracy import SupportsEncode
    from msdc.bench.accuracy.document import Evaluation
    from msdc.bench.report.model import Report
    from msdc.bench.result import BenchFile

    ModelLike = str | Path | SupportsEncode


@overload
def evaluate(
    model: ModelLike, task: str = ..., path: str | Path | None = ..., **options: Any
) -> dict[str, JsonValue]: ...


@overload
def evaluate(model: ModelLike, task: Sequence[str], path: None = ..., **options: Any) -> Evaluation: ...


def evaluate(  # type: ignore[misc]  # the overloads tell a result from a document only
    model: ModelLike,
    task: str | Sequence[str] = "sts",
    path: str | Path | None = None,
    *,
    against: ModelLike | None = None,
    artifacts: Sequence[str | Path] = (),
    truncate_dims: Sequence[int] = (),
    vectors: Sequence[str | Path] = (),
    reference: ModelLike | None = None,
    runtime: str | None = None,
    prompt_name: str | None = None,
    prompt: str | None = None,
    data: str | Path | None = None,
    languages: Sequence[str] | None = None,
    corpora: Sequence[str | Path] = (),
    near: float | None = 0.7,
    cache: Path | None = None,
    **settings: Any,
) -> dict[str, JsonValue] | Evaluation:
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
            `TASK=PATH` gives a `Evaluation`, as `msdc evaluate --tasks` (`--list` shows them).
        path: file or folder of the task.
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
        settings: fields of `msdc.bench.accuracy.task.Settings`: resamples, seed, threads, progress, ...

    Raises:
        InputError: an unknown task or set, absent data, a bad file (with the line), a model that cannot be opened.
        MsdcError: vectors that cannot be scored (NaN, all the same).
    """
    from msdc.bench.accuracy import contamination, evaluation
    from msdc.bench.accuracy.sets import CARD, SUITES, find_data_folder
    from msdc.bench.accuracy.task import Settings
    from msdc.bench.accuracy.vectors import VectorFiles
    from msdc.export.manifest import read_manifest

    own = Settings(**settings)
    words = (task,) if isinstance(task, str) else tuple(task)
    opened = partial(evaluation.open_evaluated, settings=own, taken=set(), cache=cache)
    prompted = partial(opened, prompt_name=prompt_name, prompt=prompt)
    main = prompted(model, runtime)
    if CARD in words and not languages:
        languages = evaluation.card_languages(main)
    folder = find_data_folder(data, tuple(languages) if languages else None)
    loaded, absent = evaluation.load_sets(task, path, folder)
    listed_sums = folder.check_sums(source for _, content in loaded for source in content.sources)

    reason = evaluation.NO_CORPUS
    with contextlib.ExitStack() as temporary:
        if CARD in words:
            if not corpora:
                corpora, reason = evaluation.training_text(main, folder.folder)
            if not artifacts and main.manifest is None and isinstance(model, (str, Path)):
                artifacts = (temporary.enter_context(evaluation.exported(model)),)
        scored = [main, *(main.truncated(width) for width in truncate_dims)]
        for bundle in artifacts:
            scored += [replace(prompted(bundle, name), baseline=main) for name in read_manifest(bundle).runtimes]
        scored += [opened(VectorFiles(one)) for one in vectors]
        if against is not None:
            same = isinstance(against, (str, Path)) and evaluation.is_bundle(against)
            main.baseline = opened(against, runtime if same else None)
            scored.append(main.baseline)
        goal = None if reference is None else main if reference == model else opened(reference)

        findings = None
        if corpora:
            tests = {one.name: content.tested for one, content in loaded if one.task.name != "drift"}
            findings = contamination.check(tests, corpora, near=near or None, progress=own.progress, data=folder.folder)
        elif not isinstance(task, str):
            warn(f"contamination: not checked ({reason}); name the model's training corpora with --corpus")
        results = []
        named = {word for word in words if word not in SUITES}
        for one, content in loaded:
            found = evaluation.score_set(one, content, scored, goal, own, findings)
            asked = len(scored) == 1 and not named.isdisjoint((one.name, one.name.split("/")[0]))
            if not found and (asked or isinstance(task, str)):
                raise InputError(f"{one.name} compares with another model: name it with --reference MODEL")
            if not found:
                absent.append({"task": one.task.name, "name": one.name, "looked_for": "--reference MODEL"})
            results += found
        for each in [*scored, *([goal] if goal else [])]:
            each.store.save()
        if isinstance(task, str):
            return results[0]
        searched: dict[str, Any] = {"checked": False, "reason": reason}
        if findings is not None:
            searched = {"checked": True, "near_at": near or None, "corpora": findings.corpora}
        return evaluation.document_of(words, scored, results, absent, listed_sums, searched, own)


@dataclass(frozen=True)
class BenchResult:
    """What `bench` measured, its report, one line per device that failed, per gate that is missed, and per timing that
    cannot be told from the machine's noise.
    """

    results: BenchFile
    report: Report | None
    failures: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    inconclusive: tuple[str, ...] = ()

    def raise_failures(self) -> None:
        """Raise `MsdcError` where a device failed, `GateError` where parity or a timing misses its gate,
        `InconclusiveError` where a timing may miss it."""
        for error, lines in ((MsdcError, self.failures), (GateError, self.missed)):
            if lines:
                raise error("; ".join(lines))
        if self.inconclusive:
            raise InconclusiveError("inconclusive, measured twice: " + "; ".join(self.inconclusive))


def bench(
    bundle: str | Path | None = None,
    *,
    device: str = "host",
    runtime: str | None = None,
    tasks: str | None = None,
    compare: str | Path | None = None,
    gate: float | None = None,
    output: str | Path | None = None,
    json_file: str | Path | None = None,
    force: bool = False,
    **settings: Any,
) -> BenchResult:
    """Measure a bundle on devices; write the result and the report that are asked for.

        from msdc.bench import bench

        done = bench("msdc-mini-android", device="host,adb", lengths=(8, 32), runs=20)
        for run in done.results.runs:
            print(run.title, run.load, [timing.p50 for timing in run.latency])

    Args:
        bundle: a folder of `msdc export`; None: the shipped msdc-mini, exported once into the user's cache.
        device: comma-separated host, python, adb[:SERIAL], emulator[:CPU], browser[:NAME], link[:NAME]; or all.
        runtime: executorch, onnx or both; None: all that the bundle holds.
        tasks: comma-separated names of `msdc evaluate`; `none` for no accuracy; None: graded-pairs, none on emulators.
        compare: an earlier result to compare with.
        gate: percent that a time may be above the earlier one, beyond noise. What the same program, a noisy or a busier
            machine leaves undecided is measured a second time.
        output: report to write: .html, .md or .json.
        json_file: result file to write.
        force: replace existing files.
        settings: fields of `msdc.bench.measure.BenchSettings`: lengths, runs, warmup, threads, data, prompt, ...

    Returns:
        The result file, its report (None without a run), one line for each device that failed, for each gate that is
        missed and for what is inconclusive; `raise_failures` turns these into errors. A lone device that fails raises
        its own error.
    """
    from msdc.bench.compare import compare_results, place_key, regressions
    from msdc.bench.devices import open_devices
    from msdc.bench.devices.base import run_devices
    from msdc.bench.measure import parity_failures, settings_of, usual_lengths
    from msdc.bench.report.page import build_report, check_output, write_report
    from msdc.bench.result import BenchFile, read_result
    from msdc.export.exporters import bundle_or_shipped
    from msdc.export.manifest import read_manifest
    from msdc.export.runtimes import expand
    from msdc.files import refuse_existing, write_json

    folder = bundle_or_shipped(None if bundle is None else Path(bundle))
    # Everything that can be checked is checked before minutes of measuring.
    if output is not None:
        check_output(Path(output), force)
    if json_file is not None:
        refuse_existing(Path(json_file), force)
    opened = open_devices(device)
    names = [part.strip() for part in ("graded-pairs" if tasks is None else tasks).split(",")]
    chosen = settings_of(
        runtimes=expand(runtime) if runtime else (),
        tasks=tuple(name for name in names if name not in ("", "none")),
        tasks_asked=tasks is not None,
        **settings,
    )
    longest = read_manifest(folder).max_length
    if "lengths" not in settings:
        chosen = chosen.model_copy(update={"lengths": usual_lengths(longest)})
    before = None if compare is None else read_result(Path(compare))
    runs, failures = run_devices(opened, folder, chosen)
    slower: list[str] = []
    undecided: list[str] = []
    if before is not None and gate is not None and runs:
        slower, undecided = regressions(compare_results(before, BenchFile(runs=tuple(runs))), gate)
        # A link needs a person; what counts instructions is decided.
        repeated = [one for one in opened if one.kind != "link" and not one.undisturbed]
        if undecided and not slower and repeated:
            say(f"inconclusive ({'; '.join(undecided)}): measuring a second time")
            try:
                again, more = run_devices(repeated, folder, chosen)
            except MsdcError as error:
                again, more = [], [f"second measurement: {error}"]
            latest = {place_key(run): run for run in [*runs, *again]}
            runs, failures = [latest[key] for key in dict.fromkeys(map(place_key, runs))], [*failures, *more]
            slower, undecided = regressions(compare_results(before, BenchFile(runs=tuple(runs))), gate)
    results = BenchFile(runs=tuple(runs))
    if not runs:
        return BenchResult(results, None, tuple(failures))
    report = build_report(results, before=[before] if before is not None else [])
    if json_file is not None:
        write_json(json_file, results.model_dump(mode="json"))
    if output is not None:
        write_report(report, Path(output), force)
    return BenchResult(results, report, tuple(failures), (*parity_failures(runs), *slower), tuple(undecided))
