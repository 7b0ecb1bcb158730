"""From a float model to a bundle folder: the two exporters, then programs, golden vectors, gates and the manifest.

An exporter makes a model `Ready`: `canonical` takes a student, whose programs are written by hand; `generic` takes any
architecture that sentence-transformers loads, through `torch.export`. `_write` does the rest for both.

Shapes: N texts, D sentence width.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from importlib.metadata import distributions, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from msdc import __version__
from msdc.compress.quantization.plan import PRECISIONS, PrecisionPlan, check_plan, plan_for
from msdc.compress.student.config import parameter_counts
from msdc.encoders.encoder import Encoder, load_encoder, own_vectors
from msdc.encoders.folder import EncodeDefaults, locate_model, shipped_names, with_prompt
from msdc.errors import GateError, InputError, MsdcError, first_problem
from msdc.export import Exported, export
from msdc.export.golden import (
    FP32,
    Thresholds,
    farthest,
    float_scores,
    golden_texts,
    measure,
    shortfalls,
    thresholds_for,
    tokenizers_agree,
    write_golden,
)
from msdc.export.manifest import Manifest, ModelPart, Programs, TokenizerPart, list_files, read_manifest, write_manifest
from msdc.export.mobile.module import check_module_options, package_folder, require_module, write_native_module
from msdc.export.onnx.float_program import FloatProgram, ProgramEncoder
from msdc.export.readme import CardFacts, bundle_readme, read_card
from msdc.export.runtimes import MANIFEST_FILE, RUNTIMES, TARGETS, Style, expand
from msdc.export.smoothing import TorchModel, calibration_texts, smooth
from msdc.export.tokenizer.compile import COMPILED_FILE, compile_tokenizer
from msdc.extras import installed
from msdc.files import read_json, refuse_existing, sha256_files, staged_folder, user_cache, write_text
from msdc.progress import say
from msdc.text.tokenizer import (
    JSON_FILE,
    MODEL_FILE,
    FastTokenizer,
    PieceTokenizer,
    Tokenizer,
    load_tokenizer,
    prompt_tokens,
)

if TYPE_CHECKING:
    from msdc.compress.student.model import Student

# Longest input of the generic exporter where the model allows more: a program plans memory for its longest input.
GENERIC_LONGEST = 512
CANONICAL, GENERIC = "canonical", "generic"
GENERIC_PRECISIONS = ("fp32", "int8")
# Versions recorded in the manifest beside those of the runtimes' own packages.
BEFORE, AFTER = ("msdc", "torch"), ("sentencepiece", "tokenizers")

Say = Callable[[str], None]


@dataclass(frozen=True)
class BundleOptions:
    """How to export, and what the manifest repeats of the model.

    Attributes:
        runtimes: None: the target's own.
        precision: a name of `msdc.compress.quantization.plan.PRECISIONS`, or a plan.
        max_length: tokens; None: the model's own.
        thresholds: None: those of the precision.
        gates: refuse a bundle that misses them.
        module: write the target's module for apps, if it has one; `sample`: its sample app too; `with_runtime`: copy
            the runtime beside it (web).
        for_js: the model's folder, where transformers.js shall read the bundle too (web).
        source_sha256: of the model; None: of the student's weights.
    """

    target: str = "linux"
    runtimes: tuple[str, ...] | None = None
    precision: str | PrecisionPlan = "fp32"
    style: Style = "multi-method"
    max_length: int | None = None
    thresholds: Thresholds | None = None
    gates: bool = True
    module: bool = True
    sample: bool = False
    with_runtime: bool = False
    for_js: Path | None = None
    source_sha256: str | None = None
    defaults: EncodeDefaults = field(default_factory=EncodeDefaults)
    card: CardFacts = field(default_factory=CardFacts)


@dataclass(frozen=True)
class Ready:
    """A model that an exporter made ready.

    `vectors` gives the float vectors [N, D] of rows of ids, the reference of all gates; the first tokens of each row,
    as many as its second argument says, are not pooled. `made` is what runtimes write under `plan`, computed once.
    """

    width: int
    vocabulary: int
    max_length: int
    normalized: bool
    plan: PrecisionPlan | str
    wanted: Thresholds
    counts: dict[str, int]
    config: dict[str, Any]
    source_sha256: str
    vectors: Callable[[Sequence[Sequence[int]], int], np.ndarray]
    made: Callable[[], Any]

    @property
    def precision(self) -> str:
        """Name of the plan."""
        return self.plan if isinstance(self.plan, str) else self.plan.precision


def export_model(
    model: str | Path, target: str, runtime: str | None, precision: str | PrecisionPlan | None,
    out: str | Path | None, style: Style, max_length: int | None, exporter: str | None, gates: bool, module: bool,
    sample: bool, with_runtime: bool, transformers_js: bool, force: bool,
) -> Exported:  # fmt: skip
    """What `msdc.export.export` does; its docstring has the arguments."""
    # What can fail at once fails before minutes of work.
    runtimes = expand(runtime) if runtime else TARGETS[target].runtimes
    check_module_options(target, module, sample, with_runtime, transformers_js)
    out = Path(out or f"{Path(model).name}-{target}")
    precision = load_precision(precision) if isinstance(precision, str) else precision
    refuse_existing(out, force, (MANIFEST_FILE,))
    if module and (apart := package_folder(out, target)):
        refuse_existing(apart, force, ("Package.swift",))
    for name in runtimes:
        RUNTIMES[name].require()

    say(f"load {model}")
    encoder = load_encoder(model)
    obstacle = canonical_obstacle(encoder)
    chosen = exporter or (CANONICAL if obstacle is None else GENERIC)
    if chosen == CANONICAL and obstacle is not None:
        raise InputError(f"{model}: the canonical exporter does not take it ({obstacle}); use --exporter {GENERIC}")
    say(f"{chosen} exporter ({'chosen' if exporter else 'a known family' if obstacle is None else obstacle})")
    truncate_dim = None if encoder.defaults.truncate_dim is None else encoder.width
    options = BundleOptions(
        target=target, runtimes=runtimes, precision=precision or "int8", style=style, max_length=max_length,
        gates=gates, module=module, sample=sample, with_runtime=with_runtime,
        for_js=(encoder.folder or out) if transformers_js else None,
        source_sha256=encoder.fingerprint() if encoder.folder is not None else None,
        defaults=replace(encoder.defaults, truncate_dim=truncate_dim), card=read_card(encoder.folder),
    )  # fmt: skip
    if chosen == GENERIC:
        ready = generic(encoder, options)
    else:
        student = float_model(encoder)
        longest = max_length or min(encoder.max_length, student.weights.config.positions)
        # A folder written by `msdc compress quantize` holds its own precision plan.
        plan = precision or student.weights.plan or "int8"
        ready = canonical(student, encoder.tokenizer, replace(options, max_length=longest, precision=plan))

    own = None if isinstance(encoder, ProgramEncoder) else encoder
    return Exported(out, _write(ready, encoder.tokenizer, out, encoder.name, options, force, own=own))


def load_precision(text: str) -> str | PrecisionPlan:
    """The name of a precision, or a plan from a JSON file that `msdc compress quantize` wrote."""
    if text in PRECISIONS:
        return text
    if not text.endswith(".json"):
        raise InputError(f"precision {text!r} is unknown; known: {', '.join(PRECISIONS)}, or a plan's .json file")
    try:
        value = read_json(text)
        return PrecisionPlan.model_validate(value.get("plan", value) if isinstance(value, dict) else value)
    except ValidationError as error:
        raise InputError(f"{text}: {first_problem(error)}") from error


def float_model(encoder: Encoder) -> TorchModel | FloatProgram:
    """The student of an encoder, as what an export runs; an `InputError` where no student can be made from it."""
    if isinstance(encoder, ProgramEncoder):
        return encoder.program
    from msdc.compress.student.stock import to_student

    return TorchModel(to_student(encoder))


def canonical_obstacle(encoder: Encoder) -> str | None:
    """Why the canonical exporter does not take a model, in words; None where it does."""
    if isinstance(encoder, ProgramEncoder):
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


def canonical(model: TorchModel | FloatProgram, tokenizer: Tokenizer, options: BundleOptions) -> Ready:
    """The canonical exporter; an `InputError` where the student and the options do not fit each other."""
    config = model.weights.config
    max_length = options.max_length or config.positions
    if max_length > config.positions:
        raise InputError(f"longest input {max_length}, but the model has {config.positions} positions")
    plan = options.precision if isinstance(options.precision, PrecisionPlan) else plan_for(config, options.precision)
    check_plan(config, plan)

    return Ready(
        config.width, config.vocabulary, max_length, config.normalize, plan,
        wanted=options.thresholds or thresholds_for(set(plan.weights.values())),
        counts=parameter_counts(config), config=config.model_dump(),
        source_sha256=options.source_sha256 or model.weights.sha256(),
        vectors=lambda rows, prompt_tokens: model.vectors(rows),
        made=functools.cache(lambda: smooth(model, plan, tokenizer, max_length)),
    )  # fmt: skip


def generic(encoder: Encoder, options: BundleOptions) -> Ready:
    """The generic exporter, for a model that sentence-transformers loads; an `InputError` for what it cannot write."""
    from msdc.encoders.stock import folder_modules
    from msdc.export.generic import model as models

    precision = options.precision
    if not isinstance(precision, str) or precision not in GENERIC_PRECISIONS:
        named = precision.precision if isinstance(precision, PrecisionPlan) else precision
        raise InputError(f"precision {named!r} needs the canonical exporter; generic: {', '.join(GENERIC_PRECISIONS)}")
    tokenizer, modules = encoder.tokenizer, folder_modules(encoder.module, encoder.name)
    model = models.generic_model(modules, encoder.name)
    max_length = options.max_length or min(encoder.max_length, GENERIC_LONGEST)

    @functools.cache
    def made() -> models.GenericModel:
        rows = tokenizer.encode(calibration_texts(), max_length)
        return models.smooth_generic(model, rows) if precision == "int8" else model

    return Ready(
        model.width, model.vocabulary, max_length, model.normalized, precision,
        wanted=options.thresholds or thresholds_for({precision}),
        counts=models.parameter_counts(model), config={"exporter": GENERIC, "architecture": model.architecture},
        source_sha256=encoder.fingerprint(),
        vectors=lambda rows, prompt_tokens: models.reference_vectors(modules, rows, prompt_tokens), made=made,
    )  # fmt: skip


def write_bundle(
    student: Student, tokenizer: Tokenizer, out: Path, *, name: str | None = None,
    options: BundleOptions | None = None, force: bool = False, say: Say = lambda message: None,
) -> Manifest:  # fmt: skip
    """Export `student` into the bundle folder `out`, which appears complete, with all gates passed, or not at all.

    Raises:
        InputError: student, tokenizer and options do not fit each other, or `out` exists without force.
        GateError: a gate failed (see `msdc.export.golden`); nothing is left on disk.
    """
    options = options or BundleOptions()
    ready = canonical(TorchModel(student), tokenizer, options)
    return _write(ready, tokenizer, out, name or out.name, options, force, say)


def _write(
    ready: Ready, tokenizer: Tokenizer, out: Path, name: str, options: BundleOptions, force: bool, say: Say = say,
    own: Encoder | None = None,
) -> Manifest:  # fmt: skip
    """Write the bundle folder `out`; `own` is the model as another library runs it, whose vectors are the reference."""
    if tokenizer.size > ready.vocabulary:
        raise InputError(f"the tokenizer has {tokenizer.size} ids, the model's table {ready.vocabulary} rows")
    defaults, max_length = options.defaults, ready.max_length
    prompt = defaults.prompt()
    beside = package_folder(out, options.target) if options.module else None
    own_folder = nullcontext(None) if beside is None else staged_folder(beside, force, ("Package.swift",))
    with staged_folder(out, force, (MANIFEST_FILE,)) as stage, own_folder as package:
        texts = with_prompt(prompt, golden_texts())
        runtimes = options.runtimes or TARGETS[options.target].runtimes
        part = _write_tokenizer(tokenizer, max_length, stage, texts, say)
        if options.module:
            require_module(options.target, part, runtimes)
        rows = tokenizer.encode(texts, max_length)
        if load_tokenizer(stage, tokenizer.pad_id).encode(texts, max_length) != rows:
            raise GateError(f"{part.file} as it was written gives other ids than the model's own tokenizer")
        # Static embeddings add no special ids: a blank text has no ids and needs no program.
        texts = [text for text, row in zip(texts, rows, strict=True) if row]
        rows = [row for row in rows if row]
        skip = 0 if defaults.include_prompt else prompt_tokens(tokenizer, prompt, max_length)
        float_ND = ready.vectors(rows, skip)
        bare = [text[len(prompt) :] for text in texts]
        own_ND = None if own is None else own_vectors(own, bare, max_length, prompt)
        if own_ND is not None:
            # Names of special ids in a text are the one intended difference.
            apart = [i for i, (text, row) in enumerate(zip(texts, rows, strict=True)) if _special(tokenizer, text, row)]
            own_ND[apart] = float_ND[apart]
            found = measure(own_ND, float_ND, None, texts)
            say(f"float: mean cosine {found.mean_cosine:.6f} to the model's own encoding, min {found.min_cosine:.6f}")
            short = shortfalls(found, FP32)
            if short and options.gates:
                short.append(farthest(own_ND, float_ND, texts))
                exporter = "" if ready.config.get("exporter") == GENERIC else "; try --exporter generic"
                raise GateError(f"the model's own encoding differs from this export's: {'; '.join(short)}{exporter}")
            float_ND = own_ND
        vectors, parity, programs = {"float": float_ND}, {}, {}
        # What to try before the gates are left out.
        others = ["--precision fp32"] if ready.precision != "fp32" else []
        others += ["--exporter generic"] if own_ND is not None and ready.config.get("exporter") != GENERIC else []

        def add(runtime: str) -> None:
            say(f"{runtime}: lower {ready.precision} for {options.target}, lengths 1 to {max_length}")
            written = RUNTIMES[runtime].write(
                stage, ready.made(), ready.plan, max_length=max_length, target=options.target, style=options.style,
                pad_id=tokenizer.pad_id,
            )  # fmt: skip
            computed_ND = written.runner.run(rows, skip)
            found = measure(float_ND, computed_ND, written.low_bit_share, texts)
            say(f"{runtime}: mean cosine {found.mean_cosine:.6f}, min {found.min_cosine:.6f}, max abs {found.max_abs}")
            short = shortfalls(found, ready.wanted)
            if short and options.gates:
                short.append(farthest(float_ND, computed_ND, texts))
                remedy = f"; try {' or '.join(others)}" if others else ""
                raise GateError(f"{'; '.join(short)}{remedy}; --no-gates writes it anyway")
            delegated = {"delegated_share": written.delegated_share, "outside": written.outside}
            parity[runtime] = found.model_copy(update={"passed": not short, **delegated})
            # Windows renames no folder with an open file, and the runner maps its file: `written` ends here.
            programs[runtime], vectors[runtime] = written.part, computed_ND

        failed: dict[str, MsdcError] = {}
        for runtime in runtimes:
            before = set(stage.rglob("*"))
            try:
                add(runtime)
            except MsdcError as error:
                failed[runtime] = error
                say(f"{runtime}: failed: {error}")
                for path in set(stage.rglob("*")) - before:
                    path.unlink()
        lost = "; ".join(f"{runtime} {ready.precision}: {error}" for runtime, error in failed.items())
        if len(failed) == len(runtimes):
            raise type(failed[runtimes[0]])(lost)
        if options.module and failed:
            try:
                require_module(options.target, part, list(parity))
            except InputError as error:
                raise GateError(f"{lost}; {error}") from error
        write_golden(stage, texts, rows, vectors)

        def encoded(graded: list[str]) -> np.ndarray:
            ids = tokenizer.encode(with_prompt(prompt, graded), max_length)
            return ready.vectors(ids, skip)[:, : defaults.truncate_dim]

        counts = {("" if name == "total" else f"{name}_") + "parameters": n for name, n in ready.counts.items()}
        manifest = Manifest(
            name=name, target=options.target, width=ready.width, truncate_dim=defaults.truncate_dim,
            max_length=max_length, vocabulary=ready.vocabulary, languages=list(options.card.languages),
            precision=ready.precision, normalized=ready.normalized, gates="passed" if options.gates else "skipped",
            prompts=dict(defaults.prompts), default_prompt=defaults.default_prompt,
            include_prompt=defaults.include_prompt, similarity=defaults.similarity, tokenizer=part,
            programs=Programs.model_validate(programs),
            model=ModelPart(**counts, config=ready.config, source_sha256=ready.source_sha256), parity=parity,
            float_scores=float_scores(encoded),
            files=list_files(stage), versions=_versions(), licenses=list(options.card.licenses),
            data_sources=list(options.card.data_sources),
        )  # fmt: skip
        folders: tuple[str, ...] = ()
        if options.module:
            folders = write_native_module(
                stage, options.target, manifest, folder=out.name, package=package,
                sample=options.sample, with_runtime=options.with_runtime, for_js=options.for_js,
            )  # fmt: skip
        write_text(stage / "README.md", bundle_readme(manifest, folders))
        write_manifest(stage, manifest.model_copy(update={"files": list_files(stage)}))
    if failed:
        raise GateError(f"{lost}; {out} holds {' and '.join(parity)} alone")
    say(f"bundle: {out}")
    return read_manifest(out)


def _versions() -> dict[str, str]:
    names = (*BEFORE, *(package for runtime in RUNTIMES for package in runtime.made_with), *AFTER)
    return {name: version(name) for name in names if any(distributions(name=name))}


def _write_tokenizer(tokenizer: Tokenizer, max_length: int, stage: Path, texts: list[str], say: Say) -> TokenizerPart:
    """Write the tokenizer from memory: a SentencePiece model agrees with its twin, a `tokenizer.json` is compiled."""
    pad_id = tokenizer.pad_id
    if isinstance(tokenizer, PieceTokenizer):
        say("tokenizer: compare tokenizer.model with its tokenizer.json")
        tokenizers_agree(tokenizer, texts, max_length, stage)
        (stage / JSON_FILE).unlink(missing_ok=True)
        unk = tokenizer.unk_id if tokenizer.unk_id >= 0 else None
        bos, eos = tokenizer.bos_id, tokenizer.eos_id
        return TokenizerPart(kind="sentencepiece", file=MODEL_FILE, bos_id=bos, eos_id=eos, pad_id=pad_id, unk_id=unk)
    if not isinstance(tokenizer, FastTokenizer):
        raise InputError(f"a tokenizer of kind {type(tokenizer).__name__} cannot be exported")
    (stage / JSON_FILE).write_bytes(tokenizer.content)
    say("tokenizer: compile tokenizer.json for the native core")
    compiled = refused = None
    try:
        (stage / COMPILED_FILE).write_bytes(compile_tokenizer(stage / JSON_FILE))
        compiled = COMPILED_FILE
    except InputError as error:
        say(str(error))
        refused = str(error)[:1000]
    # The special ids that the template adds to an empty text.
    first, *_, last = tokenizer.encode([""], 8)[0] * 2 or (None, None)
    unk = tokenizer.backend.token_to_id("[UNK]")
    unk = tokenizer.backend.token_to_id("<unk>") if unk is None else unk
    return TokenizerPart(
        kind="tokenizer-json", file=JSON_FILE, compiled=compiled, refused=refused, bos_id=first, eos_id=last,
        pad_id=pad_id, unk_id=unk,
    )  # fmt: skip


def _special(tokenizer: Tokenizer, text: str, row: Sequence[int]) -> bool:
    """Does `text` hold the name of a special id on which models read it differently?

    A SentencePiece model takes such a name as ordinary text; RoBERTa gives the pad id inside a text no position.
    """
    processor: Any = tokenizer.processor if isinstance(tokenizer, PieceTokenizer) else None
    controls = (i for i in range(tokenizer.size) if processor and processor.is_control(i))
    return tokenizer.pad_id in row or any(processor.id_to_piece(i) in text for i in controls)


def bundle_or_shipped(given: Path | None) -> Path:
    """The bundle folder that a user named; for none, or a shipped model's name, its Linux bundle in the user's cache,
    which is exported once."""
    name = "msdc-mini" if given is None else str(given)
    if given is not None and name not in shipped_names():
        return given
    # Another version of the package may export otherwise.
    mark = sha256_files([path for path in locate_model(name).iterdir() if path.is_file()])[:16]
    # Without ExecuTorch the bundle holds the ONNX program alone.
    runtime = None if installed("executorch") else "onnx"
    folder = user_cache() / "bundles" / "-".join(filter(None, (__version__, mark, runtime))) / name
    if not (folder / MANIFEST_FILE).is_file():
        say(f"no bundle given: exporting {name} to {folder} (once)")
        shutil.rmtree(folder, ignore_errors=True)  # what is no bundle would not be replaced
        export(name, target="linux", runtime=runtime, out=folder, force=True)
    return folder
