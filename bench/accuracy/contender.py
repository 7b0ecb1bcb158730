"""Models under test: float models, bundles on each of their runtimes, vectors truncated to their first dimensions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from msdc.bench.accuracy.config import EvaluateConfig
from msdc.bench.accuracy.vector_files import VectorFiles
from msdc.bench.accuracy.vectors import TruncatedVectors, VectorStore
from msdc.compress.quantization.plan import read_plan
from msdc.encoders.encoder import configured, open_model
from msdc.encoders.folder import is_reserved
from msdc.machine import usable_cores


@dataclass
class Contender:
    """A model under test. Its answers are tested against those of `baseline`, item by item."""

    label: str
    store: VectorStore
    record: dict[str, Any]
    baseline: Contender | None = None

    @property
    def folder(self) -> Path | None:
        """Folder of a float model."""
        return getattr(self.store.model, "folder", None)


def is_bundle(name: str) -> bool:
    """Whether `name` is the folder of an exported bundle."""
    return not is_reserved(name) and (Path(name) / "bundle.json").is_file()


def _record(name: str, model: Any) -> dict[str, Any]:
    """What a model is, for the document: a bundle's program and bytes, or a float model's fingerprint."""
    manifest = getattr(model, "manifest", None)
    if manifest is None:
        record = {"label": name, "model": name, "kind": "float", "width": int(model.width)}
        # The weights of an int8 folder take the values of its integers; computation is in float.
        own_plan = read_plan(model.folder)
        stored = {"weights_stored_as": own_plan.precision} if own_plan else {}
        return record | stored | {"sha256": model.fingerprint()}
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


def _cache_key(record: dict[str, Any], model: Any) -> str:
    if record["kind"] == "float":
        return str(record["sha256"])
    key = "-".join(sorted(digest[:32] for digest in record["files"].values()))
    # The same program gives other vectors under another prompt or width.
    prompted = model.defaults.prompt() or model.width != model.manifest.width
    return f"{key}-{model.fingerprint()[:32]}" if prompted else key


@dataclass
class Opener:
    """Opens models under labels that are unique within one evaluation."""

    config: EvaluateConfig
    taken: set[str] = field(default_factory=set)

    def open(self, name: str, runtime: str | None = None) -> Contender:
        """The model `name`; `runtime` chooses the program of a bundle.

        Raises:
            InputError: a model that cannot be opened.
        """
        options = self.config.options
        if is_bundle(name):
            from msdc.export.bundle import load_bundle

            # By default a runtime starts one thread per core of the machine, also of cores this process may not use.
            model: Any = load_bundle(name, runtime, options.threads or len(usable_cores()))
        else:
            model = open_model(name, runtime)
        if name == self.config.model or name in self.config.artifacts:
            model = configured(model, self.config.prompt_name, self.config.prompt)
        return self._contender(name, model, _record(str(getattr(model, "name", Path(name).name)), model))

    def open_vectors(self, folder: Path) -> Contender:
        """The vectors of another encoder, from files.

        Raises:
            InputError: not a folder of vectors.
        """
        model = VectorFiles(folder)
        record = {"label": model.name, "model": model.name, "kind": "vectors", "width": model.width}
        return self._contender(str(folder), model, record | {"sha256": model.fingerprint()}, cached=False)

    def _contender(self, name: str, model: Any, record: dict[str, Any], cached: bool = True) -> Contender:
        if record["label"] in self.taken:
            # Two folders of the same name: their paths tell them apart.
            record["label"] = f"{record['label']} [{name}]"
        self.taken.add(record["label"])
        store = VectorStore(
            model,
            progress=self.config.options.progress,
            cache=self.config.cache if cached else None,
            key=_cache_key(record, model) if cached else None,
        )
        store.name = record["label"]
        return Contender(record["label"], store, record)


def line_up(config: EvaluateConfig, opener: Opener, main: Contender) -> tuple[list[Contender], Contender | None]:
    """The contenders and the reference model (None where no reference is named).

    Contenders are `main`, `main` truncated to each requested width, its artifacts on every runtime, vectors from files,
    and the model of `--against`.

    Raises:
        InputError: a model that cannot be opened, or an artifact that is not a bundle.
    """
    from msdc.export.manifest import read_manifest

    contenders = [main]
    for width in config.truncate_dims:
        truncated = TruncatedVectors(main.store, width)
        record = main.record | {"label": truncated.name, "width": width, "kind": "cut"}
        contenders.append(Contender(truncated.name, VectorStore(truncated), record, main))
    for folder in config.artifacts:
        for runtime in read_manifest(folder).runtimes:
            contenders.append(replace(opener.open(folder, runtime), baseline=main))
    contenders += [opener.open_vectors(folder) for folder in config.vectors]
    if config.against is not None:
        main.baseline = opener.open(config.against, config.runtime if is_bundle(config.against) else None)
        contenders.append(main.baseline)
    if config.reference is None:
        return contenders, None
    same = [one for one in contenders if one.record["kind"] == "float" and config.reference == config.model]
    return contenders, same[0] if same else opener.open(config.reference)


def drift_goal(one: Contender, reference: Contender | None) -> Contender | None:
    """The contender whose vectors `one` is compared with: the reference, else its baseline; never itself.

    Truncated vectors have another width and are compared with none, vectors of another encoder mean something else.
    """
    if one.record["kind"] in ("cut", "vectors"):
        return None
    goal = reference or one.baseline
    return None if goal is None or goal.label == one.label else goal
