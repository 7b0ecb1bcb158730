"""Chunks of rows to batches of near-equal length.

Shapes: B pairs, T tokens, D guide width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from msdc.distill.data.sources import Row
from msdc.text.packing import pad
from msdc.text.tokenizer import Tokenizer

CHUNK_PAIRS = 16_384
# Batches whose guide vectors are made ready together: enough to pack by length, few enough to begin at once.
WINDOW = 16


@dataclass
class Batch:
    """What one step sees. A side that the stage does not have is None."""

    rows: list[Row]
    source: tuple[Tensor, Tensor]
    target: tuple[Tensor, Tensor] | None
    third: tuple[Tensor, Tensor] | None = None
    guide_source_BD: Tensor | None = None
    guide_target_BD: Tensor | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def languages(self) -> list[str]:
        return [row.language for row in self.rows]


@dataclass
class Chunk:
    """A tokenized chunk and its cut into batches."""

    rows: list[Row]
    source_ids: list[list[int]]
    target_ids: list[list[int]] | None
    third_ids: list[list[int]] | None
    cuts: list[np.ndarray]
    pad_id: int

    def batch(
        self, number: int, guide_source_BD: np.ndarray | None = None, guide_target_BD: np.ndarray | None = None
    ) -> Batch:
        """Batch `number` as tensors."""
        pick = self.cuts[number]

        def side(ids: list[list[int]] | None) -> tuple[Tensor, Tensor] | None:
            return None if ids is None else pad([ids[i] for i in pick], self.pad_id)

        def vectors(guide: np.ndarray | None) -> Tensor | None:
            return None if guide is None else torch.from_numpy(guide)

        source = side(self.source_ids)
        assert source is not None
        return Batch(
            [self.rows[i] for i in pick],
            source,
            side(self.target_ids),
            side(self.third_ids),
            vectors(guide_source_BD),
            vectors(guide_target_BD),
        )


def cut(lengths: np.ndarray, batch: int, batch_tokens: int | None, rng: np.random.Generator) -> list[np.ndarray]:
    """Indices cut into batches of near-equal length, in random order.

    With `batch_tokens` a batch holds as many pairs as keep (pairs x longest side) within it, at least one; without,
    exactly `batch` pairs (the last one fewer). Equal lengths are shuffled among themselves, so batches differ from
    epoch to epoch.
    """
    order = np.lexsort((rng.random(len(lengths)), lengths))
    cuts = []
    start = 0
    while start < len(order):
        size = batch
        if batch_tokens is not None:
            # Shortest first: grow the batch while its longest row still fits the budget.
            window = lengths[order[start : start + batch_tokens]]
            fits = (np.arange(1, len(window) + 1) * window) <= batch_tokens
            size = max(1, int(fits.argmin()) if not fits.all() else len(window))
        cuts.append(order[start : start + size])
        start += size
    return [cuts[i] for i in rng.permutation(len(cuts))]


def make_chunk(
    rows: list[Row],
    tokenizer: Tokenizer,
    max_length: int,
    batch: int,
    batch_tokens: int | None,
    rng: np.random.Generator,
) -> Chunk:
    """Tokenize and cut one chunk."""

    def ids(texts: Sequence[str]) -> list[list[int]] | None:
        return tokenizer.encode(texts, max_length) if any(texts) else None

    source_ids = tokenizer.encode([row.source for row in rows], max_length)
    target_ids = ids([row.target for row in rows])
    if target_ids is not None:
        # English-only text among pairs stands for its own translation.
        target_ids = [
            own if row.target else source for own, source, row in zip(target_ids, source_ids, rows, strict=True)
        ]
    third_ids = ids([row.third for row in rows])
    lengths = np.array([len(row) for row in source_ids])
    for side in (target_ids, third_ids):
        if side is not None:
            lengths = np.maximum(lengths, [len(row) for row in side])
    cuts = cut(lengths, batch, batch_tokens, rng)
    return Chunk(rows, source_ids, target_ids, third_ids, cuts, tokenizer.pad_id)
