"""Runtimes a bundle can hold programs for: one record each.

To add a runtime, write a subclass of `Runtime` and list it in `RUNTIMES`; its schema goes into
`msdc.export.schema.PROGRAM_PARTS` and `msdc.export.manifest.Programs`, its fixed bytes into
`msdc.compress.size.PROGRAM_BYTES`, its section of a bundle's README into `templates/NAME.md.j2`. Option values and
error messages of all packages derive from the registry.

Shapes: N texts, D sentence width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator

from msdc.errors import InputError
from msdc.export.schema import (
    READS_PADDING,
    TARGETS,
    ExecutorchPart,
    OnnxPart,
    ProgramPart,
    ProgramStyle,
    ProgramWriter,
    Registry,
    Runner,
    WrittenProgram,
)
from msdc.extras import installed, require
from msdc.files import sha256_files

if TYPE_CHECKING:
    from msdc.export.manifest import Manifest


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
        """Fail early with a `MissingExtra` that names the extra, where its package is not installed."""
        if self.package:
            require(self.package, f"runtime {self.name}")

    @abstractmethod
    def write(self, folder: Path, model: ProgramWriter, target: str, style: ProgramStyle) -> WrittenProgram:
        """Write a program into `folder`, check it, and open it; `style` is that of ExecuTorch programs."""

    @abstractmethod
    def check(self, folder: Path, manifest: Manifest) -> None:
        """Raise an `InputError` where the program, not run in this process, is not the one the manifest describes."""

    @abstractmethod
    def start(self, threads: int) -> None:
        """Import the runtime's libraries and set their process-wide thread count."""

    @abstractmethod
    def open(self, folder: Path, manifest: Manifest, threads: int | None = None) -> Runner:
        """Open a checked program. `threads` None keeps the runtime's default."""


class ExecutorchRuntime(Runtime):
    """A `.pte` lowered to the XNNPACK delegate."""

    name, title, package, part = "executorch", "ExecuTorch", "executorch", ExecutorchPart
    made_with, runs_with, engine = ("executorch", "torchao"), ("executorch", "torch"), "engine_executorch.cpp"

    @staticmethod
    def _program_facts(manifest: Manifest) -> dict[str, Any]:
        """The program's facts in the manifest, as `ExecutorchRunner` takes them."""
        part: Any = manifest.part("executorch")
        constants = {name: getattr(manifest, name) for name in ("width", "max_length", "vocabulary")}
        constants["repeats"] = part.repeats
        return {"style": part.style, "constants": constants, "takes_prompt": not manifest.include_prompt}

    def write(self, folder: Path, model: ProgramWriter, target: str, style: ProgramStyle) -> WrittenProgram:
        """See `Runtime`."""
        return model.write_executorch(folder / "model.pte", style)

    def check(self, folder: Path, manifest: Manifest) -> None:
        """A program of unknown origin is loaded and run in a child process; `open` compares it with the manifest."""
        from msdc.export.origin import trial_run_if_unknown

        file = manifest.part("executorch").file
        trial_run_if_unknown(folder / file, manifest.files[file].sha256, self._program_facts(manifest))

    def start(self, threads: int) -> None:
        """See `Runtime`."""
        from msdc.export.executorch.program import executorch, set_executorch_threads

        executorch()
        set_executorch_threads(threads)

    def open(self, folder: Path, manifest: Manifest, threads: int | None = None) -> Runner:
        """See `Runtime`."""
        from msdc.export.executorch.program import ExecutorchRunner

        return ExecutorchRunner(
            folder / manifest.part("executorch").file, threads=threads, **self._program_facts(manifest)
        )


class OnnxRuntime(Runtime):
    """An `.onnx` with its weights in an external data file."""

    name, title, package, part = "onnx", "ONNX Runtime", "onnxruntime", OnnxPart
    made_with, runs_with, engine = ("onnx", "onnxruntime"), ("onnxruntime",), "engine_onnx.cpp"

    def write(self, folder: Path, model: ProgramWriter, target: str, style: ProgramStyle) -> WrittenProgram:
        """See `Runtime`."""
        return model.write_onnx(folder / "model.onnx", target)

    def check(self, folder: Path, manifest: Manifest) -> None:
        """See `Runtime`."""
        from msdc.export.onnx import program
        from msdc.export.origin import trial_run_if_unknown

        path = folder / manifest.part("onnx").file
        checked = program.check_onnx_file(path, most_bytes=program.MAX_GRAPH_BYTES)
        input_names = {value.name for value in checked.graph.input}
        expected_names = {"input_ids", "attention_mask"} | (set() if manifest.include_prompt else {"prompt_tokens"})
        if input_names != expected_names:
            raise InputError(f"{path}: the program's inputs are {sorted(input_names)}, not {sorted(expected_names)}")
        facts = {"constants": {"vocabulary": manifest.vocabulary, "max_length": manifest.max_length}}
        # The same bytes as at export; of another name they are unknown, no more.
        parts = [path, *(folder / name for name in program.external_files(checked, path))]
        trial_run_if_unknown(path, sha256_files(parts), facts, "onnxruntime")

    def start(self, threads: int) -> None:
        """Threads belong to a session: `open` sets them."""
        import onnxruntime  # noqa: F401

    def open(self, folder: Path, manifest: Manifest, threads: int | None = None) -> Runner:
        """See `Runtime`."""
        from msdc.export.onnx.runner import OnnxRunner

        padded = not manifest.model.config.get(READS_PADDING)
        path, pad_id = folder / manifest.part("onnx").file, manifest.tokenizer.pad_id
        return OnnxRunner(path, pad_id=pad_id, threads=threads, padded=padded)


# In order of preference: the first that a bundle holds is the default.
RUNTIMES: Registry[Runtime] = Registry("runtime", [ExecutorchRuntime(), OnnxRuntime()])
# The value of --runtime for all of them.
EVERY = "both"


def runtime_choices() -> list[str]:
    """Values of a `--runtime` option that takes one runtime or all."""
    return [*RUNTIMES.names(), EVERY]


RuntimeChoice = Annotated[str | None, AfterValidator(lambda name: name and expand(name) and name)]


def expand(choice: str) -> tuple[str, ...]:
    """Names behind a value of `runtime_choices`."""
    return RUNTIMES.names() if choice == EVERY else (RUNTIMES[choice].name,)


def default_runtimes_help() -> str:
    """The default runtimes of all targets in words: "executorch for android and ios, both for linux"."""
    groups: dict[str, list[str]] = {}
    for target in TARGETS:
        label = EVERY if set(target.runtimes) == set(RUNTIMES.names()) else " and ".join(target.runtimes)
        groups.setdefault(label, []).append(target.name)
    listed = {label: " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) for label, names in groups.items()}
    return ", ".join(f"{label} for {names}" for label, names in listed.items())
