"""`msdc evaluate`: models x data sets -> one result document.

Order of work: read all data (a bad file stops before any model runs), check contamination, then score; every text is
encoded once per model.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from msdc.bench import model_card as card
from msdc.bench.accuracy.contamination import NEAR, Findings, check
from msdc.bench.accuracy.document import FORMAT, KIND, Document, read_document
from msdc.bench.accuracy.evaluate import plain, result_of
from msdc.bench.accuracy.published import tables
from msdc.bench.accuracy.sets import SETS, SUITES, Job, Plan, data_place, plan
from msdc.bench.accuracy.sets.checksums import check_sums
from msdc.bench.accuracy.statistics import Items, compare
from msdc.bench.accuracy.task import Options, tested_texts
from msdc.bench.accuracy.vectors import FirstNumbers, VectorStore
from msdc.compress.quantization.packing import read_plan
from msdc.encoders.encoder import open_model
from msdc.errors import InputError
from msdc.progress import say


@dataclass(frozen=True)
class EvaluateConfig:
    """What one `msdc evaluate` does."""

    model: str
    tasks: tuple[str, ...]
    against: str | None = None
    artifacts: tuple[str, ...] = ()
    widths: tuple[int, ...] = ()
    reference: str | None = None
    runtime: str | None = None
    data: Path | None = None
    languages: tuple[str, ...] | None = None
    corpora: tuple[str | Path, ...] = ()
    near: float | None = NEAR
    cache: Path | None = None
    options: Options = field(default_factory=Options)


@dataclass
class Contender:
    """A model under test. `baseline` is the contender whose answers its own are tested against, pair by pair."""

    label: str
    store: VectorStore
    record: dict[str, Any]
    baseline: Contender | None = None


def _record(name: str, model: Any) -> dict[str, Any]:
    """What a model is, for the result: a bundle's program and bytes, or a float model's fingerprint."""
    manifest = getattr(model, "manifest", None)
    if manifest is None:
        plain_record = {"label": name, "model": name, "kind": "float", "width": int(model.width)}
        # An int8 folder's weights are what its integers say; they are computed with as floats.
        own_plan = read_plan(model.folder)
        stored = {"weights_stored_as": own_plan.precision} if own_plan else {}
        return plain_record | stored | {"sha256": model.fingerprint()}
    files = manifest.program_files(model.runtime)
    return {
        "label": f"{name} ({model.runtime})",
        "model": name,
        "kind": "artifact",
        "runtime": model.runtime,
        "precision": manifest.precision,
        "gates_kept": manifest.parity[model.runtime].passed if model.runtime in manifest.parity else None,
        "width": int(model.width),
        "files": {file: manifest.files[file].sha256 for file in files},
        "bytes": manifest.program_bytes(model.runtime),
        "languages": list(manifest.languages),
        "data_sources": list(manifest.data_sources),
    }


def _cache_key(record: dict[str, Any]) -> str:
    if record["kind"] == "float":
        return str(record["sha256"])
    return "-".join(sorted(digest[:32] for digest in record["files"].values()))


def _open(config: EvaluateConfig, name: str, runtime: str | None) -> Any:
    if not _is_bundle(name):
        return open_model(name, runtime)
    from msdc.export.bundle import load_bundle

    # A runtime makes a thread for each core of the machine, also of those this process may not use.
    return load_bundle(name, runtime, config.options.threads or len(os.sched_getaffinity(0)))


def _contender(config: EvaluateConfig, name: str, runtime: str | None, taken: set[str]) -> Contender:
    model = _open(config, name, runtime)
    record = _record(str(getattr(model, "name", Path(name).name)), model)
    if record["label"] in taken:
        # two folders of one name: tell them apart by where they lie
        record["label"] = f"{record['label']} [{name}]"
    taken.add(record["label"])
    store = VectorStore(model, progress=config.options.progress, cache=config.cache, key=_cache_key(record))
    store.name = record["label"]
    return Contender(record["label"], store, record)


def _runtimes(folder: str) -> list[str]:
    from msdc.export.manifest import read_manifest

    return read_manifest(folder).runtimes


def _others(config: EvaluateConfig, main: Contender) -> tuple[list[Contender], Contender | None]:
    """The model, cut to the asked widths, its artifacts on every runtime, the model it is held against; the reference.

    Raises:
        InputError: a model that cannot be opened, or an artifact that is no bundle.
    """
    taken = {main.label}
    contenders = [main]
    for width in config.widths:
        cut = FirstNumbers(main.store, width)
        record = main.record | {"label": cut.name, "width": width, "kind": "cut"}
        contenders.append(Contender(cut.name, VectorStore(cut), record, main))
    for folder in config.artifacts:
        for runtime in _runtimes(folder):
            contenders.append(replace(_contender(config, folder, runtime, taken), baseline=main))
    if config.against is not None:
        other = _contender(config, config.against, config.runtime if _is_bundle(config.against) else None, taken)
        main.baseline = other
        contenders.append(other)
    reference = None
    if config.reference is not None:
        same = [one for one in contenders if one.record["kind"] == "float" and config.reference == config.model]
        reference = same[0] if same else _contender(config, config.reference, None, taken)
    return contenders, reference


def _is_bundle(name: str) -> bool:
    return (Path(name) / "bundle.json").is_file()


def _for_the_card(config: EvaluateConfig, main: Contender, kept: contextlib.ExitStack) -> tuple[EvaluateConfig, str]:
    """For the card: what the user did not name (see `msdc.bench.model_card`); and why corpora could not be read."""
    unread = "no --corpus given"
    if card.SUITE not in config.tasks:
        return config, unread
    if main.record["kind"] == "float" and not config.artifacts:
        config = replace(config, artifacts=(kept.enter_context(card.exported(config.model)),))
    recipe = card.training_recipe(getattr(main.store.model, "folder", None), main.record["model"])
    if not config.corpora and recipe is not None:
        corpora, why = card.readable_corpora(recipe)
        config, unread = replace(config, corpora=corpora), why or unread
    return config, unread


def _languages(config: EvaluateConfig, main: Contender) -> tuple[str, ...] | None:
    """Languages asked for; for the card those that the model names."""
    if config.languages is not None or card.SUITE not in config.tasks:
        return config.languages
    return tuple(main.record.get("languages") or card.card_languages(getattr(main.store.model, "folder", None)))


def _read_all(found: Plan) -> list[tuple[Job, Any]]:
    return [(job, job.load()) for job in found.jobs]


def run(config: EvaluateConfig) -> Document:
    """Score every model on every data set; see the module's head for the order.

    Raises:
        InputError: an unknown task, absent data, a bad file (with the line), a model that cannot be opened.
        MsdcError: vectors that cannot be scored.
    """
    if not config.tasks:
        raise InputError(f"no tasks; give --tasks with sets ({', '.join(SETS)}) or suites ({', '.join(SUITES)})")
    with contextlib.ExitStack() as kept:
        kept.enter_context(card.data_variable(config.data))
        return _run(config, kept)


def _run(config: EvaluateConfig, kept: contextlib.ExitStack) -> Document:
    main = _contender(config, config.model, config.runtime, set())
    place = data_place(config.data, _languages(config, main))
    found = plan(config.tasks, place)
    loaded = _read_all(found)
    verified = check_sums(place.folder, (source for _, data in loaded for source in data.sources))
    config, unread = _for_the_card(config, main, kept)
    contenders, reference = _others(config, main)
    findings = _contamination(config, loaded, unread)
    results = list(_score_all(config, contenders, reference, loaded, found, findings))
    for one in [*contenders, *([reference] if reference else [])]:
        one.store.save()
    by_model: dict[str, dict[str, Any]] = {one.label: {} for one in contenders}
    for result in results:
        by_model[result["model"]][result["name"]] = result
    raw = {
        "format": FORMAT,
        "kind": KIND,
        "tasks": list(config.tasks),
        "models": [one.record for one in contenders],
        "results": results,
        "tables": tables(config.tasks, by_model),
        "absent": found.absent,
        "files_with_listed_sums": verified,
        "contamination": _contamination_record(config, findings, unread),
        "settings": {
            "resamples": config.options.resamples,
            "seed": config.options.seed,
            "neighbours": config.options.neighbours,
            "margin": config.options.margin,
        },
        "versions": _versions(),
    }
    return read_document(raw)


def _contamination(config: EvaluateConfig, loaded: list[tuple[Job, Any]], unread: str) -> Findings | None:
    if not config.corpora:
        say(f"contamination: not checked ({unread}); name the model's training corpora with --corpus")
        return None
    tests = {job.name: tested_texts(data) for job, data in loaded if job.task.name != "drift"}
    return check(tests, config.corpora, near=config.near, progress=config.options.progress)


def _contamination_record(config: EvaluateConfig, findings: Findings | None, unread: str) -> dict[str, Any]:
    if findings is None:
        return {"checked": False, "reason": unread}
    return {"checked": True, "near_at": config.near, "corpora": findings.corpora}


def _score_all(
    config: EvaluateConfig,
    contenders: list[Contender],
    reference: Contender | None,
    loaded: list[tuple[Job, Any]],
    found: Plan,
    findings: Findings | None,
) -> Iterator[dict[str, Any]]:
    for job, data in loaded:
        answers: dict[str, tuple[dict[str, Any], Items | None]] = {}
        for one in contenders:
            goal = _goal(one, reference) if job.task.needs_reference else None
            if job.task.needs_reference and goal is None:
                if len(contenders) == 1 and not _from_suite(config, job):
                    raise InputError(f"{job.name} compares with another model: name it with --reference MODEL")
                continue
            options = replace(config.options, reference=goal.store if goal else None)
            result, outcome = result_of(job.task, one.store, data, options)
            result["name"] = job.name
            result["model"] = one.label
            if findings is not None and job.name in findings.by_set:
                result["contamination"] = findings.by_set[job.name]
            answers[one.label] = (result, outcome.items)
        if not answers:
            found.absent.append({"task": job.task.name, "name": job.name, "looked_for": "--reference MODEL"})
        for one in contenders:
            if one.label in answers:
                yield _with_test(config, one, answers, job.task.main)


def _goal(one: Contender, reference: Contender | None) -> Contender | None:
    """What a contender drifts from: the reference, else its baseline; never itself, and a cut one from none."""
    if one.record["kind"] == "cut":
        return None  # fewer numbers than the others have
    goal = reference or one.baseline
    return None if goal is None or goal.label == one.label else goal


def _from_suite(config: EvaluateConfig, job: Job) -> bool:
    named = {word for word in config.tasks if word not in SUITES}
    return job.name not in named and job.name.split("/")[0] not in named


def _with_test(
    config: EvaluateConfig, one: Contender, answers: dict[str, tuple[dict[str, Any], Items | None]], main: str
) -> dict[str, Any]:
    """The result, with the paired test against the contender's baseline where both answered item by item."""
    result, items = answers[one.label]
    if one.baseline is None or one.baseline.label not in answers or items is None:
        return result
    other, other_items = answers[one.baseline.label]
    if other_items is None:
        return result
    entry: dict[str, Any] = {"model": one.baseline.label, main: other[main]}
    if config.options.resamples:
        test = compare(items, other_items, config.options.resamples, config.options.seed)
        entry |= {"difference": test.difference, "interval": [test.low, test.high], "p": test.p}
    result["against"] = plain(entry)
    return result


def _versions() -> dict[str, str]:
    names = ("msdc", "numpy", "scipy", "scikit-learn", "faiss-cpu", "torch", "executorch", "onnxruntime")
    versions = {"python": platform.python_version()}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
