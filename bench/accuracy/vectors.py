"""Vectors of texts, computed once per model and distinct text, and shared by all tasks.

Shapes: N texts, U distinct texts, D sentence width.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from msdc.errors import InputError, MsdcError
from msdc.files import atomic_path
from msdc.progress import track

CHUNK = 1024


class SupportsEncode(Protocol):
    """Anything that turns a list of N texts into numbers [N, D]: ours, a SentenceTransformer, a class of your own."""

    def encode(self, texts: list[str], /) -> object:
        """One row per text; numpy must be able to read it."""
        ...


class VectorStore:
    """A model that encodes each distinct text once.

    `model` is anything with `.encode(texts) -> float32 [N, D]`. With `cache` (a folder) the vectors are kept for later
    runs under `key`, the model's fingerprint.
    """

    def __init__(
        self, model: SupportsEncode, *, progress: bool = False, cache: Path | None = None, key: str | None = None
    ) -> None:
        self.model = model
        self.name = str(getattr(model, "name", type(model).__name__))
        self.progress = progress
        self.encoded = 0
        self._rows: dict[bytes, int] = {}
        self._blocks: list[np.ndarray] = []
        self._joined: np.ndarray | None = None
        self._cache_file = cache / f"{key}.npz" if cache is not None and key is not None else None
        if self._cache_file is not None and self._cache_file.is_file():
            self._load(self._cache_file)

    @staticmethod
    def _key(text: str) -> bytes:
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()

    def encode(self, texts: Sequence[str], where: Callable[[int], str] | None = None) -> np.ndarray:
        """Vectors of `texts` in their order, float32 [N, D]; only new texts are passed to the model.

        `where(i)` gives the place of text i for error messages.

        Raises:
            MsdcError: the model gave a vector with NaN or infinity, or a wrong shape.
        """
        if isinstance(texts, str):
            raise InputError("encode takes a list of texts, not one string")
        keys = [self._key(text) for text in texts]
        fresh: dict[bytes, int] = {}
        for position, key in enumerate(keys):
            if key not in self._rows and key not in fresh:
                fresh[key] = position
        if fresh:
            self._compute(texts, fresh, where)
        if not keys:
            return np.zeros((0, int(getattr(self.model, "width", 0))), dtype=np.float32)
        table_UD = self._table()
        return table_UD[[self._rows[key] for key in keys]]

    def _compute(self, texts: Sequence[str], fresh: dict[bytes, int], where: Callable[[int], str] | None) -> None:
        positions = list(fresh.values())
        chunks = [positions[start : start + CHUNK] for start in range(0, len(positions), CHUNK)]
        for chunk in track(chunks, f"encode with {self.name}", enabled=self.progress):
            block_ND = np.asarray(self.model.encode([texts[i] for i in chunk]), dtype=np.float32)
            if block_ND.ndim != 2 or len(block_ND) != len(chunk) or (self._blocks and block_ND.shape[1] != self.width):
                raise MsdcError(f"{self.name}: encode of {len(chunk)} texts gave an array of shape {block_ND.shape}")
            bad = np.flatnonzero(~np.isfinite(block_ND).all(axis=1))
            if len(bad):
                place = where(chunk[bad[0]]) if where else f"text {chunk[bad[0]] + 1}"
                raise MsdcError(f"{place}: {self.name} gave a vector with NaN or infinity ({len(bad)} such vectors)")
            start = sum(len(block) for block in self._blocks)
            self._blocks.append(block_ND)
            self._joined = None
            for offset, i in enumerate(chunk):
                self._rows[self._key(texts[i])] = start + offset
        self.encoded += len(positions)

    def _table(self) -> np.ndarray:
        if self._joined is None:
            self._joined = self._blocks[0] if len(self._blocks) == 1 else np.concatenate(self._blocks)
            self._blocks = [self._joined]
        return self._joined

    @property
    def width(self) -> int:
        """Sentence width D."""
        return int(self._blocks[0].shape[1]) if self._blocks else int(getattr(self.model, "width"))  # noqa: B009

    def __len__(self) -> int:
        return len(self._rows)

    def save(self) -> None:
        """Write the cache file, where there is one and texts were added."""
        if self._cache_file is None or not self.encoded:
            return
        keys = np.frombuffer(b"".join(self._rows), dtype=np.uint8).reshape(-1, 16)
        order = np.fromiter(self._rows.values(), dtype=np.int64)
        with atomic_path(self._cache_file) as temporary, open(temporary, "wb") as handle:
            np.savez(handle, keys=keys, vectors=self._table()[order])

    def _load(self, path: Path) -> None:
        try:
            with np.load(path, allow_pickle=False) as stored:
                keys, vectors_UD = stored["keys"], stored["vectors"].astype(np.float32)
        except Exception as error:
            raise InputError(f"{path}: damaged vector cache; delete it ({type(error).__name__})") from error
        if keys.ndim != 2 or keys.shape[1] != 16 or vectors_UD.ndim != 2 or len(keys) != len(vectors_UD):
            raise InputError(f"{path}: damaged vector cache; delete it")
        if len(keys) and np.isfinite(vectors_UD).all():
            self._blocks = [vectors_UD]
            self._rows = {key.tobytes(): row for row, key in enumerate(keys)}


class TruncatedVectors:
    """A model whose vectors are the first `width` dimensions of another's, as a smaller index would hold them.

    Raises:
        InputError: `width` is not smaller than the model's own.
    """

    def __init__(self, store: VectorStore, width: int) -> None:
        if not 0 < width < store.width:
            raise InputError(
                f"--truncate-dim {width}: {store.name} has {store.width} dimensions, expected fewer than that"
            )
        self.store = store
        self.width = width
        self.name = f"{store.name} (first {width})"

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors [N, width], not normalized: cosine does not need it."""
        return self.store.encode(texts)[:, : self.width]
