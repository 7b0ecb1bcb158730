"""Many sources as one shuffled stream of chunks, with bounded memory and an exact position.

Sources are interleaved by weight, shuffled through a buffer (a corpus smaller than the buffer is shuffled whole) and
cut into chunks. The order follows from (seed, epoch): a resumed run reads the text again and arrives at the same chunk.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import chain, islice
from threading import Thread

import numpy as np

from msdc.distill.data import Row
from msdc.distill.data.corpora import TextSource
from msdc.distill.recipe import HeldOut
from msdc.errors import InputError
from msdc.progress import warn

BLOCK = 4096


def bucket(text: str) -> float:
    """A number in [0, 1) that depends only on the lower-cased text."""
    return zlib.crc32(text.lower().encode()) / 2**32


def weights(sources: list[TextSource], balance: str) -> np.ndarray:
    """Share of each source among the draws [S].

    `proportional` follows size, `equal` gives each language the same and `sources` each source (small sets repeat:
    Reimers and Gurevych 2020), `root` follows the square root of a language's size.
    """
    if balance == "sources":
        alike = np.array([s.corpus.weight for s in sources])
        return alike / alike.sum()
    most = [s.bytes if s.corpus.limit is None else min(s.bytes, s.corpus.limit * 80) for s in sources]
    size = np.maximum(most, 1.0) * np.array([s.corpus.weight for s in sources])
    power = {"proportional": 1.0, "root": 0.5, "equal": 0.0}[balance]
    languages = [s.language for s in sources]
    total = {code: sum(z for z, c in zip(size, languages, strict=True) if c == code) for code in set(languages)}
    share = np.array([z / total[c] * total[c] ** power for z, c in zip(size, languages, strict=True)])
    return share / share.sum()


def in_passes(source: TextSource) -> Iterator[Row]:
    """The rows of a source, each once, in as many `passes` as its corpus has.

    Each pass goes through the whole file. Collections of translations are often sorted by length: a short run would
    read only short sentences.
    """
    passes = source.corpus.passes
    return chain.from_iterable(islice(source.read(), first, None, passes) for first in range(passes))


@dataclass
class TextStream:
    """Rows of one stage. Held-out sentences are chosen by hash, the same ones in every language.

    `on_rows` is called with the number of rows read so far, every few thousand rows, until the first chunk is full.
    """

    sources: list[TextSource]
    seed: int
    heldout: HeldOut
    balance: str = "root"
    buffer: int = 1_000_000
    sample: float = 1.0
    reported: set[str] = field(default_factory=set, repr=False)
    on_rows: Callable[[int], None] | None = field(default=None, repr=False)
    # Epoch and size of the chunks that a thread has started to read, and these chunks
    _started: tuple[tuple[int, int], Iterator[list[Row]]] | None = field(default=None, init=False, repr=False)

    def is_heldout(self, source: str) -> bool:
        """Whether a source sentence is in the share that is never trained on."""
        return bucket(source) < self.heldout.share

    def is_sampled(self, source: str) -> bool:
        """Whether a source sentence is in the share that is trained on, with all its translations."""
        place = bucket(source)
        return self.heldout.share <= place < self.heldout.share + self.sample * (1.0 - self.heldout.share)

    def _interleaved(self, rng: np.random.Generator) -> Iterator[Row]:
        share = weights(self.sources, self.balance)
        open_rows = [in_passes(source) for source in self.sources]
        finished = np.zeros(len(self.sources), bool)
        repeat = self.balance != "proportional"
        while True:
            probability = share if repeat else share * ~finished
            for pick in rng.choice(len(self.sources), size=BLOCK, p=probability / probability.sum()).tolist():
                if finished[pick] and not repeat:
                    continue
                row = next(open_rows[pick], None)
                if row is None:
                    self._report(self.sources[pick])
                    finished[pick] = True
                    # An epoch ends when every source was read completely; small ones repeat until then.
                    if finished.all():
                        return
                    if not repeat:
                        continue
                    open_rows[pick] = in_passes(self.sources[pick])
                    row = next(open_rows[pick])
                yield row

    def _report(self, source: TextSource) -> None:
        if source.bad and source.name not in self.reported:
            self.reported.add(source.name)
            warn(f"{source.name}: skipped {source.bad} bad lines, the first: {source.first_bad}")

    def rows(self, epoch: int) -> Iterator[Row]:
        """Training rows of one epoch in shuffled order."""
        rng = np.random.default_rng([self.seed, epoch, 1])
        held: list[Row] = []
        for row in self._interleaved(rng):
            if not self.is_sampled(row.source):
                continue
            if len(held) < self.buffer:
                held.append(row)
                if len(held) % BLOCK == 0 and self.on_rows is not None:
                    self.on_rows(len(held))
                continue
            at = int(rng.integers(self.buffer))
            out, held[at] = held[at], row
            yield out
        for at in rng.permutation(len(held)):
            yield held[at]
        if not held:
            raise InputError("the corpora have no sentences for training besides the held-out ones")

    def start_reading(self, epoch: int, size: int) -> None:
        """Fill the shuffle buffer in a thread, for the next call of `chunks` with the same epoch and size.

        The order of rows does not change: it depends only on the seed, and one thread at a time reads.
        """
        chunks = self._chunks(epoch, size, 0)
        first: Future[list[Row] | None] = Future()

        def read() -> None:
            try:
                first.set_result(next(chunks, None))
            except BaseException as error:
                first.set_exception(error)

        def all_chunks() -> Iterator[list[Row]]:
            if (chunk := first.result()) is not None:
                yield chunk
                yield from chunks

        self._started = (epoch, size), all_chunks()
        # A daemon: a run that fails meanwhile need not wait for it.
        Thread(target=read, name="read-corpora", daemon=True).start()

    def chunks(self, epoch: int, size: int, skip: int = 0) -> Iterator[list[Row]]:
        """Lists of `size` rows; the first `skip` chunks are dropped."""
        started, self._started = self._started, None
        early = started is not None and not skip and started[0] == (epoch, size)
        return started[1] if started is not None and early else self._chunks(epoch, size, skip)

    def _chunks(self, epoch: int, size: int, skip: int) -> Iterator[list[Row]]:
        rows = self.rows(epoch)
        return islice(iter(lambda: list(islice(rows, size)), []), skip, None)

    def heldout_rows(self) -> dict[str, list[Row]]:
        """Up to `heldout.pairs` held-out rows per language, the first ones of each source."""
        found: dict[str, list[Row]] = {}
        for source in self.sources:
            if source.synthetic:
                continue
            rows = found.setdefault(source.language, [])
            seen = {(row.source, row.target) for row in rows}
            for number, row in enumerate(source.read()):
                # Limited: a huge corpus must not be read completely before the first step.
                if len(rows) >= self.heldout.pairs or number > max(400, 2 * self.heldout.pairs) / self.heldout.share:
                    break
                if self.is_heldout(row.source) and (row.source, row.target) not in seen:
                    rows.append(row)
                    seen.add((row.source, row.target))
        return {code: rows for code, rows in found.items() if rows}
