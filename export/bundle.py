"""Load a bundle folder: the exported artifact with its tokenizer.

Shapes: N texts, D sentence width.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msdc.arguments import checked
from msdc.encoders.encoder import SentenceEncoder
from msdc.encoders.folder import EncodeDefaults
from msdc.errors import InputError, named_shortage
from msdc.export.manifest import Manifest, check_files, locate_bundle, read_manifest
from msdc.export.runtimes import RUNTIMES
from msdc.export.schema import Runner
from msdc.export.signature import verify_signature
from msdc.extras import named_extras
from msdc.files import file_state
from msdc.scores import require_finite
from msdc.text.tokenizer import FastTokenizer, PieceTokenizer, Tokenizer

__all__ = ["Bundle", "load_bundle"]


def run_rows(runner: Runner, rows: Sequence[Sequence[int]], prompt_tokens: int, width: int) -> NDArray[np.float32]:
    """Vectors of rows of ids, float32 [N, D]; see `Runner.run`.

    A row without ids has the vector zero: a blank text of a static embedding, whose tokenizer adds no special ids.
    """
    vectors_ND = np.zeros((len(rows), width), dtype=np.float32)
    filled = [number for number, row in enumerate(rows) if len(row)]
    if filled:
        vectors_ND[filled] = runner.run([rows[number] for number in filled], prompt_tokens)
    return vectors_ND


def defaults_of(manifest: Manifest) -> EncodeDefaults:
    """Prompts and the default width that a manifest carries."""
    return EncodeDefaults(manifest.prompts, manifest.default_prompt, manifest.include_prompt, manifest.truncate_dim,
                          manifest.similarity)  # fmt: skip


class Bundle(SentenceEncoder):
    """An exported encoder. Texts longer than `max_length` tokens are truncated, as the float encoder does.

    It can be pickled and copied: the other process or copy opens the folder again, and refuses one that was changed.
    """

    folder: Path
    manifest: Manifest
    runner: Runner
    threads: int | None

    def __init__(
        self, folder: Path, manifest: Manifest, tokenizer: Tokenizer, runner: Runner, threads: int | None = None
    ) -> None:
        super().__init__(manifest.name, tokenizer, manifest.max_length, defaults_of(manifest))
        self.folder, self.manifest, self.runner, self.threads = folder, manifest, runner, threads

    def __reduce__(self) -> tuple[Callable[..., Bundle], tuple[Any, ...]]:
        where = (self.folder.absolute(), self.runtime, self.threads)
        return _open_again, (*where, self._fingerprint(), self.max_length, self.defaults)

    @property
    def runtime(self) -> str:
        """Name of the runtime that runs its program."""
        return self.runner.name

    def __repr__(self) -> str:
        return f"Bundle({self.name!r}, runtime={self.runtime!r}, width={self.width}, max_length={self.max_length})"

    @property
    def full_width(self) -> int:
        """Width of the program's vectors."""
        return self.manifest.width

    @property
    def source(self) -> str:
        """Hash of the model that was exported."""
        return self.manifest.model.source_sha256

    def cosines(self) -> tuple[float, float] | None:
        """Those of the float model, which every device stores in an index; measured if prompt or width were changed."""
        stored = self.manifest.cosines
        if stored is None or self.defaults != defaults_of(self.manifest):
            return super().cosines()
        return stored.mean, stored.deviation

    def _fingerprint(self) -> str:
        """sha256 over the runtime and the manifest, which holds the hashes of all files."""
        return hashlib.sha256(f"{self.runtime} {self.manifest.model_dump_json()}".encode()).hexdigest()

    def _vectors(
        self, rows: list[list[int]], skip: int, batches: Iterable[NDArray[Any]], precision: str
    ) -> NDArray[np.float32]:
        if precision != "float32":
            raise InputError(f"{self.name}: precision {precision}; the program of a bundle has its own")
        self._check([row for row in rows if row])
        return run_rows(self.runner, rows, skip, self.manifest.width)

    def encode_ids(self, rows: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Vectors of rows of token ids, float32 [N, D]; no prompt is added.

        Raises:
            InputError: a row is empty, longer than `max_length`, or holds an id outside the vocabulary.
            MsdcError: a vector holds NaN or infinity.
        """
        self._check(rows)
        return require_finite(run_rows(self.runner, rows, 0, self.manifest.width), self.name)[:, : self.width]

    def _check(self, rows: Sequence[Sequence[int]]) -> None:
        for row in rows:
            if not 1 <= len(row) <= self.max_length:
                raise InputError(f"a row of {len(row)} ids; this bundle takes 1 to {self.max_length}")
            if min(row) < 0 or max(row) >= self.manifest.vocabulary:
                raise InputError(f"an id outside the vocabulary of {self.manifest.vocabulary}")


def open_tokenizer(folder: Path, manifest: Manifest) -> Tokenizer:
    """The tokenizer of a bundle; an `InputError` where its size or special ids are not the manifest's."""
    part = manifest.tokenizer
    tokenizer: Tokenizer
    if part.kind == "tokenizer-json":
        tokenizer = FastTokenizer(folder / part.file, part.pad_id)
    else:
        tokenizer = pieces = PieceTokenizer(folder / part.file)
        special_ids = (pieces.bos_id, pieces.eos_id, pieces.pad_id, pieces.unk_id)
        if special_ids != (part.bos_id, part.eos_id, part.pad_id, part.unk_id):
            raise InputError(f"{folder}: special ids of {part.file} are {special_ids}, not those of the manifest")
    if tokenizer.size > manifest.vocabulary:
        raise InputError(f"{folder}: {part.file} has {tokenizer.size} ids, the model {manifest.vocabulary}")
    return tokenizer


@named_extras("msdc.load_bundle")
@named_shortage("msdc.load_bundle")
@checked
def load_bundle(
    folder: str | Path,
    runtime: str | None = None,
    threads: int | None = None,
    *,
    public_key: str | Path | None = None,
) -> Bundle:
    """Load a bundle: manifest, hashes of all files, tokenizer, program; in that order, so a damaged file never runs.

    Hashes show damage, not origin: whoever changes a bundle can also rewrite them. An ExecuTorch program that was
    neither exported nor run on this machine before is run in a child process first.

    Args:
        folder: the bundle, or the hub id of one, OWNER/NAME or OWNER/NAME@REVISION.
        runtime: executorch or onnx; None takes the first the bundle holds whose package is installed.
        threads: of one inference; None leaves them to the runtime, within the quota of a container.
        public_key: refuse a bundle that is not signed with this key of minisign (`RW...`, or its file).

    Raises:
        InputError: no bundle, a damaged one, one without that runtime, one whose program crashes, or not signed so.
        MissingExtra: the runtime's package is not installed, or `public_key` is given and `cryptography` is not.
    """
    folder = locate_bundle(folder)
    if public_key is not None:
        verify_signature(folder, public_key)
    manifest = read_manifest(folder)
    states = [file_state(folder / name) for name in manifest.files]
    check_files(folder, manifest)
    if not manifest.runtimes:
        raise InputError(f"{folder}: the bundle holds no program")
    runnable = [name for name in manifest.runtimes if RUNTIMES[name].installed]
    chosen = runtime or (runnable or manifest.runtimes)[0]
    manifest.part(chosen)
    record = RUNTIMES[chosen]
    record.require()
    tokenizer = open_tokenizer(folder, manifest)
    record.check(folder, manifest)
    bundle = Bundle(folder, manifest, tokenizer, record.open(folder, manifest, threads), threads)
    if [file_state(folder / name) for name in manifest.files] != states:
        raise InputError(f"{folder}: changed while it was loaded; load it again")
    return bundle


def _open_again(
    folder: Path, runtime: str, threads: int | None, fingerprint: str, max_length: int, defaults: EncodeDefaults
) -> Bundle:
    """The bundle that was pickled, with the settings that it had."""
    bundle = load_bundle(folder, runtime, threads)
    if bundle._fingerprint() != fingerprint:
        raise InputError(f"{folder}: another bundle than the one that was pickled")
    bundle.max_length, bundle.defaults = max_length, defaults
    return bundle
