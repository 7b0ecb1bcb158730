"""The text of a stage: its tables, the rows to train on in their order, and the rows that are held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from msdc.distill.data import Row
from msdc.distill.data.order import Order, shares
from msdc.distill.data.tables import Table
from msdc.distill.recipe import HeldOut
from msdc.errors import InputError


@dataclass
class StageText:
    """The tables of a stage. Held-out sentences are chosen by hash, the same ones in every language.

    `balance` and `sample` are those of the stage (msdc.distill.recipe).
    """

    tables: Sequence[Table]
    seed: int
    heldout: HeldOut
    balance: str = "root"
    sample: float = 1.0

    @cached_property
    def kept(self) -> list[np.ndarray]:
        """The rows of each table to train on, shuffled; an error if there are none at all."""
        found = [table.kept(self.heldout.share, self.sample) for table in self.tables]
        if not sum(map(len, found)):
            raise InputError("the corpora have no sentences for training besides the held-out ones")
        return found

    @cached_property
    def order(self) -> Order:
        """The order of the rows to train on."""
        counts = [len(rows) for rows in self.kept]
        return Order(counts, self.seed, shares(self.tables, counts, self.balance))

    def distinct_sources(self) -> int:
        """About how many different source sentences the tables have, from one in 64."""
        some = [keys[keys % np.uint64(64) == 0] for keys in (table.keys[:, 0] for table in self.tables)]
        return 64 * len(np.unique(np.concatenate([np.zeros(0, np.uint64), *some])))

    def heldout_rows(self) -> dict[str, list[Row]]:
        """Up to `heldout.pairs` different held-out rows per language, the first ones of each table."""
        found: dict[str, dict[tuple[str, str], Row]] = {}
        for table in self.tables:
            rows = found.setdefault(table.source.language, {})
            if not table.source.synthetic and len(rows) < self.heldout.pairs:
                for row in table.read(table.heldout(self.heldout.share, 4 * self.heldout.pairs)):
                    if len(rows) < self.heldout.pairs:
                        rows.setdefault((row.source, row.target), row)
        return {code: list(rows.values()) for code, rows in found.items() if rows}

    def sample_rows(self, per_language: int) -> list[Row]:
        """Up to `per_language` rows of each language that are not held out, drawn from all rows of each table."""
        by_language: dict[str, list[Table]] = {}
        for table in self.tables:
            if not table.source.synthetic:
                by_language.setdefault(table.source.language, []).append(table)
        picked: list[Row] = []
        rng = np.random.default_rng([self.seed, 3])
        for _, some in sorted(by_language.items()):
            kept = [table.kept(self.heldout.share) for table in some]
            starts = np.cumsum([0, *map(len, kept)])
            drawn = np.sort(rng.permutation(int(starts[-1]))[:per_language])
            for table, rows, start in zip(some, kept, starts.tolist(), strict=False):
                here = drawn[(drawn >= start) & (drawn < start + len(rows))] - start
                picked += table.read(rows[here].astype(np.int64))
        return picked
