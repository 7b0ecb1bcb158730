"""Write a bundle: programs, tokenizer, golden vectors, manifest; the folder appears complete or not at all.

Shapes: N texts, D sentence width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from msdc.compress.quantization.plan import PrecisionPlan
from msdc.encoders.folder import EncodeDefaults, with_prompt
from msdc.errors import GateError, InputError
from msdc.export.executorch.record import Style
from msdc.export.manifest import (
    Manifest,
    Parity,
    Programs,
    TokenizerPart,
    list_files,
    read_manifest,
    write_manifest,
)
from msdc.export.mobile.module import require_module, write_native_module
from msdc.export.readme import bundle_readme
from msdc.export.records import ProgramPart
from msdc.export.reference.float_model import TorchModel
from msdc.export.reference.gates import FP32, Thresholds, measure, shortfalls, tokenizers_agree
from msdc.export.reference.golden import golden_texts, write_golden
from msdc.export.runtimes import RUNTIMES, RuntimeName
from msdc.export.targets import TARGETS, TargetName
from msdc.export.tokenizer.compile import COMPILED_FILE, compile_tokenizer
from msdc.export.ways import Prepared, prepare_student
from msdc.files import staged_folder, write_text
from msdc.text.tokenizer import JSON_FILE, MODEL_FILE, FastTokenizer, PieceTokenizer, Tokenizer, prompt_tokens

# Versions recorded in the manifest beside those of the runtimes' own packages.
BEFORE, AFTER = ("msdc", "torch"), ("sentencepiece", "tokenizers")

if TYPE_CHECKING:
    from msdc.compress.student.model import Student

Say = Callable[[str], None]
# Vectors [N, D] of texts after a prompt, as the model itself encodes them; None: the model is ours.
Reference = Callable[[Sequence[str], str], np.ndarray | None]


class BundleOptions(BaseModel):
    """How to export. `precision` names a plan of msdc.compress.quantization.plan, or is such a plan."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: TargetName = "linux"
    runtimes: tuple[RuntimeName, ...] | None = Field(default=None, description="None: the target's own")
    precision: str | PrecisionPlan = "fp32"
    style: Style = "multi-method"
    max_length: int | None = Field(default=None, gt=1, description="tokens; None: the model's own")
    gates: bool = True
    sample: bool = Field(default=False, description="write the target's sample app too")
    module: bool = Field(default=True, description="write the target's module for apps, if it has one")
    with_runtime: bool = Field(default=False, description="copy the runtime beside the module (web)")
    stock: Path | None = Field(default=None, description="folder of a stock model, which other libraries may read")
    prompts: dict[str, str] = Field(default_factory=dict)
    default_prompt: str | None = None
    include_prompt: bool = Field(default=True, description="are the prompt's tokens pooled?")
    truncate_dim: int | None = Field(default=None, gt=0, description="numbers of a vector by default; None: all")
    thresholds: Thresholds | None = Field(default=None, description="None: those of the precision")
    languages: tuple[str, ...] = ()
    licenses: tuple[str, ...] = ()
    data_sources: tuple[str, ...] = ()
    source_sha256: str | None = None


def _versions() -> dict[str, str]:
    found = {}
    for name in (*BEFORE, *(package for runtime in RUNTIMES for package in runtime.made_with), *AFTER):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _tokenizer_part(tokenizer: Tokenizer) -> TokenizerPart:
    if isinstance(tokenizer, PieceTokenizer):
        return TokenizerPart(
            kind="sentencepiece",
            file=MODEL_FILE,
            bos_id=tokenizer.bos_id,
            eos_id=tokenizer.eos_id,
            pad_id=tokenizer.pad_id,
            unk_id=tokenizer.unk_id if tokenizer.unk_id >= 0 else None,
        )
    if isinstance(tokenizer, FastTokenizer):
        # The special ids that the template adds to an empty text.
        ends = tokenizer.encode([""], 8)[0]
        unk = tokenizer.backend.token_to_id("[UNK]")
        unk = tokenizer.backend.token_to_id("<unk>") if unk is None else unk
        return TokenizerPart(
            kind="tokenizer-json",
            file=JSON_FILE,
            bos_id=ends[0] if ends else None,
            eos_id=ends[-1] if ends else None,
            pad_id=tokenizer.pad_id,
            unk_id=unk,
        )
    raise InputError(f"a tokenizer of kind {type(tokenizer).__name__} cannot be exported")


def _silent(message: str) -> None:
    del message


def _write_tokenizer(tokenizer: Tokenizer, max_length: int, stage: Path, texts: list[str], say: Say) -> TokenizerPart:
    part = _tokenizer_part(tokenizer)
    source = tokenizer.files[0]
    (stage / part.file).write_bytes(source.read_bytes())
    if part.kind == "sentencepiece":
        say("tokenizer: compare tokenizer.model with its tokenizer.json")
        tokenizers_agree(source, texts, max_length, stage)
        (stage / JSON_FILE).unlink(missing_ok=True)
        return part
    say("tokenizer: compile tokenizer.json for the native core")
    try:
        (stage / COMPILED_FILE).write_bytes(compile_tokenizer(source))
    except InputError as error:
        say(str(error))
        return part.model_copy(update={"refused": str(error)[:1000]})
    return part.model_copy(update={"compiled": COMPILED_FILE})


def _names_special_ids(tokenizer: Tokenizer, text: str, row: Sequence[int]) -> bool:
    """Does `text` hold the name of a special id on which models read it differently?

    A SentencePiece model takes such a name as ordinary text; RoBERTa gives the pad id inside a text no position.
    """
    if tokenizer.pad_id in row:
        return True
    if not isinstance(tokenizer, PieceTokenizer):
        return False
    processor = tokenizer.processor
    return any(processor.id_to_piece(i) in text for i in range(tokenizer.size) if processor.is_control(i))


def _reference_vectors(
    ours_ND: np.ndarray,
    tokenizer: Tokenizer,
    prompt: str,
    texts: Sequence[str],
    rows: Sequence[Sequence[int]],
    reference: Reference | None,
    gates: bool,
    say: Say,
) -> np.ndarray:
    """The vectors [N, D] that artifacts are compared with: the model's own encoding of `texts`, which hold `prompt`.

    Raises:
        GateError: our ids and modules give other vectors: this export reads the model differently.
    """
    own_ND = None if reference is None else reference([text[len(prompt) :] for text in texts], prompt)
    if own_ND is None:
        return ours_ND
    # Names of special ids in a text are the one intended difference.
    pairs = enumerate(zip(texts, rows, strict=True))
    apart = [number for number, (text, row) in pairs if _names_special_ids(tokenizer, text, row)]
    own_ND[apart] = ours_ND[apart]
    found = measure(own_ND, ours_ND, None)
    say(f"float: mean cosine {found.mean_cosine:.6f} to the model's own encoding, min {found.min_cosine:.6f}")
    short = shortfalls(found, FP32)
    if short and gates:
        raise GateError(f"the model's own encoding differs from this export's: {'; '.join(short)}")
    return own_ND


def write_bundle(
    student: Student,
    tokenizer: Tokenizer,
    out: Path,
    *,
    name: str | None = None,
    options: BundleOptions | None = None,
    force: bool = False,
    say: Say = _silent,
) -> Manifest:
    """Export `student` into the bundle folder `out`; the folder appears complete, with all gates passed, or not at all.

    Raises:
        InputError: `out` exists without force, or the student, tokenizer and options do not fit each other.
        GateError: a gate failed (see export/reference/gates.py); nothing is left on disk.
        MsdcError: a step failed.
    """
    options = options or BundleOptions()
    prepared = prepare_student(TorchModel(student), tokenizer, options)
    return write_prepared(prepared, tokenizer, out, name=name, options=options, force=force, say=say)


def write_prepared(
    prepared: Prepared,
    tokenizer: Tokenizer,
    out: Path,
    *,
    name: str | None = None,
    options: BundleOptions,
    force: bool = False,
    say: Say = _silent,
    reference: Reference | None = None,
) -> Manifest:
    """Write the bundle of a model that a way made ready; see `write_bundle`.

    `reference` gives the vectors that artifacts are compared with; without it the vectors of `prepared`.

    Raises:
        InputError, GateError, MsdcError: as `write_bundle`.
    """
    out, max_length = Path(out), prepared.max_length
    with staged_folder(out, force) as stage:
        # As a plain `encode(text)` would tokenize them: with the default prompt.
        defaults = EncodeDefaults(options.prompts, options.default_prompt, options.include_prompt)
        prompt = defaults.prompt()
        texts = with_prompt(prompt, golden_texts())
        runtimes = options.runtimes or TARGETS[options.target].runtimes
        part = _write_tokenizer(tokenizer, max_length, stage, texts, say)
        if options.module:
            require_module(options.target, part, runtimes)
        rows = tokenizer.encode(texts, max_length)
        # Static embeddings add no special ids: a blank text has no ids and needs no program.
        texts = [text for text, row in zip(texts, rows, strict=True) if row]
        rows = [row for row in rows if row]
        skip = 0 if options.include_prompt else prompt_tokens(tokenizer, prompt, max_length)
        ours_ND = prepared.vectors(rows, skip)
        vectors = {"float": _reference_vectors(ours_ND, tokenizer, prompt, texts, rows, reference, options.gates, say)}
        parity: dict[str, Parity] = {}
        programs: dict[str, ProgramPart] = {}
        for runtime in runtimes:
            say(f"{runtime}: lower {prepared.precision} for {options.target}, lengths 1 to {max_length}")
            written = prepared.write(runtime, stage)
            programs[runtime], vectors[runtime] = written.part, written.runner.run(rows, skip)
            found = measure(vectors["float"], vectors[runtime], written.low_bit_share)
            say(f"{runtime}: mean cosine {found.mean_cosine:.6f}, min {found.min_cosine:.6f}, max abs {found.max_abs}")
            short = shortfalls(found, prepared.wanted)
            if short and options.gates:
                raise GateError(f"{runtime} {prepared.precision}: {'; '.join(short)} (--no-gates writes it anyway)")
            parity[runtime] = found.model_copy(
                update={
                    "passed": not short,
                    "delegated_share": written.delegated_share,
                    "outside": written.outside,
                }
            )
            # Windows renames no folder with an open file, and the runner maps its file.
            del written
        write_golden(stage, texts, rows, vectors)
        manifest = Manifest(
            name=name or out.name,
            target=options.target,
            width=prepared.width,
            truncate_dim=options.truncate_dim,
            max_length=max_length,
            vocabulary=prepared.vocabulary,
            languages=list(options.languages),
            precision=prepared.precision,
            normalized=prepared.normalized,
            gates="passed" if options.gates else "skipped",
            prompts=options.prompts,
            default_prompt=options.default_prompt,
            include_prompt=options.include_prompt,
            tokenizer=part,
            programs=Programs.model_validate(programs),
            model=prepared.part,
            parity=parity,
            files=list_files(stage),
            versions=_versions(),
            licenses=list(options.licenses),
            data_sources=list(options.data_sources),
        )
        folders: tuple[str, ...] = ()
        if options.module:
            folders = write_native_module(
                stage, options.target, manifest, sample=options.sample, with_runtime=options.with_runtime,
                stock=options.stock, say=say,
            )  # fmt: skip
        write_text(stage / "README.md", bundle_readme(manifest, folders))
        write_manifest(stage, manifest.model_copy(update={"files": list_files(stage)}))
    say(f"bundle: {out}")
    return read_manifest(out)
