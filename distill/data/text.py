"""The text of a stage: its tables, the rows to train on in their order, and the rows that are held out.

Which rows are in batch k is a function of (seed, epoch, k), for any number of processes. An epoch has as many rows as
all tables together. It is a permutation of blocks of 64 rows; the rows of a table were shuffled once. A table has as
many blocks of an epoch as its share gives, at least one, and continues in the next epoch where it ended. CHUNK blocks
are a chunk, which is cut into batches of near-equal length.

Shapes: N tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from msdc.distill.data import Row
from msdc.distill.data.tables import HeldOutTexts, SourceTable, heldout_texts
from msdc.distill.recipe import HeldOut
from msdc.errors import InputError

BLOCK, CHUNK = 64, 256  # rows, blocks


def table_shares(
    weights: Sequence[float], languages: Sequence[str], rows: Sequence[int], balance: str
) -> np.ndarray | None:
    """The share of each table in an epoch [N], by the weight of its corpus, its language and size; None: each row once.

    `proportional` follows size, `equal` gives each language the same and `sources` each source (small sets repeat:
    Reimers and Gurevych 2020), `root` follows the square root of a language's size. `weight` of a corpus multiplies its
    size.
    """
    if balance == "proportional" and len(set(weights)) == 1:
        return None
    if balance == "sources":
        return np.asarray(weights, float) / sum(weights)
    size = np.maximum(np.asarray(rows, float), 1.0) * np.asarray(weights, float)
    power = {"proportional": 1.0, "root": 0.5, "equal": 0.0}[balance]
    total = {code: sum(z for z, c in zip(size, languages, strict=True) if c == code) for code in set(languages)}
    raised = np.array([z / total[c] * total[c] ** power for z, c in zip(size, languages, strict=True)])
    return raised / raised.sum()


class Order:
    """`rows` of each table [N], and their `shares` of an epoch (None: each row once)."""

    def __init__(self, rows: Sequence[int], seed: int, shares: np.ndarray | None = None) -> None:
        self.rows, self.seed = np.array(rows, np.int64), seed
        self.blocks_per_table = -(-self.rows // BLOCK)  # blocks of each table
        self.blocks = self.blocks_per_table.copy()
        if shares is not None:
            # In rows, not in blocks: a table's last block is short.
            blocks_wanted = shares * self.rows.sum() / (self.rows / np.maximum(self.blocks_per_table, 1)).clip(1)
            self.blocks = np.where(self.rows > 0, np.maximum(1, np.rint(blocks_wanted)), 0).astype(np.int64)
        self.starts = np.concatenate([[0], self.blocks.cumsum()])
        self.chunks = int(-(-self.starts[-1] // CHUNK))
        self._epoch: tuple[int, np.ndarray] | None = None

    @cached_property
    def epoch_rows(self) -> int:
        """Rows of an epoch, on average."""
        return round(float((self.blocks * self.rows / np.maximum(self.blocks_per_table, 1)).sum()))

    def _permutation(self, epoch: int) -> np.ndarray:
        if self._epoch is None or self._epoch[0] != epoch:
            blocks = np.arange(self.starts[-1], dtype=np.uint32)
            self._epoch = epoch, np.random.default_rng([self.seed, epoch, 1]).permutation(blocks)
        return self._epoch[1]

    def chunk(self, epoch: int, number: int) -> dict[int, np.ndarray]:
        """The places of a chunk's rows among those of their table, by the table's number."""
        drawn = self._permutation(epoch)[number * CHUNK : (number + 1) * CHUNK].astype(np.int64)
        table = np.searchsorted(self.starts, drawn, side="right") - 1
        before = epoch * self.blocks[table] + drawn - self.starts[table]  # blocks of this table in all epochs
        rows = (before % self.blocks_per_table[table] * BLOCK)[:, None] + np.arange(BLOCK)
        inside = rows < self.rows[table][:, None]
        return {
            int(table_number): rows[table == table_number][inside[table == table_number]]
            for table_number in np.unique(table)
        }


def cut(lengths: np.ndarray, batch: int, batch_tokens: int | None, rng: np.random.Generator) -> list[np.ndarray]:
    """Indices cut into batches of near-equal length, in random order.

    With `batch_tokens` a batch has as many pairs as keep (pairs x longest side) within it, at least one; without,
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


@dataclass
class StageText:
    """The tables of a stage. Held-out sentences are chosen by hash, the same ones in every language.

    `balance` and `sample` are those of the stage (msdc.distill.recipe). `untrained` are the texts of the held-out
    pairs of all tables of a run (None: of these tables), on whatever side they are.
    """

    tables: Sequence[SourceTable]
    seed: int
    heldout: HeldOut
    balance: str = "root"
    sample: float = 1.0
    untrained: HeldOutTexts | None = None

    @cached_property
    def _untrained(self) -> HeldOutTexts:
        if self.untrained is not None:
            return self.untrained
        return heldout_texts([table for table in self.tables if not table.source.synthetic], self.heldout.share)

    @cached_property
    def training_rows(self) -> list[np.ndarray]:
        """The rows of each table to train on, shuffled; an error if there are none at all."""
        rows = [table.training_rows(self.heldout.share, self.sample, self._untrained) for table in self.tables]
        if not sum(map(len, rows)):
            raise InputError("the corpora have no sentences for training besides the held-out ones")
        return rows

    def languages(self) -> list[str]:
        """The language of each table."""
        return [table.source.language for table in self.tables]

    @cached_property
    def order(self) -> Order:
        """The order of the rows to train on."""
        counts = [len(rows) for rows in self.training_rows]
        weights = [table.source.corpus.weight for table in self.tables]
        return Order(counts, self.seed, table_shares(weights, self.languages(), counts, self.balance))

    def untrained_rows(self) -> int:
        """Rows of the sample that are not trained: they have a text of a held-out pair, in another order or pair."""
        drawn = sum(int(table.drawn(self.heldout.share, self.sample).sum()) for table in self.tables)
        return drawn - sum(map(len, self.training_rows))

    def heldout_rows(self) -> dict[str, list[Row]]:
        """Up to `heldout.pairs` different held-out rows per language, the first ones of each table."""
        by_language: dict[str, dict[tuple[str, str], Row]] = {}
        for table in self.tables:
            rows = by_language.setdefault(table.source.language, {})
            if not table.source.synthetic and len(rows) < self.heldout.pairs:
                for row in table.read(table.heldout(self.heldout.share, 4 * self.heldout.pairs)):
                    if len(rows) < self.heldout.pairs:
                        rows.setdefault((row.source, row.target), row)
        return {code: list(rows.values()) for code, rows in by_language.items() if rows}

    def sample_rows(self, per_language: int) -> list[Row]:
        """Up to `per_language` rows of each language that are not held out, drawn from all rows of each table."""
        by_language: dict[str, list[SourceTable]] = {}
        for table in self.tables:
            if not table.source.synthetic:
                by_language.setdefault(table.source.language, []).append(table)
        picked: list[Row] = []
        rng = np.random.default_rng([self.seed, 3])
        for _, tables in sorted(by_language.items()):
            rows_by_table = [table.training_rows(self.heldout.share, heldout=self._untrained) for table in tables]
            starts = np.cumsum([0, *map(len, rows_by_table)])
            drawn = np.sort(rng.permutation(int(starts[-1]))[:per_language])
            for table, rows, start in zip(tables, rows_by_table, starts.tolist(), strict=False):
                here = drawn[(drawn >= start) & (drawn < start + len(rows))] - start
                picked += table.read(rows[here].astype(np.int64))
        return picked
