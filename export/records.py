"""The record types of this package: what a runtime and a target must state, and the registry that holds them.

Shapes: N texts, D sentence width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Generic, Protocol, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from msdc.errors import InputError
from msdc.extras import installed, require

if TYPE_CHECKING:
    import numpy as np

    from msdc.compress.quantization.plan import PrecisionPlan
    from msdc.export.generic.model import GenericModel
    from msdc.export.manifest import Manifest
    from msdc.export.reference.smooth import Smoothed

MANIFEST_FILE = "bundle.json"
Small = Annotated[int, Field(gt=0, le=2**24)]


def _inside_path(name: str) -> str:
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or ":" in path.parts[0]:
        raise ValueError(f"path {name!r} would leave the bundle")
    if str(path) != name or name == MANIFEST_FILE:
        raise ValueError(f"path {name!r} is not a plain file name of a bundle")
    return name


InsidePath = Annotated[str, AfterValidator(_inside_path)]


class Section(BaseModel):
    """An object of `bundle.json`: frozen, strict types, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ProgramPart(Section):
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
        ...


@dataclass(frozen=True)
class ProgramRequest:
    """The input of `Runtime.write`: the smoothed float student, its precision plan, and the export options."""

    smoothed: Smoothed
    plan: PrecisionPlan
    max_length: int
    target: str
    style: str
    pad_id: int


@dataclass(frozen=True)
class GenericRequest:
    """The input of `Runtime.write_generic`: the float model, `fp32` or `int8`, and the export options."""

    model: GenericModel
    precision: str
    vocabulary: int
    width: int
    max_length: int
    target: str
    pad_id: int


@dataclass(frozen=True)
class WrittenProgram:
    """The result of `Runtime.write`. `low_bit_share` is None where every weight is float.

    `outside` counts operators that the runtime's delegate did not take, by name, and `delegated_share` is the share
    of operators that it took; None where a runtime has no delegate or all that matters must be in it.
    """

    part: ProgramPart
    runner: Runner
    low_bit_share: float | None
    delegated_share: float | None = None
    outside: dict[str, int] | None = None


class Runtime(ABC):
    """One runtime. Subclasses import the runtime's libraries inside their methods: a record must be cheap to load.

    Attributes:
        name: key in `bundle.json`, value of `--runtime`.
        title: name in prose.
        package: import name of the Python package that runs its programs; "": none is needed.
        part: schema of the runtime's entry under `programs`.
        made_with: Python packages whose versions `bundle.json` records.
        runs_with: Python packages whose versions a measurement records; the first is the runtime itself.
        engine: C++ source under native/src that runs the program, None without a native runner.
    """

    name: str
    title: str
    part: type[ProgramPart]
    made_with: tuple[str, ...]
    runs_with: tuple[str, ...]
    package: str = ""
    engine: str | None = None

    @property
    def installed(self) -> bool:
        """Whether its package is there, so that programs can be run from Python."""
        return not self.package or installed(self.package)

    def require(self) -> None:
        """Fail early where its package is not installed.

        Raises:
            MissingExtra: naming the extra.
        """
        if self.package:
            require(self.package, f"runtime {self.name}")

    @abstractmethod
    def write(self, request: ProgramRequest, folder: Path) -> WrittenProgram:
        """Write the program into `folder`, check it, and open it."""

    def write_generic(self, request: GenericRequest, folder: Path) -> WrittenProgram:
        """The same for a model that is not a `Student` (the generic way).

        Raises:
            InputError: the runtime has no generic way.
        """
        raise InputError(f"runtime {self.name} cannot run {request.model.architecture} models: it has no generic way")

    @abstractmethod
    def check(self, folder: Path, manifest: Manifest) -> None:
        """Check the program against the manifest without running it in this process.

        Raises:
            InputError: damaged, or not the program that the manifest describes.
        """

    @abstractmethod
    def start(self, threads: int) -> None:
        """Import the runtime's libraries and set their process-wide thread count."""

    @abstractmethod
    def open(self, folder: Path, manifest: Manifest, threads: int | None = None) -> Runner:
        """Open a checked program. `threads` None keeps the runtime's default."""

    @abstractmethod
    def readme(self, manifest: Manifest) -> list[str]:
        """Markdown lines of the runtime's section in the bundle's README."""


@dataclass(frozen=True)
class NativeModule:
    """A target's native module.

    Attributes:
        template: its template folder in export/mobile, and its folder in a bundle.
        core: path of the core's sources in it; None: a port of the core, which has a writer of its own.
        runtimes: runtimes it can call, in order of preference.
        sample: template folder of an app that uses it, and the app's folder in a bundle.
    """

    template: str
    core: str | None
    runtimes: tuple[str, ...]
    sample: str | None = None


@dataclass(frozen=True)
class Target:
    """One target.

    Attributes:
        name: value of `--target`.
        runtimes: default runtimes.
        microsoft_operators: may ONNX programs use operators of the `com.microsoft` domain?
        module: module for apps written into the bundle, if any.
    """

    name: str
    runtimes: tuple[str, ...]
    microsoft_operators: bool = True
    module: NativeModule | None = None


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_R = TypeVar("_R", bound=_Named)


class Registry(Generic[_R]):
    """Records by name, in the order of preference."""

    def __init__(self, kind: str, records: Iterable[_R]) -> None:
        self.kind = kind
        self._records = {record.name: record for record in records}

    def add(self, record: _R) -> None:
        """Append a record. Schemas and option lists are built on import: add before importing other modules."""
        self._records[record.name] = record

    def names(self) -> tuple[str, ...]:
        """All names."""
        return tuple(self._records)

    def __iter__(self) -> Iterator[_R]:
        return iter(self._records.values())

    def __getitem__(self, name: str) -> _R:
        """The record called `name`.

        Raises:
            InputError: unknown name; lists the known ones.
        """
        if name not in self._records:
            raise InputError(f"{self.kind} {name!r} is unknown; known: {', '.join(self._records)}")
        return self._records[name]
