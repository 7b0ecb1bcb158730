"""Vectors of texts: computed once per model and distinct text, truncated to fewer dimensions, or read from files.

Shapes: N texts, U distinct texts, D sentence width.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from msdc.bench.accuracy import SupportsEncode
from msdc.errors import InputError, MsdcError
from msdc.files import atomic_path, sha256_files
from msdc.progress import track
from msdc.text.text_files import read_lines

CHUNK = 1024


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


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
        self._cache_file = cache / f"{key}.npz" if cache is not None and key is not None else None
        if self._cache_file is not None and self._cache_file.is_file():
            self._load(self._cache_file)

    def encode(self, texts: Sequence[str], where: Callable[[int], str] | None = None) -> np.ndarray:
        """Vectors of `texts` in their order, float32 [N, D]; only new texts are passed to the model.

        `where(i)` gives the place of text i for error messages.

        Raises:
            MsdcError: the model gave a vector with NaN or infinity, or a wrong shape.
        """
        if isinstance(texts, str):
            raise InputError("encode takes a list of texts, not one string")
        keys = [_key(text) for text in texts]
        fresh: dict[bytes, int] = {}
        for position, key in enumerate(keys):
            if key not in self._rows:
                fresh.setdefault(key, position)
        if fresh:
            self._compute(texts, fresh, where)
        if not keys:
            return np.zeros((0, int(getattr(self.model, "width", 0))), dtype=np.float32)
        table_UD = self._table()
        return table_UD[[self._rows[key] for key in keys]]

    def _compute(self, texts: Sequence[str], fresh: dict[bytes, int], where: Callable[[int], str] | None) -> None:
        entries = list(fresh.items())
        chunks = [entries[start : start + CHUNK] for start in range(0, len(entries), CHUNK)]
        for chunk in track(chunks, f"encode with {self.name}", enabled=self.progress):
            block_ND = np.asarray(self.model.encode([texts[i] for _, i in chunk]), dtype=np.float32)
            if block_ND.ndim != 2 or len(block_ND) != len(chunk) or (self._blocks and block_ND.shape[1] != self.width):
                raise MsdcError(f"{self.name}: encode of {len(chunk)} texts gave an array of shape {block_ND.shape}")
            bad = np.flatnonzero(~np.isfinite(block_ND).all(axis=1))
            if len(bad):
                position = chunk[bad[0]][1]
                place = where(position) if where else f"text {position + 1}"
                raise MsdcError(f"{place}: {self.name} gave a vector with NaN or infinity ({len(bad)} such vectors)")
            self._blocks.append(block_ND)
            for key, _ in chunk:
                self._rows[key] = len(self._rows)
        self.encoded += len(entries)

    def _table(self) -> np.ndarray:
        if len(self._blocks) > 1:
            self._blocks = [np.concatenate(self._blocks)]
        return self._blocks[0]

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
        with atomic_path(self._cache_file) as temporary, open(temporary, "wb") as handle:
            np.savez(handle, keys=keys, vectors=self._table())

    def _load(self, path: Path) -> None:
        try:
            with np.load(path, allow_pickle=False) as stored:
                keys, vectors_UD = stored["keys"], stored["vectors"].astype(np.float32)
            if keys.shape != (len(vectors_UD), 16) or vectors_UD.ndim != 2 or not np.isfinite(vectors_UD).all():
                raise ValueError(f"shapes {keys.shape} and {vectors_UD.shape}, or not finite")
        except Exception as error:
            raise InputError(f"{path}: damaged vector cache; delete it ({type(error).__name__})") from error
        if len(keys):
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


class VectorFiles:
    """Texts and vectors that another encoder wrote to files (LASER, mUSE), as a model that encodes these texts only.

    The folder holds pairs of files, usually one pair per language: `NAME.txt` with one text per line and `NAME.npy`
    with the vectors of its lines, float [N, D]. A text in several files has the vector of the first file by name.

    Raises:
        InputError: no pair of files, a text file without vectors, an array that is not [N, D] numbers with one row for
            each line, or widths that differ.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.name = self.folder.resolve().name
        self.files: list[Path] = []
        self._places: dict[str, tuple[int, int]] = {}
        self._arrays: list[np.ndarray] = []
        for path in sorted(self.folder.glob("*.txt")):
            self._add(path, path.with_suffix(".npy"))
        if not self._arrays:
            raise InputError(f"{folder}: no vectors; expected pairs of files NAME.txt and NAME.npy")
        self.width = int(self._arrays[0].shape[1])

    def _add(self, path: Path, vectors: Path) -> None:
        texts = [line.strip() for line in read_lines(path).lines]
        try:
            # Mapped, not read: a pool of 200,000 vectors of LASER is 800 MB.
            array_ND = np.load(vectors, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError:
            raise InputError(f"{path}: no {vectors.name} beside it with the vectors of its lines") from None
        except Exception as error:
            raise InputError(f"{vectors}: not an array of numpy ({type(error).__name__})") from error
        if not isinstance(array_ND, np.ndarray) or array_ND.ndim != 2 or array_ND.dtype.kind != "f":
            raise InputError(f"{vectors}: expected floating-point vectors [N, D]")
        if len(array_ND) != len(texts):
            raise InputError(f"{vectors}: {len(array_ND)} vectors for the {len(texts)} lines of {path.name}")
        if self._arrays and array_ND.shape[1] != self._arrays[0].shape[1]:
            raise InputError(f"{vectors}: width {array_ND.shape[1]}, the other vectors have {self._arrays[0].shape[1]}")
        for row, text in enumerate(texts):
            self._places.setdefault(text, (len(self._arrays), row))
        self._arrays.append(array_ND)
        self.files += [path, vectors]

    def missing(self, texts: Sequence[str]) -> list[str]:
        """Those of `texts` that have no vector."""
        return [text for text in dict.fromkeys(texts) if text.strip() not in self._places]

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of `texts`, float32 [N, D].

        Raises:
            MsdcError: a text without a vector.
        """
        if absent := self.missing(texts):
            raise MsdcError(f"{self.name}: {len(absent)} texts have no vector, the first: {absent[0][:60]!r}")
        rows = [self._arrays[file][row] for file, row in (self._places[text.strip()] for text in texts)]
        return np.array(rows, dtype=np.float32).reshape(len(rows), self.width)

    def fingerprint(self) -> str:
        """Hash of all files."""
        return sha256_files(self.files)
