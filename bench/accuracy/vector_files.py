"""Vectors that another encoder has written to files: LASER, mUSE, or any model that does not run here.

A folder holds pairs of files, usually one pair per language: `NAME.txt` with one text per line and `NAME.npy` with the
vectors of its lines, float [N, D].

Shapes: N texts, D sentence width.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from msdc.errors import InputError, MsdcError
from msdc.files import sha256_files
from msdc.text.text_files import read_lines


class VectorFiles:
    """The texts and vectors of a folder, as a model that can encode these texts only.

    A text that stands in several files has the vector of the first file by name.

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
        if not vectors.is_file():
            raise InputError(f"{path}: no {vectors.name} beside it with the vectors of its lines")
        texts = [line.strip() for line in read_lines(path).lines]
        try:
            # Mapped, not read: a pool of 200,000 vectors of LASER is 800 MB.
            array_ND = np.load(vectors, mmap_mode="r", allow_pickle=False)
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
