"""Vectors of texts: computed once per model and distinct text, or truncated to fewer dimensions.

Shapes: N texts, U distinct texts, D sentence width.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np

from msdc.encoders.encoder import SentenceEncoder
from msdc.errors import InputError, MsdcError
from msdc.files import atomic_path
from msdc.progress import track
from msdc.scores import cosine_spread
from msdc.text.quickstart import unrelated_sentences

CHUNK = 1024


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class SupportsEncode(Protocol):
    """Anything that turns a list of N texts into numbers [N, D]: ours, a SentenceTransformer, a class of your own."""

    def encode(self, texts: list[str], /) -> object:
        """One row per text; numpy must be able to read it."""
        ...


class CachedEncoder:
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
        self._asked: dict[str, None] | None = None
        self._table_UD: np.ndarray | None = None
        self._cache_file = cache / f"{key}.npz" if cache is not None and key is not None else None
        if self._cache_file is not None and self._cache_file.is_file():
            self._load(self._cache_file)

    def encode(self, texts: Sequence[str], where: Callable[[int], str] | None = None) -> np.ndarray:
        """Vectors of `texts` in their order, float32 [N, D]; only new texts are passed to the model.

        `where(i)` gives the place of text i for error messages.
        """
        if self._asked is not None:
            self._asked |= dict.fromkeys(texts)
        keys = [_key(text) for text in texts]
        fresh: dict[bytes, int] = {}
        for position, key in enumerate(keys):
            if key not in self._rows:
                fresh.setdefault(key, position)
        if fresh:
            self._compute(texts, list(fresh.values()), where)
            self._rows |= {key: row for row, key in enumerate(fresh, start=len(self._rows))}
        if self._table_UD is None:
            return np.zeros((0, int(getattr(self.model, "width", 0))), dtype=np.float32)
        return self._table_UD[[self._rows[key] for key in keys]]

    def _compute(self, texts: Sequence[str], positions: list[int], where: Callable[[int], str] | None) -> None:
        """Append the vectors of the texts at `positions` to the table."""
        blocks = [] if self._table_UD is None else [self._table_UD]
        starts = range(0, len(positions), CHUNK)
        for start in track(starts, f"encode with {self.name}", enabled=self.progress):
            chunk = positions[start : start + CHUNK]
            block_ND = np.asarray(self.model.encode([texts[i] for i in chunk]), dtype=np.float32)
            if block_ND.ndim != 2 or block_ND.shape != (len(chunk), (*blocks, block_ND)[0].shape[1]):
                raise MsdcError(f"{self.name}: encode of {len(chunk)} texts gave an array of shape {block_ND.shape}")
            bad = np.flatnonzero(~np.isfinite(block_ND).all(axis=1))
            if len(bad):
                origin = where(chunk[bad[0]]) if where else f"text {chunk[bad[0]] + 1}"
                raise MsdcError(f"{origin}: {self.name} gave a vector with NaN or infinity ({len(bad)} such vectors)")
            blocks.append(block_ND)
        self._table_UD = np.concatenate(blocks)
        self.encoded += len(positions)

    def cosines(self) -> tuple[float, float] | None:
        """Mean and standard deviation of the model's cosines of unrelated sentences, by which a search ranks."""
        if isinstance(self.model, SentenceEncoder):
            return self.model.cosines()
        return cosine_spread(self.encode(unrelated_sentences()[0]))

    def count_truncated(self, texts: Sequence[str]) -> int | None:
        """How many of `texts` the model reads only in part; None of a model that does not tell."""
        count = getattr(self.model, "count_truncated", None)
        truncated = None if count is None else count(texts)
        return None if truncated is None else int(truncated)

    @contextmanager
    def counted(self) -> Iterator[Callable[[], int | None]]:
        """A function that counts the distinct texts encoded inside that the model reads only in part."""
        asked = self._asked = {}
        try:
            yield lambda: self.count_truncated(list(asked))
        finally:
            self._asked = None

    @property
    def width(self) -> int:
        """Sentence width D."""
        return int(getattr(self.model, "width") if self._table_UD is None else self._table_UD.shape[1])  # noqa: B009

    def __len__(self) -> int:
        return len(self._rows)

    def save(self) -> None:
        """Write the cache file, where there is one and texts were added."""
        if self._cache_file is None or not self.encoded:
            return
        keys = np.frombuffer(b"".join(self._rows), dtype=np.uint8).reshape(-1, 16)
        with atomic_path(self._cache_file) as temporary, open(temporary, "wb") as handle:
            np.savez(handle, keys=keys, vectors=np.asarray(self._table_UD))

    def _load(self, path: Path) -> None:
        try:
            with np.load(path, allow_pickle=False) as stored:
                keys, vectors_UD = stored["keys"], stored["vectors"].astype(np.float32)
            if keys.shape != (len(vectors_UD), 16) or vectors_UD.ndim != 2 or not np.isfinite(vectors_UD).all():
                raise ValueError(f"shapes {keys.shape} and {vectors_UD.shape}, or not finite")
        except Exception as error:
            raise InputError(f"{path}: damaged vector cache; delete it ({type(error).__name__})") from error
        self._table_UD = vectors_UD
        self._rows = {key.tobytes(): row for row, key in enumerate(keys)}


class TruncatedVectors:
    """A model whose vectors are the first `width` dimensions of another's, as a smaller index would hold them."""

    def __init__(self, store: CachedEncoder, width: int) -> None:
        if not 0 < width < store.width:
            raise InputError(f"`truncate_dims` {width}: {store.name} has {store.width} dimensions, give fewer")
        self.store, self.width, self.name = store, width, f"{store.name} (first {width})"

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors [N, width], not normalized: cosine does not need it."""
        return self.store.encode(texts)[:, : self.width]

    def count_truncated(self, texts: Sequence[str]) -> int | None:
        """See `CachedEncoder.count_truncated`: fewer dimensions are not fewer tokens."""
        return self.store.count_truncated(texts)
