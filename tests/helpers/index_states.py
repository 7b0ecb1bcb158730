"""The index against a plain dictionary: two writers, filters, other models, kills, a full disk, flipped bits.

A state machine for the Python package's engine, and with other `opened` and `full` for others.
"""

import contextlib
import math
import os
import shutil
import signal
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models as tiny
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

import msdc
from msdc.errors import InputError, MsdcError, OtherModel
from msdc.search import index as indexes
from msdc.search.index import Index
from msdc.text.tokenizer import Reader

EVERY = "common"  # in every text
WORDS = ("apple", "river", "stone", "naïve", "北京")
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(lambda words: f"{EVERY} {' '.join(words)}.")
values = st.one_of(
    st.integers(0, 4), st.floats(0, 4).map(lambda value: round(value, 1)), st.sampled_from(["a, b", "4"])
)
rows = st.fixed_dictionaries(
    {"text": texts}, optional={"id": st.sampled_from("abcdef"), "title": st.sampled_from(WORDS), "n": values}
)


def order_key(hit: Any, is_descending: bool) -> tuple[bool, float]:
    """Where a hit is by its value of `n`: numbers, then texts, then none."""
    if "n" not in hit.metadata:
        return True, 0
    value = hit.metadata["n"]
    number = math.inf if value == "a, b" else float(value)
    return False, -number if is_descending else number


def group_of(hit: Any) -> object:
    """What hits with the same value of `n` have in common; one without has its id."""
    value = hit.metadata.get("n")
    return hit.id if value is None else value if value == "a, b" else float(value)


class States(RuleBasedStateMachine):
    """Documents by id as a dictionary, and two open indexes of one file."""

    # Whether a rebuild reports a block before it is committed: an interruption then leaves the former model, also at
    # the last one.
    reports_before_commit = True

    def opened(self, number: int, path: Path) -> Any:
        """Open a file as index `number`."""
        return Index(self.model, path)

    @contextlib.contextmanager
    def full(self, index: Any, spare: int) -> Iterator[None]:
        """A disk with `spare` pages."""
        pages = index._db.execute("PRAGMA page_count").fetchone()[0]
        index._db.execute(f"PRAGMA max_page_count = {pages + spare}")
        try:
            yield
        finally:
            index._db.execute("PRAGMA max_page_count = 1000000")

    @contextlib.contextmanager
    def blocks_of(self, documents: int) -> Iterator[None]:
        """Blocks of so many documents."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(indexes, "BLOCK", documents)
            yield

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="msdc-states-"))
        self.path = self.folder / "index.sqlite"
        self.models = [msdc.load_encoder(tiny.student_folder(seed)) for seed in (3, 4)]
        self.model = self.models[0]
        self.reader = Reader(self.model.tokenizer, self.model.max_length)
        self.open = [self.opened(number, self.path) for number in range(2)]
        self.truth: dict[str, dict] = {}

    def teardown(self) -> None:
        for index in self.open:
            index.close()
        shutil.rmtree(self.folder)

    # --- changes ------------------------------------------------------------------------------------------------------

    def keep(self, documents: list[dict], index: Index) -> None:
        """Into the dictionary what was written; ids that the index gave are read from it."""
        last = {row["id"]: row for row in documents if "id" in row}
        new = sorted(self.ids(index) - self.truth.keys() - last.keys(), key=int)
        plain = [row for row in documents if "id" not in row]
        assert len(new) == len(plain)
        self.truth |= last | dict(zip(new, plain, strict=True))

    @rule(writer=st.integers(0, 1), documents=st.lists(rows, min_size=1, max_size=5))
    def add(self, writer, documents):
        ids = [row["id"] for row in documents if "id" in row]
        if len(set(ids)) < len(ids) or self.truth.keys() & set(ids):
            with pytest.raises(InputError, match="exists already; use update"):
                self.open[writer].add(documents)
        else:
            assert self.open[writer].add(documents) == len(documents)
            self.keep(documents, self.open[writer])

    @rule(writer=st.integers(0, 1), documents=st.lists(rows, min_size=1, max_size=5))
    def update(self, writer, documents):
        assert self.open[writer].update(documents) == len(documents)
        self.keep(documents, self.open[writer])

    @rule(writer=st.integers(0, 1), ids=st.sets(st.sampled_from([*"abcdef", *"123456789"])))
    def remove(self, writer, ids):
        assert self.open[writer].remove(sorted(ids)) == len(self.truth.keys() & ids)
        self.truth = {key: row for key, row in self.truth.items() if key not in ids}

    @rule(number=st.integers(0, 1))
    def compact(self, number):
        self.open[number].compact()

    @rule(number=st.integers(0, 1), word=st.sampled_from(WORDS))
    def backup(self, number, word):
        """A backup has what the index has; so has a copy of the file alone, since no search is going on."""
        copy = self.folder / "copy.sqlite"
        for write in (lambda: self.open[number].backup(copy), lambda: shutil.copy(self.path, copy)):
            if self.path.exists():
                write()
                with self.opened(number, copy) as index:
                    self.check(index, word)
                for file in self.folder.glob("copy.sqlite*"):
                    file.unlink()

    @rule(number=st.integers(0, 1))
    def reopen(self, number):
        self.open[number].close()
        self.open[number] = self.opened(number, self.path)

    @rule(number=st.integers(0, 1), model=st.integers(0, 1), block=st.sampled_from([1, 3, 256]), stop=st.integers(0, 3),
          word=st.sampled_from(WORDS))  # fmt: skip
    def rebuild(self, number, model, block, stop, word):
        """Another model; interrupted after `stop` blocks unless that is 0, then it is an index of the former model."""
        index, other, after = self.open[number], self.open[1 - number], self.models[model]
        calls = []

        def progress(done, total):
            calls.append(done)
            assert 0 < done <= total == len(self.truth)
            if len(calls) == stop:
                raise KeyboardInterrupt

        count = 0
        with self.blocks_of(block):
            try:
                count = index.rebuild(after, progress)
            except KeyboardInterrupt:
                if self.reports_before_commit or calls[-1] < len(self.truth):
                    self.check(index, word)
                    self.check(other, word)
                    return
                index.rebuild(after)
        assert calls == sorted(calls)
        assert count <= (0 if after is self.model else len(self.truth))
        if after is not self.model and self.truth:
            # The connection with the former model searches by words; it compares and writes no vectors.
            assert self.ids(other) == self.truth.keys()
            for use in (lambda: other.search("A cat.", mode="vectors"), lambda: other.add(["A cat."])):
                with pytest.raises(OtherModel, match="made with another"):
                    use()
            with pytest.raises(OtherModel, match="made with another"):
                self.opened(number, self.path)
        self.model = after
        self.reopen(1 - number)
        self.check(index, word)

    # --- accidents ----------------------------------------------------------------------------------------------------

    @rule(statement=st.sampled_from(["DELETE FROM documents", "DELETE FROM passages", "DROP TABLE words"]))
    def kill(self, statement):
        """A writer is killed inside its transaction."""
        child = os.fork()
        if not child:
            db = sqlite3.connect(self.path, isolation_level=None)
            db.execute("PRAGMA cache_spill = 1")
            db.execute("PRAGMA cache_size = 1")  # pages reach the log before the transaction ends
            if db.execute("SELECT 1 FROM sqlite_master").fetchone():
                db.execute("BEGIN IMMEDIATE")
                db.execute(statement)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)

    @rule(writer=st.integers(0, 1), documents=st.lists(rows, min_size=1, max_size=3), spare=st.integers(0, 3))
    def full_disk(self, writer, documents, spare):
        index = self.open[writer]
        is_written = False
        with self.full(index, spare):
            try:
                index.update(documents)
            except MsdcError as error:
                assert "disk full while writing" in str(error), error
            else:
                is_written = True
        if is_written:
            self.keep(documents, index)

    @rule(fraction=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), word=st.sampled_from(WORDS))
    def flip(self, fraction, bit, word):
        """A copy with a wrong bit gives the same answers or an error."""
        damaged = self.folder / "damaged.sqlite"
        with closing(sqlite3.connect(self.path)) as db, closing(sqlite3.connect(damaged)) as copy:
            db.backup(copy)
        raw = bytearray(damaged.read_bytes())
        raw[int(fraction * len(raw))] ^= 1 << bit
        damaged.write_bytes(raw)
        try:
            with self.opened(0, damaged) as index:
                self.check(index, word, with_counts=False)  # a form has no checksum
        except MsdcError as error:
            assert "\n" not in str(error)
        finally:
            for file in self.folder.glob("damaged.sqlite*"):
                file.unlink()

    # --- answers ------------------------------------------------------------------------------------------------------

    def ids(self, index: Index, query: str = EVERY, **options) -> set[str]:
        return {hit.id for hit in index.search(query, 1000, mode="words", **{"distinct": False, **options}).hits}

    def check(self, index: Index, word: str, with_counts: bool = True) -> None:
        assert len(index) == len(self.truth)
        assert set(index.ids()) == self.truth.keys()
        for key in "a1":
            row, stored = self.truth.get(key), index.get(key)
            assert (stored and (stored.text, stored.title)) == (row and (row["text"], row.get("title", "")))
        assert self.ids(index) == self.truth.keys()
        having = {key for key, row in self.truth.items() if word in row["text"] or word == row.get("title")}
        hits = index.search(word, 1000, mode="words", distinct=False).hits
        pages = [hit.id for start in range(0, len(hits), 2)
                 for hit in index.search(word, 2, mode="words", distinct=False, offset=start).hits]  # fmt: skip
        assert pages == [hit.id for hit in hits]
        forms = Counter((self.truth[key].get("title"), self.truth[key]["text"]) for key in having)
        groups = index.search(word, 1000, mode="words").hits
        if with_counts:
            assert Counter({(hit.title or None, hit.text): hit.count for hit in groups}) == forms
        without = {key for key, row in self.truth.items() if word not in row["text"] and word != row.get("title")}
        assert self.ids(index, f"{EVERY} -{word}") == without
        assert {hit.id for hit in hits for hit in hits} == having
        for hit in hits:
            row = self.truth[hit.id]
            assert (hit.text, hit.title) == (row["text"], row.get("title", ""))
            assert hit.metadata == ({"n": row["n"]} if "n" in row else {})
        if any("n" in row for row in self.truth.values()):
            four = {key for key, row in self.truth.items() if str(row.get("n")) in ("4", "4.0")}
            assert self.ids(index, where={"n": 4}) == four
            low = {key for key, row in self.truth.items() if isinstance(row.get("n"), (int, float)) and row["n"] <= 2}
            assert self.ids(index, where={"n": (None, 2)}) == low
            assert self.ids(index, where={"n": {"not": 4}}) == self.truth.keys() - four
            assert self.ids(index, where={"n": None}) == {key for key, row in self.truth.items() if "n" not in row}
            self.check_options(index)
        elif self.truth:
            with pytest.raises(InputError, match="no column 'n'"):
                index.search(word, mode="words", where={"n": 4})
        # A text that is mostly characters that the model does not know has no vector.
        full_texts = {
            key: ". ".join([*filter(None, [row.get("title")]), row["text"]]) for key, row in self.truth.items()
        }
        unread_N = self.reader.unread([*full_texts.values()])
        read = {key for key, unread in zip(full_texts, unread_N, strict=True) if not unread}
        near = index.search(f"{EVERY} {word}.", 1000, mode="vectors", distinct=False).hits
        cosines = {hit.id: hit.cosine for hit in near}
        assert cosines.keys() == read
        assert index.unread == len(self.truth) - len(read)
        for key in "a1":
            if key in read:
                assert {hit.id for hit in index.similar(key, 1000, distinct=False).hits} == read - {key}
            else:
                words = "has no vector" if key in self.truth else f"no document '{key}'"
                with pytest.raises(InputError, match=words):
                    index.similar(key)
        both = index.search(f"{EVERY} {word}.", 1000, distinct=False).hits
        assert {hit.id: hit.cosine for hit in both} == dict.fromkeys(self.truth) | cosines
        query_D = self.model.encode([f"{EVERY} {word}."])[0]
        untitled = [key for key in read if "title" not in self.truth[key]]
        if untitled:
            vectors_ND = self.model.encode([self.truth[key]["text"] for key in untitled])
            own_N = vectors_ND @ query_D / np.linalg.norm(vectors_ND, axis=1) / np.linalg.norm(query_D)
            np.testing.assert_allclose([cosines[key] for key in untitled], own_N, atol=0.02)

    def check_options(self, index: Index) -> None:
        """Orders, and a boost, of all documents by `n`."""
        plain = index.search(EVERY, 1000, mode="words", distinct=False).hits
        for sign in ("", "-"):
            hits = index.search(EVERY, 1000, mode="words", distinct=False, order=f"{sign}n").hits
            assert [hit.id for hit in hits] == [
                hit.id for hit in sorted(plain, key=lambda hit: order_key(hit, sign == "-"))
            ]
        high = {"n": (2, None)}
        threads = index.search(EVERY, 1000, mode="words", distinct=False, group="n").hits
        firsts = {group_of(hit): hit.id for hit in reversed(plain)}
        assert sorted(hit.id for hit in threads) == sorted(firsts.values())
        boosted = index.search(EVERY, 1000, mode="words", distinct=False, boost=[(high, 50)]).hits
        keys = self.ids(index, where=high)
        assert [hit.id for hit in boosted] == [hit.id for hit in sorted(plain, key=lambda hit: hit.id not in keys)]

    @rule(number=st.integers(0, 1), word=st.sampled_from(WORDS))
    def search(self, number, word):
        self.check(self.open[number], word)

    @invariant()
    def sizes_agree(self):
        assert [len(index) for index in self.open] == [len(self.truth)] * 2


def run(machine: type[States], examples: int, steps: int = 50) -> None:
    every = list(HealthCheck)
    quiet = settings(max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=every,
                     database=None, derandomize=examples < 100)  # fmt: skip
    run_state_machine_as_test(machine, settings=quiet)
