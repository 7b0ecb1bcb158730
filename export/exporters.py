"""`msdc export` in Python, and its two exporters.

An exporter makes an `ExportPlan` of a model: `canonical` takes a student, whose programs are written by hand;
`generic` takes any architecture that sentence-transformers loads, through `torch.export`. `msdc.export.writer` writes
the bundle of either.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, cast

import yaml

from msdc import __version__
from msdc.compress.loading import load_torch_encoder, model_source
from msdc.compress.student.config import parameter_counts
from msdc.compress.student.plan import PrecisionPlan, check_plan, plan_for
from msdc.encoders.encoder import Encoder, own_vectors, require_room
from msdc.encoders.folder import OWN_TYPE, EncodeDefaults, locate_model, prompted_texts, shipped_names
from msdc.encoders.source import ModelSource
from msdc.errors import GateError, InputError
from msdc.export.bundle import load_bundle
from msdc.export.golden import golden_texts, thresholds_for
from msdc.export.loading import load_float_encoder
from msdc.export.manifest import Manifest, locate_bundle
from msdc.export.mobile.module import package_folder
from msdc.export.mobile.web.npm import runtime_folder
from msdc.export.onnx.encoder import Module, ProgramEncoder, float_module
from msdc.export.onnx.float_program import FloatProgram
from msdc.export.options import CANONICAL, GENERIC, ExportOptions, ExportSettings, ModelFacts
from msdc.export.readme import CardFacts, read_card
from msdc.export.runtimes import RUNTIMES
from msdc.export.schema import MANIFEST_FILE, READS_PADDING, ProgramStyle, WrittenProgram
from msdc.export.smoothing import FloatModel, Smoothed, TorchModel, calibration_texts, smooth
from msdc.export.writer import ExportPlan, write
from msdc.extras import MissingExtra, installed, missing, require
from msdc.files import refuse_existing, sha256_files, user_cache
from msdc.options import with_option_keywords
from msdc.progress import say
from msdc.scores import cosine_rows
from msdc.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy as np

    from msdc.compress.student.model import Student
    from msdc.export.generic.model import GenericModel

# Longest input of the generic exporter where the model allows more: a program plans memory for its longest input.
GENERIC_LONGEST = 512
GENERIC_PRECISIONS = ("fp32", "int8")
P = ParamSpec("P")


class Exported(NamedTuple):
    """A written bundle: its folder and the content of its `bundle.json`."""

    folder: Path
    manifest: Manifest


class Export(Protocol[P]):
    """The type of `export`: the fields of `ExportOptions` are its keywords."""

    def __call__(self, model: str | Path = "msdc-mini", *args: P.args, **options: P.kwargs) -> Exported:
        """See `_export`."""


def _verb(options: Callable[P, ExportOptions]) -> Export[P]:
    return cast(Export[P], with_option_keywords(ExportOptions, _export))


def _export(model: str | Path = "msdc-mini", *, out: str | Path | None = None, options: ExportOptions) -> Exported:
    """Write the bundle of a model for a target: programs, tokenizer, golden vectors, manifest.

        from msdc.export import export

        folder, manifest = export("msdc-mini", target="android", output="mini")
        print(manifest.parity["executorch"].mean_cosine)

    Args:
        model: a shipped name, a folder, or a hub id: a student, or any encoder that sentence-transformers loads.
        out: another name of `output`.

    Raises:
        InputError: no such model, or one that cannot be exported so; `output` exists without force.
        GateError: a gate failed; nothing is left on disk. Where one of two runtimes fails, the bundle holds
            the other one.
    """
    # What can fail at once fails before minutes of work.
    options.check()
    if options.with_runtime:
        runtime_folder()
    if out is not None and options.output is not None:
        raise InputError("`out` and `output` are one argument: pass one of them")
    out = Path(out or options.output or f"{Path(model).name}-{options.target}")
    refuse_existing(out, options.force, (MANIFEST_FILE,))
    if options.module and (package := package_folder(out, options.target)):
        refuse_existing(package, options.force, ("Package.swift",))
    for name in options.runtimes:
        try:
            RUNTIMES[name].require()
        except MissingExtra as error:
            raise MissingExtra(f"{error}, or take `--runtime onnx`") from error
    if options.core_ml and not installed("coremltools"):
        raise missing("executorch", "`core_ml` (coremltools, which ExecuTorch installs)")

    say(f"load {model}")
    encoder = load_float_encoder(model_source(model))
    options.check_tokenizer(encoder.tokenizer)
    obstacle = canonical_obstacle(encoder)
    chosen = options.exporter or (CANONICAL if obstacle is None else GENERIC)
    if chosen == CANONICAL and obstacle is not None:
        raise InputError(f'{model}: the canonical exporter does not take it ({obstacle}); use `exporter="{GENERIC}"`')
    say(f"{chosen} exporter ({'chosen' if options.exporter else 'a known family' if obstacle is None else obstacle})")
    truncate_dim = None if encoder.defaults.truncate_dim is None else encoder.width
    facts = ModelFacts(
        encoder.name,
        encoder.tokenizer,
        replace(encoder.defaults, truncate_dim=truncate_dim),
        card=read_card(encoder.folder),
        source_sha256=encoder.fingerprint() if encoder.folder is not None else None,
        folder=encoder.folder,
        encoder=encoder if installed("torch") else None,
    )
    plan: ExportPlan = (
        generic(encoder, facts, options)
        if chosen == GENERIC
        else canonical(float_model(encoder), facts, options, encoder.max_length)
    )
    return Exported(out, write(plan, out, options, options.force))


export = _verb(ExportOptions)


def write_bundle(
    student: Student, tokenizer: Tokenizer, out: Path, *, name: str | None = None,
    options: ExportSettings | None = None, defaults: EncodeDefaults | None = None, card: CardFacts | None = None,
    source_sha256: str | None = None, force: bool = False,
) -> Manifest:  # fmt: skip
    """Export `student` into the bundle folder `out`, which appears complete, with all gates passed, or not at all.

    Raises:
        InputError: student, tokenizer and options do not fit each other, or `out` exists without force.
        GateError: a gate failed (see `msdc.export.golden`); nothing is left on disk.
    """
    options = options or ExportSettings(precision="fp32")
    facts = ModelFacts(
        name or out.name, tokenizer, defaults or EncodeDefaults(), card or CardFacts(), source_sha256=source_sha256
    )
    return write(canonical(TorchModel(student), facts, options), out, options, force)


def float_model(encoder: Encoder) -> FloatModel:
    """The student of an encoder, as what an export runs; an `InputError` where no student can be made from it."""
    if isinstance(encoder, ProgramEncoder) and encoder.weights is not None and not installed("torch"):
        return FloatProgram(encoder.weights)
    from msdc.compress.student.stock import to_student

    return TorchModel(to_student(encoder))


def canonical_obstacle(encoder: Encoder) -> str | None:
    """Why the canonical exporter does not take a model, in words; None where it does."""
    if isinstance(encoder, ProgramEncoder):  # a student
        return None
    from msdc.compress.student.model import Student
    from msdc.compress.student.stock import FAMILIES, check_convertible
    from msdc.encoders.stock import SentenceModel

    if isinstance(encoder.module, Student):
        return None
    if not encoder.defaults.include_prompt:
        return "its pooling leaves the prompt's tokens out (include_prompt: false)"
    if not isinstance(encoder.module, SentenceModel):
        return "a static embedding has no layers"
    kind = str(encoder.module.body.config.model_type)
    if kind not in FAMILIES:
        return f"{kind or 'its'} models are not of a family that a student can be made from"
    try:
        check_convertible(encoder.module, encoder.name)
    except InputError as error:
        return str(error)
    return None


@dataclass(frozen=True, kw_only=True)
class CanonicalPlan(ExportPlan):
    """A student, whose programs are written by hand."""

    model: FloatModel
    precision_plan: PrecisionPlan

    @cached_property
    def smoothed(self) -> Smoothed:
        """The student with the scales of its channels moved into its weights."""
        return smooth(self.model, self.precision_plan, self.facts.tokenizer, self.max_length)

    def vectors(self, rows: Sequence[Sequence[int]], prompt_tokens: int) -> np.ndarray:
        """See `ExportPlan`."""
        return self.model.vectors(rows)

    def write_executorch(self, path: Path, style: ProgramStyle) -> WrittenProgram:
        """See `ProgramWriter`."""
        from msdc.export.executorch.lower import write_executorch

        return write_executorch(self.smoothed, self.precision_plan, path, max_length=self.max_length, style=style)

    def write_onnx(self, path: Path, target: str) -> WrittenProgram:
        """See `ProgramWriter`."""
        from msdc.export.onnx.write import write_onnx

        return write_onnx(self.smoothed, self.precision_plan, path, max_length=self.max_length, target=target)

    def write_core_ml(self, path: Path) -> None:
        """See `ProgramWriter`."""
        from msdc.export.core_ml import write_core_ml

        write_core_ml(self.model.weights, path, max_length=self.max_length)


def canonical(
    model: FloatModel, facts: ModelFacts, options: ExportSettings, usual_length: int | None = None
) -> CanonicalPlan:
    """The canonical exporter; without a `max_length` in the options the longest input is `usual_length`.

    Raises:
        InputError: the student and the options do not fit each other.
    """
    config = model.weights.config
    max_length = options.max_length or min(usual_length or config.positions, config.positions)
    if max_length > config.positions:
        raise InputError(f"`max_length` {max_length}, but the model has {config.positions} positions")
    # A folder written by `msdc compress quantize` holds its own precision plan.
    precision = options.precision or model.weights.plan or "int8"
    plan = precision if isinstance(precision, PrecisionPlan) else plan_for(config, precision)
    check_plan(config, plan)
    return CanonicalPlan(
        facts=facts, width=config.width, vocabulary=config.vocabulary, max_length=max_length,
        normalized=config.normalize, precision=plan.precision,
        thresholds=options.thresholds or thresholds_for(set(plan.weights.values()), config.normalize),
        counts=parameter_counts(config), config=config.model_dump(),
        source_sha256=facts.source_sha256 or model.weights.sha256(), model=model, precision_plan=plan,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class GenericPlan(ExportPlan):
    """A model of any architecture that sentence-transformers loads, lowered by `torch.export`."""

    model: GenericModel
    modules: list[Any]  # of sentence-transformers

    @cached_property
    def smoothed(self) -> GenericModel:
        """The model as it is lowered."""
        from msdc.export.generic.model import smooth_generic

        if self.precision != "int8":
            return self.model
        return smooth_generic(self.model, self.facts.tokenizer.encode(calibration_texts(), self.max_length))

    def vectors(self, rows: Sequence[Sequence[int]], prompt_tokens: int) -> np.ndarray:
        """See `ExportPlan`."""
        from msdc.export.generic.model import reference_vectors

        return reference_vectors(self.modules, rows, prompt_tokens)

    def write_executorch(self, path: Path, style: ProgramStyle) -> WrittenProgram:
        """See `ProgramWriter`; the program is one `forward`, with a mask if the style is `masked`."""
        from msdc.export.generic.programs import write_generic_executorch

        masked = style == "masked"
        return write_generic_executorch(self.smoothed, self.precision, path, max_length=self.max_length, masked=masked)

    def write_onnx(self, path: Path, target: str) -> WrittenProgram:
        """See `ProgramWriter`."""
        from msdc.export.generic.programs import write_generic_onnx

        return write_generic_onnx(
            self.smoothed, self.precision, path, max_length=self.max_length, target=target,
            pad_id=self.facts.tokenizer.pad_id,
        )  # fmt: skip


def generic(encoder: Encoder, facts: ModelFacts, options: ExportSettings) -> GenericPlan:
    """The generic exporter, for a model that sentence-transformers loads; an `InputError` for what it cannot write."""
    from msdc.encoders.stock import folder_modules, positions_of
    from msdc.export.generic import model as models

    precision = options.precision or "int8"
    if not isinstance(precision, str) or precision not in GENERIC_PRECISIONS:
        named = precision.precision if isinstance(precision, PrecisionPlan) else precision
        raise InputError(f"precision {named!r} needs the canonical exporter; generic: {', '.join(GENERIC_PRECISIONS)}")
    modules = folder_modules(encoder.module, encoder.name)
    if (options.max_length or 1) > (positions := positions_of(modules[0])):
        raise InputError(f"`max_length` {options.max_length}, but the model has {positions} positions")
    model = models.generic_model(modules, encoder.name)
    model.reads_padding = encoder.reads_padding()
    config: dict[str, Any] = {"exporter": GENERIC, "architecture": model.architecture}
    if model.reads_padding:
        say(f"{model.architecture}: vectors depend on the padding of a batch; texts are compared and run one by one")
        config[READS_PADDING] = True
    return GenericPlan(
        facts=facts, width=model.width, vocabulary=model.vocabulary,
        max_length=options.max_length or min(encoder.max_length, GENERIC_LONGEST), normalized=model.normalized,
        precision=precision, thresholds=options.thresholds or thresholds_for({precision}, model.normalized),
        counts=models.count_parameters(model), config=config, source_sha256=encoder.fingerprint(),
        model=model, modules=modules,
    )  # fmt: skip


def export_sentence_transformers(
    model: str | Path = "msdc-mini", folder: str | Path | None = None, *, force: bool = False
) -> Path:
    """Write a student as a model folder of sentence-transformers' own classes: no msdc, no `trust_remote_code`.

    The vectors are the same. A coded or narrow table is multiplied out to float rows of full width and a recurring unit
    is unrolled, so the folder is larger than the student's.

    Args:
        model: a shipped name or the folder of a student.
        folder: to write; None: MODEL-sentence-transformers here.
        force: replace an existing folder.

    Raises:
        InputError: a bundle, or a model of standard classes.
        GateError: sentence-transformers computes other vectors from the folder.
    """
    if (Path(model) / MANIFEST_FILE).is_file():
        raise InputError(f"{model}: a bundle holds programs, not weights; name the model that it was exported from")
    source = model_source(model)
    encoder = load_float_encoder(source)
    require("torch", "a folder of sentence-transformers")
    require_room(encoder.name, encoder.tokenizer, encoder.defaults, encoder.max_length)
    from msdc.compress.gate import SAME_COSINE
    from msdc.compress.student.io import save_student
    from msdc.compress.student.model import Student

    if not isinstance(encoder.module, Student) or source.layout.model_type != OWN_TYPE:
        raise InputError(f"{model}: its classes are sentence-transformers' own: SentenceTransformer(FOLDER) opens it")
    facts = read_card(encoder.folder)
    block = yaml.safe_dump({"library_name": "sentence-transformers", "language": list(facts.languages)})
    card = (
        f"---\n{block}---\n\n# {encoder.name}\n\nThe vectors of {encoder.name} by standard classes, written by msdc "
        f"{__version__}.\n\n## Licenses\n\n" + "".join(f"* {line}\n" for line in facts.licenses)
    )

    def check(written_folder: Path) -> None:
        written = load_torch_encoder(written_folder)
        for prompt, texts in prompted_texts(encoder.defaults, golden_texts()):
            their_ND = own_vectors(written, texts, encoder.max_length, prompt)
            own_ND = encoder.encode(texts, prompt=prompt)
            lowest = float(cosine_rows(their_ND[:, : encoder.width], own_ND).min())  # type: ignore[index]
            if lowest < SAME_COSINE:
                label = encoder.defaults.label(prompt, " after ")
                raise GateError(
                    f"{encoder.name}: sentence-transformers computes other vectors from standard classes (lowest "
                    f"cosine {lowest:.4f} on the golden texts{label}); nothing was written"
                )

    return save_student(
        encoder.module, encoder.tokenizer, Path(folder or f"{encoder.name}-sentence-transformers"), card=card,
        force=force, defaults=encoder.defaults, stock=True, check=check,
    )  # fmt: skip


def bundle_or_shipped(bundle: str | Path | None) -> Path:
    """The folder of the bundle, or the program file, that a user named; for none, or a shipped model's name, its Linux
    bundle in the user's cache, which is exported once."""
    name = "msdc-mini" if bundle is None else str(bundle)
    if bundle is not None and name not in shipped_names():
        return Path(bundle) if Path(bundle).suffix in (".onnx", ".pte") else locate_bundle(bundle)
    # Without ExecuTorch the bundle holds the ONNX program alone.
    mark = sha256_files([path for path in locate_model(name).iterdir() if path.is_file()])
    return _cached_bundle(name, name, mark, None if installed("executorch") else "onnx")


def _cached_bundle(model: str | Path, name: str, mark: str, runtime: str | None, precision: str | None = None) -> Path:
    """The Linux bundle of a model in the user's cache, exported if it is not there; `mark` is a hash of the model."""
    # Another version of the package may export otherwise.
    folder = user_cache() / "bundles" / "-".join(filter(None, (__version__, mark[:16], runtime, precision))) / name
    if not (folder / MANIFEST_FILE).is_file():
        say(f"exporting {name} to {folder} (once)")
        shutil.rmtree(folder, ignore_errors=True)  # what is no bundle would not be replaced
        export(model, target="linux", runtime=runtime, precision=precision, output=folder, force=True)
    return folder


def load_int8_encoder(source: ModelSource, threads: int | None = None) -> Encoder:
    """A model of standard classes with the int8 program of its ONNX export, which is kept in the user's cache."""
    folder, identity = source.folder, source.identity()
    bundle = load_bundle(_cached_bundle(folder, source.name, identity, "onnx", "int8"), "onnx", threads)
    if bundle.source != identity:
        raise InputError(f"{folder}: changed while it was loaded; load it again")
    encoder = ProgramEncoder(
        lambda: bundle.runner, Module(lambda: float_module(folder, identity)), bundle.full_width, bundle.tokenizer,
        bundle.max_length, source.name, folder, bundle.defaults, program_sha256=bundle.fingerprint(),
        reopen=functools.partial(load_int8_encoder, threads=threads),
    )  # fmt: skip
    encoder.identity = source.identity()
    return encoder
