"""`bundle.json`: the description of a bundle, and the checks made before any other file of it is read.

The manifest is sealed: it carries the sha256 of its own bytes, so damage is detected. It does not protect against
forgery: whoever can write the folder can also write a new seal.
"""

from __future__ import annotations

import hashlib
import json
import re
from glob import escape
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from msdc.encoders.folder import Similarity, download, hub_name, hub_sizes, is_reserved
from msdc.errors import InputError, first_line, first_problem
from msdc.export.schema import (
    MANIFEST_FILE,
    ExecutorchPart,
    InsidePath,
    ManifestSection,
    OnnxPart,
    ProgramPart,
    RuntimeName,
    Small,
    TargetName,
)
from msdc.files import link_root, parse_json, regular_size, sha256_file, without_system_files, write_text

GOLDEN_FILE = "golden.json"
MAX_MANIFEST_BYTES = 1024 * 1024
MAX_FILE_BYTES = 4 * 1024**3
MAX_FILES = 4096
_UNSEALED = "0" * 64
_SEAL = re.compile(rb'"seal": "([0-9a-f]{64})"')

Prompt = Annotated[str, Field(max_length=16_384)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class TokenizerPart(ManifestSection):
    """The tokenizer file and its special ids; an id is null where the tokenizer has no such token.

    A `tokenizer-json` also has the form that the native core maps (`compiled`), or the reason why there is none
    (`refused`).
    """

    kind: Literal["sentencepiece", "tokenizer-json"]
    file: InsidePath
    compiled: InsidePath | None = None
    refused: Annotated[str, Field(max_length=1000)] | None = None
    bos_id: int | None
    eos_id: int | None
    pad_id: Annotated[int, Field(ge=0)]
    unk_id: int | None

    @property
    def native_file(self) -> str | None:
        """The file that the native core reads, None where it cannot read this tokenizer."""
        return self.file if self.kind == "sentencepiece" else self.compiled

    def no_native(self) -> str:
        """One line: why the native core cannot read this tokenizer."""
        return self.refused or f"{self.file} was not compiled for the native core; export the model again"


class Programs(ManifestSection):
    """One optional entry per runtime, in the registry's order."""

    executorch: ExecutorchPart | None = None
    onnx: OnnxPart | None = None


class ModelPart(ManifestSection):
    """The float model the artifacts were made from."""

    parameters: Annotated[int, Field(gt=0)]
    embedding_parameters: Annotated[int, Field(ge=0)]
    encoder_parameters: Annotated[int, Field(ge=0)]
    config: dict[str, Any]
    source_sha256: Sha256


class Parity(ManifestSection):
    """Agreement of one artifact's golden vectors with the float model's, and whether the gates passed."""

    mean_cosine: Annotated[float, Field(ge=-1.001, le=1.001)]
    min_cosine: Annotated[float, Field(ge=-1.001, le=1.001)]
    max_abs: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    length_error: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, description="largest relative difference of two vectors' lengths"
    )
    texts: Annotated[int, Field(gt=0)]
    low_bit_share: float | None = Field(default=None, ge=0, le=1, description="share of weight bytes of 8 bits or less")
    passed: bool | None = None
    delegated_share: float | None = Field(
        default=None, ge=0, le=1, description="share of operators inside the runtime's delegate"
    )
    outside: dict[str, int] | None = Field(default=None, description="operators outside the delegate, by name")


class Cosines(ManifestSection):
    """Mean and standard deviation of the float model's cosines of unrelated sentences, by which a search ranks."""

    mean: Annotated[float, Field(ge=-1.001, le=1.001)]
    deviation: Annotated[float, Field(ge=0, le=1.001)]


class FloatScore(ManifestSection):
    """What the float model scores on a data set that `msdc bench` measures, under the bundle's own prompt and width."""

    task: Annotated[str, Field(max_length=100)]
    name: Annotated[str, Field(max_length=200)]
    spearman: Annotated[float, Field(ge=-100.001, le=100.001)]
    pairs: Annotated[int, Field(gt=0)]


class FileRecord(ManifestSection):
    """Size and hash of one file of the bundle."""

    sha256: Sha256
    bytes: Annotated[int, Field(ge=0, le=MAX_FILE_BYTES)]


class Manifest(ManifestSection):
    """The schema of `bundle.json`."""

    format: Literal[1] = 1
    seal: Sha256 = _UNSEALED
    name: Annotated[str, Field(min_length=1, max_length=200)]
    target: TargetName
    width: Small
    truncate_dim: Small | None = Field(default=None, description="numbers of a vector by default; None: width")
    max_length: Small
    vocabulary: Small
    languages: list[str]
    precision: Annotated[str, Field(max_length=100)]
    normalized: bool
    gates: Literal["passed", "skipped"] = "passed"
    prompts: dict[str, Prompt] = Field(default_factory=dict)
    default_prompt: str | None = Field(default=None, description="name of the prompt before every text")
    include_prompt: bool = Field(default=True, description="are the prompt's tokens pooled?")
    similarity: Similarity = Field(default="cosine", description="how its vectors are compared")
    cosines: Cosines | None = None
    tokenizer: TokenizerPart
    programs: Programs
    model: ModelPart
    parity: dict[RuntimeName, Parity]
    float_scores: Annotated[list[FloatScore], Field(max_length=100)] = Field(default_factory=list)
    files: dict[InsidePath, FileRecord]
    versions: dict[str, str]
    licenses: list[str]
    data_sources: list[str]

    @model_validator(mode="after")
    def _files_are_listed(self) -> Manifest:
        programs = [name for runtime in self.runtimes for name in self.program_files(runtime)]
        named = (self.tokenizer.file, self.tokenizer.native_file, GOLDEN_FILE, *programs)
        if absent := [name for name in filter(None, named) if name not in self.files]:
            raise ValueError(f"{absent[0]} is referenced but not listed under files")
        if self.default_prompt is not None and self.default_prompt not in self.prompts:
            raise ValueError(f"default_prompt {self.default_prompt!r} is not among the prompts")
        if self.truncate_dim is not None and self.truncate_dim > self.width:
            raise ValueError(f"truncate_dim {self.truncate_dim} is larger than width {self.width}")
        if len(self.files) > MAX_FILES:
            raise ValueError(f"{len(self.files)} files, more than {MAX_FILES}")
        return self

    @property
    def runtimes(self) -> list[str]:
        """Runtimes the bundle holds a program for, the preferred one first."""
        return [name for name in Programs.model_fields if getattr(self.programs, name) is not None]

    def part(self, runtime: str) -> ProgramPart:
        """The entry of one runtime's program; an `InputError` where the bundle holds none."""
        if runtime not in self.runtimes:
            runtimes = ", ".join(self.runtimes) or "none"
            raise InputError(f"{self.name} holds no program for runtime {runtime!r}; it holds: {runtimes}")
        part: ProgramPart = getattr(self.programs, runtime)
        return part

    def program_files(self, runtime: str) -> list[str]:
        """Names of the files of one runtime's program, the program itself first."""
        return self.part(runtime).files()

    def program_bytes(self, runtime: str) -> int:
        """Bytes of the files of one runtime's program together."""
        return sum(self.files[name].bytes for name in self.program_files(runtime))


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Seal `manifest` and write it into `folder`."""
    value = manifest.model_dump(mode="json")
    value["seal"] = _UNSEALED
    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    seal = hashlib.sha256(text.encode("utf-8")).hexdigest()
    write_text(folder / MANIFEST_FILE, text.replace(f'"seal": "{_UNSEALED}"', f'"seal": "{seal}"', 1))


def locate_bundle(name: str | Path) -> Path:
    """Folder of a bundle: `name` itself, or of a hub id the files that its bundle.json lists, downloaded.

    Args:
        name: a folder, always of a `Path`, or OWNER/NAME, with `@REVISION` for one commit, branch or tag.

    Raises:
        InputError: a hub id that cannot be found, or whose repository holds no bundle.
    """
    hub_id = None if isinstance(name, Path) or is_reserved(name) else hub_name(name)
    if hub_id is None:
        return Path(name)
    # The first file decides what is downloaded; the commit is the same, whatever is pushed meanwhile.
    descriptions = (MANIFEST_FILE, "config.json", "modules.json")
    stated_commit, sizes = hub_sizes(str(name))
    for file in descriptions:
        if sizes.get(file, 0) > MAX_MANIFEST_BYTES:
            raise InputError(f"{name}: {file} has {sizes[file]:,} bytes, more than the {MAX_MANIFEST_BYTES:,} allowed")
    folder = download(str(name), descriptions)
    listed = read_manifest(folder, str(name)).files
    commit = f"{hub_id}@{folder.name}"
    if folder.name != stated_commit:
        _, sizes = hub_sizes(commit)
    for file, record in listed.items():
        if sizes.get(file, record.bytes) != record.bytes:
            raise InputError(
                f"{name}: {file} has {sizes[file]:,} bytes on the hub, {MANIFEST_FILE} lists {record.bytes:,}"
            )
    return download(commit, [MANIFEST_FILE, f"{MANIFEST_FILE}.minisig", *map(escape, listed)])


def read_manifest(folder: str | Path, name: str | None = None) -> Manifest:
    """The manifest of a bundle folder: bounded, sealed, and of this schema. Errors call it `name`, by default `folder`.

    Raises:
        InputError: no bundle, a damaged manifest, or one that names files outside the folder.
    """
    path = Path(folder) / MANIFEST_FILE
    if not path.is_file():
        name = name or str(folder)
        model = is_reserved(name) or any((path.parent / n).is_file() for n in ("config.json", "modules.json"))
        command = f"msdc export {name} --target linux -o {Path(name).name.partition('@')[0]}-linux"
        hint = f"; it is a model: `{command}` makes a bundle of it" if model else ""
        if not model and not path.parent.is_dir():
            raise InputError(f"{name}: {'a file, not a bundle folder' if path.parent.exists() else 'no such folder'}")
        raise InputError(f"{name}: not a bundle (no {MANIFEST_FILE}){hint}")
    if (size := regular_size(path)) > MAX_MANIFEST_BYTES:
        raise InputError(f"{path}: {size} bytes, more than the {MAX_MANIFEST_BYTES} allowed")
    raw = path.read_bytes()
    try:
        manifest = Manifest.model_validate(parse_json(raw.decode("utf-8")))
    except ValidationError as error:
        raise InputError(f"{path}: {first_problem(error)}") from error
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON ({error})") from error
    seals = _SEAL.findall(raw)
    unsealed = _SEAL.sub(f'"seal": "{_UNSEALED}"'.encode(), raw, count=1)
    if not seals or seals[0].decode() != hashlib.sha256(unsealed).hexdigest():
        raise InputError(f"{path}: damaged or edited (its seal does not match); export or copy the bundle again")
    return manifest


def check_files(folder: str | Path, manifest: Manifest) -> None:
    """Every listed file is there, inside the folder, of the listed size and hash.

    Raises:
        InputError: naming the first file that is not.
    """
    folder = Path(folder)
    root = link_root(folder)
    for name, record in manifest.files.items():
        path = folder / name
        try:
            inside = path.resolve().is_relative_to(root)
        except (OSError, RuntimeError) as error:  # a link to itself
            raise InputError(f"{path}: cannot be read ({first_line(error)})") from error
        if not inside:
            raise InputError(f"{path}: leads outside the bundle")
        if not path.is_file():
            raise InputError(f"{folder}: {name} is missing; copy the whole bundle again")
        if (size := regular_size(path)) != record.bytes:
            raise InputError(f"{path}: {size} bytes where the manifest says {record.bytes}; copy the bundle again")
        if sha256_file(path) != record.sha256:
            raise InputError(f"{path}: sha256 differs from the manifest; copy or export the bundle again")


def list_files(folder: Path) -> dict[str, FileRecord]:
    """Size and hash of every file under `folder` except the manifest and those of operating systems, by sorted relative
    name."""
    paths = without_system_files(p for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST_FILE)
    return {p.relative_to(folder).as_posix(): FileRecord(sha256=sha256_file(p), bytes=p.stat().st_size) for p in paths}
