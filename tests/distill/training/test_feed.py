"""The feed: every row once per epoch, the same batches for any number of processes and from any position."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch

import msdc
from msdc.distill.data.corpora import open_corpora
from msdc.distill.data.tables import open_source_table
from msdc.distill.data.text import BLOCK, CHUNK, Order, StageText, cut, table_shares
from msdc.distill.recipe import Corpus, HeldOut, Stage
from msdc.distill.teacher import CachedTeacher
from msdc.distill.training.feed import BatchFeed, Position, ahead
from msdc.loading import load_encoder


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def tokenizer():
    return msdc.load_encoder("msdc-mini").tokenizer


def write(tmp_path, **counts):
    for name, count in counts.items():
        code = name.split("_")[-1]
        words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
        lines = [
            f"{name} {i} {' '.join(words[: i % 7])}\t{code} {i} {' '.join(words[: i % 5])}\n" for i in range(count)
        ]
        (tmp_path / f"{name}.en-{code}.tsv").write_text("".join(lines), encoding="utf-8")


def text_of(tmp_path, balance="proportional", **settings):
    tables = [open_source_table(source) for source in open_corpora((Corpus(path=str(tmp_path / "*.tsv"), **settings),))]
    return StageText(tables, 7, HeldOut(pairs=20, share=0.05), balance)


def feed_of(text, tokenizer, **settings):
    stage = Stage(name="s", objective=["multilingual_mse"], batch=settings.pop("batch", 16), max_length=24,
                  batch_tokens=settings.pop("batch_tokens", None))  # fmt: skip
    return BatchFeed(stage, text, tokenizer, 7, **settings)


def epoch_of(feed):
    """The batches of the epoch that the feed is in."""
    start = feed.position.epoch
    batches = []
    with_end = feed.batches()
    for batch in with_end:
        if feed.position.epoch != start:
            break
        batches.append(batch)
    with_end.close()
    return batches


# --- order ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [[1], [64, 65, 3], [5000, 0, 70, 20_000]])
def test_every_row_once_in_every_epoch(rows):
    order = Order(rows, 3)
    epochs = []
    for epoch in (0, 1):
        counts = [Counter() for _ in rows]
        chunks = [order.chunk(epoch, number) for number in range(order.chunks)]
        for chunk in chunks:
            for table, places in chunk.items():
                counts[table].update(places.tolist())
        assert [sorted(counter) for counter in counts] == [list(range(count)) for count in rows]
        assert all(set(counter.values()) <= {1} for counter in counts)
        epochs.append([{t: p.tolist() for t, p in chunk.items()} for chunk in chunks])
    assert (epochs[0] != epochs[1]) == (sum(rows) > 20 * BLOCK)
    assert order.epoch_rows == sum(rows)


def test_an_epoch_has_as_many_rows_as_all_tables_whatever_the_balance(tmp_path):
    """Nine small sources and a large one: a share each, the epoch is the sum; the large one is read over ten epochs."""
    rows = [100] * 9 + [5000]
    order = Order(rows, 3, np.full(10, 0.1))
    total, large = Counter(), set()
    for epoch in range(12):
        for number in range(order.chunks):
            for table, places in order.chunk(epoch, number).items():
                total[table] += len(places)
                if table == 9:
                    large |= set(places.tolist())
    assert sum(total.values()) / 12 == pytest.approx(sum(rows), rel=0.05)
    assert all(total[table] / 12 == pytest.approx(590, rel=0.15) for table in range(10))
    assert large == set(range(5000))


@pytest.mark.parametrize(
    ("balance", "share"), [("proportional", 0.1), ("root", 0.25), ("equal", 0.5), ("sources", 1 / 3)]
)
def test_balance(tmp_path, tokenizer, balance, share):
    """Of languages, whatever the number of their files; only `sources` counts these."""
    write(tmp_path, a_de=3000, b_nl=500, c_de=1500)
    text = text_of(tmp_path, balance)
    counts = Counter(code for batch in epoch_of(feed_of(text, tokenizer)) for code in batch.languages)
    assert counts["nl"] / sum(counts.values()) == pytest.approx(share, abs=0.03)
    assert sum(counts.values()) == pytest.approx(sum(map(len, text.training_rows)), rel=0.03)
    corpus_shares = table_shares([1.0] * 3, text.languages(), list(map(len, text.training_rows)), balance)
    assert (corpus_shares is None) == (balance == "proportional")


def test_weights_of_corpora_count(tmp_path):
    write(tmp_path, a_de=900, b_nl=900)
    first, second = (Corpus(path=str(tmp_path / name), weight=w) for name, w in (("a*.tsv", 3.0), ("b*.tsv", 1.0)))
    sources = open_corpora((first, second))
    weights, languages = [s.corpus.weight for s in sources], [s.language for s in sources]
    np.testing.assert_allclose(table_shares(weights, languages, [900, 900], "proportional"), [0.75, 0.25])
    np.testing.assert_allclose(table_shares(weights, languages, [900, 100], "sources"), [0.75, 0.25])


@pytest.mark.parametrize("tokens", [None, 64, 1000])
def test_cuts_have_every_row_once_within_the_budget(tokens):
    lengths = np.random.default_rng(1).integers(3, 40, 500)
    cuts = cut(lengths, 32, tokens, np.random.default_rng(2))
    assert sorted(np.concatenate(cuts).tolist()) == list(range(500))
    for row_numbers in cuts:
        assert (
            len(row_numbers) <= 32
            if tokens is None
            else len(row_numbers) == 1 or len(row_numbers) * lengths[row_numbers].max() <= tokens
        )


# --- batches ----------------------------------------------------------------------------------------------------------


def contents(batch):
    return [(row.source, row.target, row.language) for row in batch.read()]


def test_batches_have_the_tokens_of_their_rows(tmp_path, tokenizer):
    write(tmp_path, a_de=300, b_nl=90)
    text = text_of(tmp_path)
    batches = epoch_of(feed_of(text, tokenizer, prompts=("query: ", "passage: ")))
    rows = [row for batch in batches for row in contents(batch)]
    assert len(rows) == len(set(rows)) == sum(map(len, text.training_rows))
    for batch in batches:
        sides = zip((batch.source, batch.target), zip(*contents(batch), strict=True), strict=False)
        for ((ids, mask), side), prompt in zip(sides, ("query: ", "passage: "), strict=True):
            expected = tokenizer.encode([prompt + sentence for sentence in side], 24)
            assert [row[real].tolist() for row, real in zip(ids, mask, strict=True)] == expected
            assert ids.shape[1] == max(map(len, expected))
            assert (ids[~mask] == tokenizer.pad_id).all()
        assert batch.languages == [code for *_, code in contents(batch)]
        assert batch.size == len(batch) == len(batch.read())
    # Near-equal lengths: little padding.
    real = sum(int(mask.sum()) for batch in batches for _, mask in (batch.source, batch.target))
    assert real / sum(mask.numel() for batch in batches for _, mask in (batch.source, batch.target)) > 0.8


@pytest.mark.parametrize("tokens", [None, 200])
def test_any_number_of_processes_has_the_same_batches(tmp_path, tokenizer, tokens):
    write(tmp_path, a_de=900, b_nl=70)
    text = text_of(tmp_path, "root")
    batches = epoch_of(feed_of(text, tokenizer, batch_tokens=tokens))
    for world in (2, 3):
        parts = [epoch_of(feed_of(text, tokenizer, batch_tokens=tokens, rank=r, world=world)) for r in range(world)]
        for number, batch in enumerate(batches):
            rows = contents(batch)
            assert [contents(part[number]) for part in parts] == [rows[rank::world] for rank in range(world)]
            assert {part[number].size for part in parts} == {len(rows)}
        assert {len(part) for part in parts} == {len(batches)}


def test_a_feed_continues_from_every_position(tmp_path, tokenizer):
    write(tmp_path, a_de=700)
    text = text_of(tmp_path)
    feed = feed_of(text, tokenizer)
    all_contents, positions = [], []
    for batch in islice(feed.batches(), 100):  # more than two epochs
        all_contents.append(contents(batch))
        positions.append(Position(0, feed.position.epoch, feed.position.chunk, feed.position.batch))
    assert positions[-1].epoch == 2
    for position in (0, 15, 16, 40, 41, 42, 98):
        again = feed_of(text, tokenizer, position=positions[position])
        assert [contents(batch) for batch in islice(again.batches(), 3)][: 99 - position] == all_contents[
            position + 1 : position + 4
        ]


def test_an_epoch_longer_than_a_chunk(tmp_path, tokenizer):
    count = BLOCK * CHUNK * 11 // 10
    write(tmp_path, a_de=count)
    text = text_of(tmp_path)
    feed = feed_of(text, tokenizer, batch=512)
    batches = epoch_of(feed)
    assert sum(map(len, batches)) == len(text.training_rows[0])
    assert text.order.chunks == 2
    assert feed.epoch_batches() == pytest.approx(len(batches), abs=1)
    tokens = feed_of(text, tokenizer, batch_tokens=4000)
    assert tokens.epoch_batches() == len(epoch_of(tokens))


def test_text_without_translations_counts_as_its_own(tmp_path, tokenizer):
    write(tmp_path, a_de=120)
    (tmp_path / "plain.txt").write_text("".join(f"Plain text {i}.\n" for i in range(60)))
    corpora = (Corpus(path=str(tmp_path / "*.tsv")), Corpus(path=str(tmp_path / "plain.txt"), kind="text"))
    tables = [open_source_table(source) for source in open_corpora(corpora)]
    mixed = epoch_of(feed_of(StageText(tables, 7, HeldOut(share=0.05), "proportional"), tokenizer))
    plain = 0
    for batch in mixed:
        for row, ids, other, domain in zip(batch.read(), batch.source[0], batch.target[0], batch.domain_B, strict=True):
            assert int(domain) == (row.language == "en")
            if row.language == "en":
                plain += 1
                assert row.target == ""
                assert ids[ids > 0].tolist()[:4] == other[other > 0].tolist()[:4]
    assert plain > 45
    alone = epoch_of(feed_of(StageText(tables[1:], 7, HeldOut(share=0.05), "proportional"), tokenizer))
    assert all(batch.target is None and batch.texts_BS.shape[1] == 1 for batch in alone)


def test_triples_have_their_negatives(tmp_path, tokenizer):
    lines = "".join(f"premise {i}\tentailed {i}\tother {i} x\tmore {i}\n" for i in range(80))
    (tmp_path / "t.tsv").write_text("query\tpositive\tnegative_1\tnegative_2\n" + lines)
    corpus = Corpus(path=str(tmp_path / "t.tsv"), kind="triples")
    text = StageText(list(map(open_source_table, open_corpora((corpus,)))), 7, HeldOut(share=0.05))
    for batch in epoch_of(feed_of(text, tokenizer)):
        ids, mask = batch.negatives
        assert ids.shape[:2] == (len(batch), 2)
        assert batch.texts_BS.shape == (len(batch), 4)
        for row, two, real in zip(batch.read(), ids, mask, strict=True):
            assert [ids[m].tolist() for ids, m in zip(two, real, strict=True)] == tokenizer.encode(row.negatives, 24)


# --- the teacher ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("targets", [False, True])
@pytest.mark.parametrize("layers", [(), (1, 2)])
def test_vectors_of_the_teacher_are_those_of_the_rows(tmp_path, tokenizer, tiny_teacher, targets, layers):
    write(tmp_path, a_de=200)
    text = text_of(tmp_path)
    teacher = CachedTeacher(load_encoder(tiny_teacher), tmp_path / "vectors", 24, layers=layers)
    plain = CachedTeacher(load_encoder(tiny_teacher), None, 24, layers=layers)
    calls = []
    original = teacher._compute
    teacher._compute = lambda texts, progress: calls.extend(texts) or original(texts, progress)
    first = epoch_of(feed_of(text, tokenizer, teacher=teacher, teacher_targets=targets))
    assert len(calls) == len(set(calls)) == (1 + targets) * len(text.training_rows[0])
    for batch in first:
        source, target, _ = zip(*contents(batch), strict=True)
        rows = torch.from_numpy(plain.rows(source))
        torch.testing.assert_close(batch.teacher_source_BD, rows[:, : plain.width], atol=2e-3, rtol=0)
        if layers:
            torch.testing.assert_close(batch.teacher_states_BLH.flatten(1), rows[:, plain.width :], atol=1e-2, rtol=0)
        assert (batch.teacher_target_BD is not None) == targets
        if targets:
            expected = torch.from_numpy(plain.vectors(target))
            torch.testing.assert_close(batch.teacher_target_BD, expected, atol=2e-3, rtol=0)
    # A second reading computes nothing, and has the same vectors to the bit.
    again = epoch_of(feed_of(text, tokenizer, teacher=teacher, teacher_targets=targets))
    assert len(calls) == (1 + targets) * len(text.training_rows[0])
    for computed, repeated in zip(first, again, strict=True):
        assert torch.equal(computed.teacher_source_BD, repeated.teacher_source_BD)


def test_mined_negatives_are_of_the_same_text(tmp_path, tokenizer, tiny_teacher):
    write(tmp_path, a_de=150)
    text = text_of(tmp_path)
    teacher = CachedTeacher(load_encoder(tiny_teacher), tmp_path / "vectors", 24)
    stage = Stage(name="s", objective=["guided_contrastive"], mined_negatives=2, batch=16, max_length=24)
    feed = BatchFeed(stage, text, tokenizer, 7, teacher, True, ("query: ", "passage: "))
    targets = {row.target for row in text.tables[0].read(text.training_rows[0])}
    for batch in islice(feed.batches(), 5):
        rows = batch.read()
        assert all(len(set(row.negatives)) == 2 and set(row.negatives) <= targets - {row.target} for row in rows)
        negatives = torch.from_numpy(teacher.vectors([text for row in rows for text in row.negatives]))
        torch.testing.assert_close(batch.teacher_negatives_BND.flatten(0, 1), negatives)
        assert [a[m].tolist() for a, m in zip(*(x.flatten(0, 1) for x in batch.negatives), strict=True)] == (
            tokenizer.encode([f"passage: {text}" for row in rows for text in row.negatives], 24)
        )
        for (ids, mask), side in ((batch.source, [f"query: {row.source}" for row in rows]),
                                  (batch.target, [f"passage: {row.target}" for row in rows])):  # fmt: skip
            assert [row[real].tolist() for row, real in zip(ids, mask, strict=True)] == tokenizer.encode(side, 24)


# --- the thread -------------------------------------------------------------------------------------------------------


def test_the_thread_ends_with_its_reader_and_hands_errors_on():
    import threading

    def numbers(last):
        yield from range(last)
        raise ValueError("at the end")

    before = threading.active_count()
    source = ahead(numbers(10_000), 3)
    assert [next(source) for _ in range(5)] == list(range(5))
    source.close()
    assert threading.active_count() == before
    with pytest.raises(ValueError, match="at the end"):
        list(ahead(numbers(7), 2))
    assert threading.active_count() == before
