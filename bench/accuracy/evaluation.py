"""The steps of an evaluation: load the data sets, open the models, score each on every set.

A model is an encoder, a bundle on one of its runtimes, or truncated vectors. Also what a model card
is evaluated with: the model exported, its languages, its training text.
"""

from __future__ import annotations

import contextlib
import datetime
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from msdc.bench.accuracy.contamination import Findings, corpus_streams
from msdc.bench.accuracy.document import FORMAT, KIND, Evaluation, read_document
from msdc.bench.accuracy.mteb_tasks import PREFIX, select_tasks
from msdc.bench.accuracy.paper_tables import paper_tables
from msdc.bench.accuracy.parallel import Parallel
from msdc.bench.accuracy.sets import SETS, SHIPPED, SUITES, DataFolder, DataSet, read_path, select_sets
from msdc.bench.accuracy.statistics import Items, interval, paired_test
from msdc.bench.accuracy.task import Settings, TaskData, plain
from msdc.bench.accuracy.vectors import CachedEncoder, SupportsEncode, TruncatedVectors
from msdc.compress.student.plan import read_plan
from msdc.distill.catalog import shipped
from msdc.encoders.encoder import Precision, configured
from msdc.encoders.folder import is_bundle
from msdc.errors import InputError
from msdc.export import export
from msdc.export.bundle import load_bundle
from msdc.export.readme import read_card
from msdc.loading import open_model
from msdc.machine import core_count, versions
from msdc.progress import warn
from msdc.text.duplicates import normalise

ModelLike = str | Path | SupportsEncode
RECIPE = "recipe.yaml"
NO_CORPUS = "no training text given (`corpora`)"
PACKAGES = ("msdc", "numpy", "scipy", "scikit-learn", "torch", "executorch", "onnxruntime")


def load_one(task: str, path: str | Path | None, folder: DataFolder) -> str | DataSet:
    """The one data set that `task` names (with `path`: this file), read; a task of mteb as its word."""
    if path is not None:
        data_set = read_path(task, path)
        content = data_set.load()
        return data_set._replace(name=content.name, load=lambda: content)
    if task.startswith(PREFIX):
        (named,) = select_tasks([task], None)
        names = [f"{PREFIX}{named.metadata.name}/{subset}" for subset in named.hf_subsets]
    else:
        data_sets, _ = select_sets((task,), folder)
        names = [data_set.name for data_set in data_sets]
    if len(names) != 1:
        raise InputError(f"{task} is {len(names)} data sets; name one of: {', '.join(names)}")
    if task.startswith(PREFIX):
        return task
    content = data_sets[0].load()
    return data_sets[0]._replace(load=lambda: content)


def load_sets(
    tasks: Sequence[str | DataSet], folder: DataFolder
) -> tuple[list[tuple[DataSet, TaskData]], list[dict[str, str]]]:
    """The data sets that `tasks` name, with their content; and those that are absent."""
    if not tasks:
        raise InputError(f"no tasks; give sets ({', '.join(SETS)}) or suites ({', '.join(SUITES)})")
    sets, absent = select_sets(tasks, folder)
    return [(data_set, data_set.load()) for data_set in sets], absent


@dataclass
class EvaluatedModel:
    """A model under test. Its answers are tested against those of `baseline`, item by item."""

    label: str
    store: CachedEncoder
    baseline: EvaluatedModel | None = None

    @property
    def manifest(self) -> Any:
        """Manifest of a bundle; None for every other model."""
        return getattr(self.store.model, "manifest", None)

    @property
    def folder(self) -> Path | None:
        """Folder of a float model."""
        return getattr(self.store.model, "folder", None)

    def truncated(self, width: int) -> EvaluatedModel:
        """This model with vectors of their first `width` dimensions, tested against the whole ones."""
        cut = TruncatedVectors(self.store, width)
        return EvaluatedModel(cut.name, CachedEncoder(cut), self)

    def drift_goal(self, reference: EvaluatedModel | None) -> EvaluatedModel | None:
        """The model whose vectors are compared with: the reference, else the baseline; never itself.

        Truncated vectors have another width: compared with none.
        """
        goal = reference or self.baseline
        cut = isinstance(self.store.model, TruncatedVectors)
        return None if cut or goal is None or goal is self else goal

    def record(self) -> dict[str, Any]:
        """What the model is, for the document: a bundle's program and bytes, or a float model's fingerprint."""
        model: Any = self.store.model
        if isinstance(model, TruncatedVectors):
            assert self.baseline is not None
            return self.baseline.record() | {"label": self.label, "width": model.width, "kind": "cut"}
        kind = "float" if self.manifest is None else "artifact"
        name = str(getattr(model, "name", self.label))
        record: dict[str, Any] = {"label": self.label, "model": name, "kind": kind, "width": self.store.width}
        if (manifest := self.manifest) is not None:
            parity = manifest.parity.get(model.runtime)
            return record | {
                "runtime": model.runtime,
                "precision": manifest.precision,
                "gates_kept": parity.passed if parity else None,
                "files": {file: manifest.files[file].sha256 for file in manifest.program_files(model.runtime)},
                "bytes": manifest.program_bytes(model.runtime),
                "languages": list(manifest.languages),
                "data_sources": list(manifest.data_sources),
            }
        if getattr(model, "precision", "float") == "int8":
            record |= {"kind": "program", "precision": "int8"}
        elif plan := self.folder and read_plan(self.folder):
            # The weights of an int8 folder take the values of its integers; computation is in float.
            record["weights_stored_as"] = plan.precision
        return record | ({"sha256": model.fingerprint()} if self.folder is not None else {})


def open_evaluated(
    source: ModelLike,
    runtime: str | None = None,
    *,
    taken: set[str],
    settings: Settings,
    cache: str | Path | None = None,
    prompt_name: str | None = None,
    prompt: str | None = None,
    precision: Precision | None = None,
) -> EvaluatedModel:
    """A model by name, folder or hub id, a bundle's program on `runtime`, or an encoder that is open.

    `taken` are the labels of the evaluation so far: a second model of the same name has its path in its label.
    """
    if isinstance(source, CachedEncoder):
        return EvaluatedModel(source.name, source)
    model: Any = source
    if isinstance(source, (str, Path)) and is_bundle(source):
        # By default a runtime starts one thread per core of the machine, also of cores this process may not use.
        model = load_bundle(source, runtime, settings.threads or core_count())
    elif isinstance(source, (str, Path)):
        model = open_model(str(source), runtime, precision=precision)
    model = configured(model, prompt_name, prompt)
    label = str(getattr(model, "name", type(model).__name__))
    if getattr(model, "manifest", None) is not None:
        label = f"{label} ({model.runtime})"
    if label in taken:
        label = f"{label} [{source}]"
    taken.add(label)
    key = None if cache is None else model.fingerprint()
    store = CachedEncoder(model, progress=settings.progress, cache=None if cache is None else Path(cache), key=key)
    store.name = label
    return EvaluatedModel(label, store)


def card_languages(model: EvaluatedModel) -> tuple[str, ...]:
    """Languages of a bundle, those named in a model folder's card, or those of the shipped student."""
    languages = model.manifest.languages if model.manifest is not None else read_card(model.folder).languages
    return tuple(languages) or SHIPPED


def training_text(model: EvaluatedModel, data: Path | None) -> tuple[tuple[str, ...], str]:
    """(the recipe that a model was trained with, ""), or ((), the reason) where there is none or its text is absent.

    It is the recipe of the model's run folder, or the shipped one of its name; `data` is the data folder.
    """
    recipe = str(getattr(model.store.model, "name", ""))
    if model.folder is not None and (file := model.folder.resolve().parent / RECIPE).is_file():
        recipe = str(file)
    elif recipe not in shipped():
        return (), NO_CORPUS
    try:
        corpus_streams([recipe], data)
    except InputError as error:
        return (), str(error)
    return (recipe,), ""


@contextlib.contextmanager
def exported(model: str | Path, runtime: str = "both") -> Iterator[str]:
    """A bundle of `model`, in a temporary folder that is removed when the context ends.

    Gates are not enforced: the card states what an artifact scores, also where `msdc export` would refuse it.
    """
    with tempfile.TemporaryDirectory(prefix="msdc-card-") as folder:
        out = Path(folder) / "bundle"
        _, manifest = export(str(model), target="linux", runtime=runtime, output=out, gates=False)
        short = [runtime for runtime, parity in manifest.parity.items() if not parity.passed]
        if short:
            warn(f"card: msdc export would refuse this model for {' and '.join(short)}: a gate is not met")
        yield str(out)


def document_of(
    words: Sequence[str],
    models: Sequence[EvaluatedModel],
    results: list[dict[str, Any]],
    absent: list[dict[str, str]],
    listed_sums: int,
    contamination: dict[str, Any],
    settings: Settings,
) -> Evaluation:
    """All results, the papers' tables and what was measured with."""
    by_model = {model.label: {r["name"]: r for r in results if r["model"] == model.label} for model in models}
    return read_document({
        "format": FORMAT,
        "kind": KIND,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "tasks": list(words),
        "models": [model.record() for model in models],
        "results": results,
        "tables": paper_tables(words, by_model),
        "absent": absent,
        "files_with_listed_sums": listed_sums,
        "contamination": contamination,
        "settings": {key: getattr(settings, key) for key in ("resamples", "seed", "neighbours", "margin")},
        "versions": versions(PACKAGES),
    })  # fmt: skip


def score_set(
    data_set: DataSet,
    content: TaskData,
    models: Sequence[EvaluatedModel],
    reference: EvaluatedModel | None,
    settings: Settings,
    findings: Findings | None,
) -> list[dict[str, Any]]:
    """Results of every model on one data set, with paired tests against their baselines.

    A model is left out where the task compares with a second model and there is none.
    """
    task = data_set.task
    answers: dict[str, tuple[dict[str, Any], Items | None]] = {}
    for model in models:
        goal = model.drift_goal(reference) if task.needs_reference else None
        if task.needs_reference and goal is None:
            continue
        started = time.perf_counter()
        compared = settings.model_copy(update={"goal": goal.store if goal else None})
        with model.store.counted() as truncated:
            outcome = task.score(model.store, content.content, compared)
        result: dict[str, Any] = {"task": task.name, "name": data_set.name, "model": model.label, "main": task.main}
        result["truncated"] = truncated()
        result |= outcome.scores | {"data": [source.as_dict() for source in content.sources]}
        if content.notes:
            result["notes"] = list(content.notes)
        result["seconds"] = round(time.perf_counter() - started, 3)
        if findings is not None and data_set.name in findings.by_set:
            result["contamination"] = findings.by_set[data_set.name]
            if task.name == "tatoeba" and outcome.items is not None:
                result["unseen"] = unseen(findings, data_set.name, content.content, outcome.items, settings)
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
                result["against"] |= {
                    "difference": test.difference,
                    "interval": [test.low, test.high],
                    "p": test.p_value,
                }
    return [plain(result) for result, _ in answers.values()]


def unseen(findings: Findings, name: str, data: Parallel, items: Items, settings: Settings) -> dict[str, Any]:
    """Retrieval accuracy x 100 over the pairs with neither side in the training text.

    The candidates remain those of the whole set, so that the pool has the same size. Both counts of the check apply:
    exact copies and near duplicates.
    """
    rows = zip(*data.two_sides(), strict=True)
    kept_N = np.array([findings.matched_sentences[name].isdisjoint(map(normalise, row)) for row in rows])
    count = int(kept_N.sum())
    if not count:
        return {"accuracy": None, "interval": None, "pairs": 0}
    unseen_items = Items(items.values_N[kept_N])
    bounds = interval(unseen_items, settings.resamples, settings.seed)
    return {"accuracy": 100.0 * float(unseen_items.values_N.mean()), "interval": bounds, "pairs": count}
