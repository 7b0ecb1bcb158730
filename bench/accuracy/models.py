"""Models under test: encoders, bundles on each of their runtimes, truncated vectors, vectors from files; and what a
model card is evaluated with: the model exported, its languages, its training text."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msdc.bench.accuracy.contamination import corpus_streams
from msdc.bench.accuracy.task import Settings
from msdc.bench.accuracy.vectors import TruncatedVectors, VectorFiles, VectorStore
from msdc.compress.quantization.plan import read_plan
from msdc.encoders.encoder import configured, open_model
from msdc.encoders.folder import is_reserved
from msdc.errors import InputError
from msdc.machine import usable_cores
from msdc.progress import warn

if TYPE_CHECKING:
    from msdc.bench import ModelSource


RECIPE = "recipe.yaml"
NO_CORPUS = "no --corpus given"


@dataclass
class EvaluatedModel:
    """A model under test. Its answers are tested against those of `baseline`, item by item."""

    label: str
    store: VectorStore
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
        return EvaluatedModel(cut.name, VectorStore(cut), self)

    def drift_goal(self, reference: EvaluatedModel | None) -> EvaluatedModel | None:
        """The model whose vectors are compared with: the reference, else the baseline; never itself.

        Truncated vectors have another width, and vectors of another encoder mean something else: compared with none.
        """
        goal = reference or self.baseline
        other = isinstance(self.store.model, (TruncatedVectors, VectorFiles))
        return None if other or goal is None or goal is self else goal

    def record(self) -> dict[str, Any]:
        """What the model is, for the document: a bundle's program and bytes, or a float model's fingerprint."""
        model: Any = self.store.model
        if isinstance(model, TruncatedVectors):
            assert self.baseline is not None
            return self.baseline.record() | {"label": self.label, "width": model.width, "kind": "cut"}
        kind = "vectors" if isinstance(model, VectorFiles) else "float" if self.manifest is None else "artifact"
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
        if kind == "float" and self.folder is not None and (plan := read_plan(self.folder)):
            # The weights of an int8 folder take the values of its integers; computation is in float.
            record["weights_stored_as"] = plan.precision
        return record | ({"sha256": model.fingerprint()} if self.folder is not None else {})


def is_bundle(name: str | Path) -> bool:
    """Whether `name` is the folder of an exported bundle."""
    return not is_reserved(str(name)) and (Path(name) / "bundle.json").is_file()


def open_evaluated(
    source: ModelSource,
    runtime: str | None = None,
    *,
    taken: set[str],
    settings: Settings,
    cache: Path | None = None,
    prompt_name: str | None = None,
    prompt: str | None = None,
) -> EvaluatedModel:
    """A model by name, folder or hub id, a bundle's program on `runtime`, or an encoder that is open.

    `taken` are the labels of the evaluation so far: a second model of the same name has its path in its label.

    Raises:
        InputError: a model that cannot be opened.
    """
    if isinstance(source, VectorStore):
        return EvaluatedModel(source.name, source)
    model: Any = source
    if isinstance(source, (str, Path)) and is_bundle(source):
        from msdc.export.bundle import load_bundle

        # By default a runtime starts one thread per core of the machine, also of cores this process may not use.
        model = load_bundle(source, runtime, settings.threads or len(usable_cores()))
    elif isinstance(source, (str, Path)):
        model = open_model(str(source), runtime)
    model = configured(model, prompt_name, prompt)
    label = str(getattr(model, "name", type(model).__name__))
    if getattr(model, "manifest", None) is not None:
        label = f"{label} ({model.runtime})"
    if label in taken:
        label = f"{label} [{model.folder if isinstance(model, VectorFiles) else source}]"
    taken.add(label)
    key = None if cache is None or isinstance(model, VectorFiles) else model.fingerprint()
    store = VectorStore(model, progress=settings.progress, cache=cache, key=key)
    store.name = label
    return EvaluatedModel(label, store)


def card_languages(model: EvaluatedModel) -> tuple[str, ...]:
    """Languages of a bundle, those named in a model folder's card, or those of the shipped student."""
    from msdc.bench.accuracy.sets import SHIPPED
    from msdc.export.readme import read_card

    own = model.manifest.languages if model.manifest is not None else read_card(model.folder).languages
    return tuple(own) or SHIPPED


def training_text(model: EvaluatedModel, data: Path | None) -> tuple[tuple[str, ...], str]:
    """(the recipe that a model was trained with, ""), or ((), the reason) where there is none or its text is absent.

    It is the recipe of the model's run folder, or the shipped one of its name; `data` is the data folder.
    """
    from msdc.distill.catalog import shipped

    recipe = str(getattr(model.store.model, "name", ""))
    if model.folder is not None and (beside := model.folder.resolve().parent / RECIPE).is_file():
        recipe = str(beside)
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

    Raises:
        InputError: a model that cannot be exported.
    """
    from msdc.export import export

    with tempfile.TemporaryDirectory(prefix="msdc-card-") as folder:
        out = Path(folder) / "bundle"
        _, manifest = export(str(model), target="linux", runtime=runtime, out=out, gates=False)
        short = [runtime for runtime, parity in manifest.parity.items() if not parity.passed]
        if short:
            warn(f"card: msdc export would refuse this model for {' and '.join(short)}: a gate is not met")
        yield str(out)
