"""Students as encoders that ONNX Runtime runs: the float program, or the int8 program of an export.

The int8 program is kept in the user's cache, by the hash of its model and of the code that writes it. PyTorch is
imported where the module is used.

Shapes: N texts, B batch, D sentence width.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from msdc import __version__
from msdc.compress.loading import load_torch_encoder
from msdc.encoders.encoder import Encoder, Precision, survive_fork
from msdc.encoders.folder import SHIPPED, EncodeDefaults, read_defaults
from msdc.encoders.source import ModelSource
from msdc.errors import InputError, MsdcError, first_line
from msdc.export.onnx.runner import OnnxRunner
from msdc.extras import require
from msdc.files import PACKAGE, atomic_path, drop_oldest, sha256_file, sha256_files, user_cache
from msdc.progress import warn
from msdc.text.tokenizer import PieceTokenizer, Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from msdc.compress.student.weights import StudentWeights
    from msdc.export.schema import Runner

MOST_PROGRAMS = 16  # in the cache; the oldest are dropped
FACTS = ("pad_id", "width", "positions")  # of a student, which its program names
# Modules that decide the bytes of a program.
WRITERS = ("onnx/encoder.py", "smoothing.py", "onnx/graph.py", "onnx/write.py")


class Module:
    """The torch module of a model, opened when it is used; copies of an encoder share it."""

    def __init__(self, open_module: Callable[[], Any]) -> None:
        self._open, self._state = open_module, ()

    @property
    def is_open(self) -> bool:
        """Whether the module has been used."""
        return "value" in vars(self)

    @functools.cached_property
    def value(self) -> Any:
        """The module, in eval mode."""
        require("torch", "the torch module of a model")
        survive_fork()
        module = self._open()
        self._state = _versions(module)
        return module

    @property
    def is_changed(self) -> bool:
        """Whether the weights of an open module are other ones than those of the folder."""
        return self.is_open and _versions(self.value) != self._state


def _versions(module: Any) -> tuple[Any, ...]:
    """What changes with every training step: the tensors of a module and the counters of their changes."""
    return tuple((name, id(value), value._version) for name, value in module.state_dict(keep_vars=True).items())


class ProgramEncoder(Encoder):
    """A model that ONNX Runtime runs.

    In float, its module computes the vectors once it has been used. In int8, the program always does, from the weights
    of the folder; after the module was trained, `encode` is an error. `weights` are those of a float student. `reopen`
    loads the same folder again, for a copy by pickle.
    """

    weights: StudentWeights | None

    def __init__(
        self,
        runner: Callable[[], Runner],
        module: Module,
        width: int,
        tokenizer: Tokenizer,
        max_length: int,
        name: str,
        folder: Path,
        defaults: EncodeDefaults,
        *,
        reopen: functools.partial[Encoder],
        program_sha256: str = "",
        weights: StudentWeights | None = None,
    ) -> None:
        super().__init__(None, tokenizer, max_length, name, folder, defaults)
        self._precision, self.weights = "int8" if program_sha256 else "float", weights
        self._reopen = reopen
        self._runner, self._lazy, self._width, self._sha256 = functools.cache(runner), module, width, program_sha256

    def __reduce__(self) -> tuple[Callable[..., Encoder], tuple[Any, ...]]:
        if self._module is not None or (self.precision == "float" and self._lazy.is_open):
            facts = (self.tokenizer, self._loaded[0], self.name, self.folder, self._loaded[1])
            opened: tuple[Any, ...] = (Encoder, (self.module, *facts))
        else:
            # Another machine may have the shipped models elsewhere.
            where = self.folder.name if self.folder and self.folder.parent == SHIPPED else self.folder
            opened = (open_again, (self._reopen, where, self.name, self._fingerprint()))
        state = {key: vars(self)[key] for key in ("identity", "_mark", "_max_length", "defaults")}
        return *opened, state

    def _open_module(self) -> Any:
        return self._lazy.value

    @property
    def full_width(self) -> int:
        """Width of the vectors."""
        return self._width if self._module is None else int(self._module.width)

    def _fingerprint(self) -> str:
        model = super()._fingerprint()
        return (
            hashlib.sha256(f"{model} int8 {self._sha256}".encode()).hexdigest() if self.precision == "int8" else model
        )

    def _run(self, rows: Sequence[Sequence[int]], skip: int, precision: str) -> NDArray[np.float32]:
        if self.precision == "int8":
            if self._lazy.is_changed:
                raise InputError(
                    f'{self.name}: its module was changed, its int8 program was not; load it with precision="float"'
                )
        elif self._module is not None or self._lazy.is_open or precision != "float32":
            return super()._run(rows, skip, precision)
        return np.asarray(self._runner().run(rows, skip), np.float32)


MOST_OPENED = 4  # encoders that were unpickled
_opened: dict[str, Encoder] = {}  # by how they were loaded and their fingerprint, the oldest first
_OPENING = threading.Lock()


def open_again(reopen: functools.partial[Encoder], where: str | Path, name: str, fingerprint: str) -> Encoder:
    """The encoder that was pickled, opened once in a process; an `InputError` where its folder or program has changed.

    `where` is its folder, or the name of a shipped model.
    """
    key = repr((reopen.func.__name__, reopen.keywords, str(where), fingerprint))
    with _OPENING:
        encoder = _opened.get(key)
        if encoder is None:
            encoder = reopen(ModelSource(SHIPPED / where if isinstance(where, str) else where, name))
            if encoder.fingerprint() != fingerprint:
                raise InputError(f"{where}: another model than the one that was pickled")
            _opened[key] = encoder
            if len(_opened) > MOST_OPENED:
                del _opened[next(iter(_opened))]
        again = copy.copy(encoder)
        if isinstance(again, ProgramEncoder):
            again._lazy = Module(again._lazy._open)  # whoever trains it trains no other
        return again


def load_program_encoder(source: ModelSource, precision: Precision, threads: int | None = None) -> Encoder:
    """A student; ONNX Runtime runs its float program, or the int8 program of its export."""
    encoder = _int8_student(source, threads) if precision == "int8" else _float_student(source, threads)
    if isinstance(encoder.tokenizer, PieceTokenizer):
        encoder.tokenizer.threads = threads
    encoder.identity = source.identity()
    return encoder


def _int8_student(source: ModelSource, threads: int | None) -> Encoder:
    folder, identity = source.folder, source.identity()
    program = _kept_program(identity, lambda: _int8_program(source))
    try:
        runner = OnnxRunner(program.stored, threads=threads)
    except InputError:
        if isinstance(program.stored, bytes) or program.stored.is_file():
            raise
        return _int8_student(source, threads)  # another process dropped it between its check and its opening
    runner.pad_id, width, positions = (int(runner.metadata[key]) for key in FACTS)
    return ProgramEncoder(
        lambda: runner, Module(lambda: float_module(folder, identity)), width, load_tokenizer(folder, runner.pad_id),
        positions, source.name, folder, read_defaults(folder), program_sha256=program.sha256,
        reopen=functools.partial(load_program_encoder, precision="int8", threads=threads),
    )  # fmt: skip


def _float_student(source: ModelSource, threads: int | None) -> Encoder:
    from msdc.compress.student.weights import read_weights
    from msdc.export.onnx.float_program import FloatProgram, check_size

    folder, weights = source.folder, read_weights(source.folder, source.read)
    check_size(weights)
    config, tokenizer = weights.config, load_tokenizer(folder, weights.config.pad_id)

    def open_module() -> Any:
        from msdc.compress.student.model import student_of

        return student_of(weights)

    return ProgramEncoder(
        lambda: FloatProgram(weights, threads).runner, Module(open_module), config.width, tokenizer, config.positions,
        source.name, folder, read_defaults(folder), weights=weights,
        reopen=functools.partial(load_program_encoder, precision="float", threads=threads),
    )  # fmt: skip


def float_module(folder: Path, identity: str) -> Any:
    """The torch module of the model in a folder, which must have the bytes of `identity` still."""
    encoder = load_torch_encoder(folder)
    if encoder.identity != identity:
        raise InputError(f"{folder}: changed since it was loaded; load it again")
    return encoder.module


# --- the int8 program ------------------------------------------------------------------------------------------------


class Program(NamedTuple):
    """A program: its file, or its bytes where it cannot be kept; and their hash."""

    stored: Path | bytes
    sha256: str


@functools.cache
def _writer_sha256() -> str:
    """Hash of the code that writes programs; of nothing in an app that was packed without its source."""
    return sha256_files([path for path in (PACKAGE / "export" / name for name in WRITERS) if path.is_file()])


def _kept_program(identity: str, write: Callable[[], bytes]) -> Program:
    """The program of a model in the user's cache; one that is missing or damaged there is written.

    Its file is named by the model, the code that writes it, and the sha256 of its bytes.
    """
    key = hashlib.sha256(f"{__version__} {_writer_sha256()} {identity}".encode()).hexdigest()[:32]
    with suppress(OSError, MsdcError):
        for path in sorted((user_cache() / "int8").glob(f"{key}-*.onnx")):
            if (sha256 := sha256_file(path)) == path.stem.split("-")[1]:
                return Program(path, sha256)
            path.unlink()
    content = write()
    sha256 = hashlib.sha256(content).hexdigest()
    try:
        path = user_cache() / "int8" / f"{key}-{sha256}.onnx"
        with atomic_path(path) as stage:
            stage.write_bytes(content)
    except (OSError, MsdcError) as error:
        warn(f"the int8 program is written anew by every process: {first_line(error)}")
        return Program(content, sha256)
    drop_oldest(path.parent, "*.onnx", MOST_PROGRAMS)
    return Program(path, sha256)


def _int8_program(source: ModelSource) -> bytes:
    """The program of `msdc export --target linux --runtime onnx`, of the plan that the folder stores, else int8; with
    FACTS as metadata.
    """
    # What writes a program takes half a second to import.
    from onnx.helper import set_model_props

    from msdc.compress.student.plan import check_plan, plan_for
    from msdc.compress.student.weights import read_weights
    from msdc.export.onnx.float_program import FloatProgram
    from msdc.export.onnx.write import build_onnx
    from msdc.export.smoothing import Sizes, calibration_texts, shipped_sizes, smooth_by

    weights = read_weights(source.folder, source.read)
    config = weights.config
    plan = weights.plan or plan_for(config, "int8")
    check_plan(config, plan)

    def channel_sizes() -> Sizes:
        if (shipped := shipped_sizes(source.identity())) is not None:
            return shipped
        rows = load_tokenizer(source.folder, config.pad_id).encode(calibration_texts(), config.positions)
        return FloatProgram(weights).channel_sizes(rows)

    smoothed = smooth_by(weights, plan, channel_sizes)
    model = build_onnx(smoothed, plan, config.positions, "linux")
    set_model_props(model, {key: str(getattr(config, key)) for key in FACTS})
    content: bytes = model.SerializeToString()
    source.identity()  # refuses a folder that changed meanwhile
    return content
