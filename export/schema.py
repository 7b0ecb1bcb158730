"""What export writes, as data: sections of `bundle.json`, programs and their runners, targets.

To add a target, list one `Target` in `TARGETS`; option values and error messages derive from it.

Shapes: N texts, D sentence width.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Generic, Literal, NamedTuple, Protocol, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from msdc.encoders.folder import BUNDLE_FILE
from msdc.errors import InputError

if TYPE_CHECKING:
    import numpy as np

MANIFEST_FILE = BUNDLE_FILE
# Key of `model.config` in the manifest: vectors depend on the padding of a batch.
READS_PADDING = "reads_padding"
Small = Annotated[int, Field(gt=0, le=2**24)]
ProgramStyle = Literal["multi-method", "forward", "masked"]


def _inside_path(name: str) -> str:
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or ":" in path.parts[0]:
        raise ValueError(f"path {name!r} would leave the bundle")
    if str(path) != name or name == MANIFEST_FILE:
        raise ValueError(f"path {name!r} is not a plain file name of a bundle")
    return name


InsidePath = Annotated[str, AfterValidator(_inside_path)]


class ManifestSection(BaseModel):
    """An object of `bundle.json`: frozen, strict types, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ProgramPart(ManifestSection):
    """The entry of one runtime under `programs` in `bundle.json`; `file` is the program itself."""

    file: InsidePath

    def files(self) -> list[str]:
        """Names of all files of the program inside the bundle, `file` first."""
        return [self.file]


class Runner(Protocol):
    """An opened program."""

    name: str

    def run(self, rows: Sequence[Sequence[int]], prompt_tokens: int = 0) -> np.ndarray:
        """float32 [N, D] of ragged rows of token ids.

        The first `prompt_tokens` of each row are not pooled; only programs of models with `include_prompt: false` take
        the number, others pool every token.
        """


@dataclass(frozen=True)
class WrittenProgram:
    """A program as it was written and opened. `low_bit_share` is None where every weight is float.

    `outside` counts operators that the runtime's delegate did not take, by name, and `delegated_share` is the share
    of operators that it took; None where a runtime has no delegate or all that matters must be in it.
    """

    part: ProgramPart
    runner: Runner
    low_bit_share: float | None
    delegated_share: float | None = None
    outside: dict[str, int] | None = None


class ProgramWriter(Protocol):
    """A model that an exporter prepared: it writes its program for each runtime."""

    @abstractmethod
    def write_executorch(self, path: Path, style: ProgramStyle) -> WrittenProgram:
        """Write and open a `.pte`."""

    @abstractmethod
    def write_onnx(self, path: Path, target: str) -> WrittenProgram:
        """Write and open an `.onnx`, with its weights in a file next to it."""

    def write_core_ml(self, path: Path) -> None:
        """Write a Core ML package and check its structure; `InputError` where an exporter writes none."""
        raise InputError("`core_ml`: only the canonical exporter writes it (students and BERT-family models)")


class ExecutorchPart(ProgramPart):
    """A `.pte`: `multi-method` (embed, unit x repeats, pool) or one `forward`."""

    style: ProgramStyle
    repeats: Small


class OnnxPart(ProgramPart):
    """An `.onnx` and its external data file."""

    data: InsidePath | None
    opset: Small

    def files(self) -> list[str]:
        """All files of the program, the `.onnx` first."""
        return [self.file] + ([self.data] if self.data else [])


class NativeModule(NamedTuple):
    """A target's module for apps."""

    template: str  # its template folder in export/mobile, and its folder in a bundle
    core: str | None  # path of the core's sources in it; None: the module has none, and a writer of its own
    runtimes: tuple[str, ...]  # that it can call, in order of preference
    answers: str = ""  # path in it of what a search should find, for its tests
    apart: bool = False  # in a folder next to the bundle, which an app takes as it is
    own_tokenizer: bool = True  # tokenizes as the core does; False: the app's package reads a tokenizer.json


class Target(NamedTuple):
    """One target: value of `--target`, default runtimes, whether ONNX programs may use operators of the domain
    com.microsoft, the module for apps that is written into the bundle, if any, and the one style of program that it
    takes."""

    name: str
    runtimes: tuple[str, ...]
    microsoft_operators: bool = True
    module: NativeModule | None = None
    style: ProgramStyle | None = None


_R = TypeVar("_R")


class Registry(Generic[_R]):
    """Records by name, in the order of preference; an unknown name is an `InputError` that lists the known ones."""

    def __init__(self, kind: str, records: Iterable[_R]) -> None:
        self.kind = kind
        self._records: dict[str, _R] = {str(getattr(record, "name", "")): record for record in records}

    def names(self) -> tuple[str, ...]:
        """All names."""
        return tuple(self._records)

    def __iter__(self) -> Iterator[_R]:
        return iter(self._records.values())

    def __getitem__(self, name: str) -> _R:
        if name not in self._records:
            raise InputError(f"{self.kind} {name!r} is unknown; known: {', '.join(self._records)}")
        return self._records[name]


_ANDROID = NativeModule("android", "src/main/cpp/core", ("executorch", "onnx"), "src/androidTest/assets/search.tsv")
_IOS = NativeModule("ios", "Sources/MSDCCore", ("executorch",), "Tests/MSDCTests/search.tsv", apart=True)
_REACT_NATIVE = NativeModule("react-native", None, ("executorch",), own_tokenizer=False)
TARGETS: Registry[Target] = Registry(
    "target",
    [
        Target("android", ("executorch",), module=_ANDROID),
        Target("ios", ("executorch",), module=_IOS),
        Target("linux", ("executorch", "onnx")),
        # Engines other than ONNX Runtime should be able to run the program.
        Target("web", ("onnx",), microsoft_operators=False, module=NativeModule("web", None, ("onnx",))),
        Target("react-native", ("executorch",), module=_REACT_NATIVE, style="masked"),
    ],
)


def _one_of(names: tuple[str, ...]) -> Callable[[str], str]:
    def check_name(name: str) -> str:
        if name not in names:
            raise ValueError(f"Input should be one of {', '.join(names)}")
        return name

    return check_name


# Runtime -> the schema of its program, in the order of preference.
PROGRAM_PARTS: dict[str, type[ProgramPart]] = {"executorch": ExecutorchPart, "onnx": OnnxPart}
RuntimeName = Annotated[
    str, AfterValidator(_one_of(tuple(PROGRAM_PARTS))), Field(json_schema_extra={"enum": list(PROGRAM_PARTS)})
]
TargetName = Annotated[
    str, AfterValidator(_one_of(TARGETS.names())), Field(json_schema_extra={"enum": list(TARGETS.names())})
]
