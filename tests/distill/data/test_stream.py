"""The stream: shuffled, balanced, held-out apart, and exactly repeatable from any chunk."""

from collections import Counter

import numpy as np
import pytest

from msdc.distill.data.corpora import open_corpora
from msdc.distill.data.stream import TextStream, in_passes, weights
from msdc.distill.recipe import Corpus, HeldOut
from msdc.errors import InputError


@pytest.fixture
def two_languages(tmp_path):
    for code, count in (("de", 900), ("nl", 100)):
        lines = [f"Sentence number {i}.\t{code} {i}\n" for i in range(count)]
        (tmp_path / f"set.en-{code}.tsv").write_text("".join(lines), encoding="utf-8")
    return lambda: open_corpora((Corpus(path=str(tmp_path / "*.tsv")),))


def stream(sources, **settings):
    return TextStream(sources(), 7, HeldOut(pairs=20, share=0.05), **{"balance": "proportional", **settings})


def test_every_row_once_and_heldout_never(two_languages):
    s = stream(two_languages)
    rows = list(s.rows(0))
    assert len(rows) == len(set(rows))
    heldout = {row.source for found in s.heldout_rows().values() for row in found}
    assert heldout
    assert not heldout & {row.source for row in rows}
    everything = {row for source in two_languages() for row in source.read()}
    assert set(rows) == {row for row in everything if not s.is_heldout(row.source)}


def test_order_follows_from_seed_and_epoch(two_languages):
    first, again, later = (list(stream(two_languages).rows(epoch)) for epoch in (0, 0, 1))
    assert first == again and first != later and set(first) == set(later)
    # Shuffled in earnest: the rank correlation of file order and stream order is small.
    numbers = [int(row.source.split()[2].rstrip(".")) for row in first if row.language == "de"]
    assert abs(np.corrcoef(numbers, range(len(numbers)))[0, 1]) < 0.15


def test_a_small_buffer_still_gives_every_row(two_languages):
    assert set(stream(two_languages, buffer=50).rows(0)) == set(stream(two_languages).rows(0))


@pytest.mark.parametrize("skip", [0, 1, 3])
def test_skipping_chunks_arrives_at_the_same_place(two_languages, skip):
    chunks = list(stream(two_languages).chunks(2, 128))
    assert list(stream(two_languages).chunks(2, 128, skip=skip)) == chunks[skip:]


@pytest.mark.parametrize(("epoch", "skip"), [(0, 0), (0, 2), (1, 0)])
def test_reading_that_was_started_early_changes_no_order(two_languages, epoch, skip):
    early = stream(two_languages, buffer=200)
    early.start_reading(0, 128)
    expected = list(stream(two_languages, buffer=200).chunks(epoch, 128, skip=skip))
    assert list(early.chunks(epoch, 128, skip=skip)) == expected
    assert list(early.chunks(0, 128)) == list(stream(two_languages, buffer=200).chunks(0, 128))


def test_an_error_of_reading_started_early_is_raised_at_the_first_chunk(tmp_path):
    (tmp_path / "bad.en-de.tsv").write_text("one column\n" * 5)
    early = TextStream(open_corpora((Corpus(path=str(tmp_path / "*.tsv")),)), 7, HeldOut(share=0.05))
    early.start_reading(0, 8)
    with pytest.raises(InputError, match="no usable sentence"):
        next(early.chunks(0, 8))


@pytest.mark.parametrize(("balance", "share"), [("proportional", 0.1), ("root", 0.25), ("equal", 0.5)])
def test_balance(two_languages, balance, share):
    s = stream(two_languages, balance=balance)
    measured = Counter(row.language for row in s.rows(0))
    assert measured["nl"] / sum(measured.values()) == pytest.approx(share, abs=0.06)
    assert weights(s.sources, balance).sum() == pytest.approx(1.0)


def test_unequal_sources_of_one_language_draw_alike(tmp_path):
    """MKD: data sets are balanced in a batch, small ones come round again; a dictionary is one of them."""
    (tmp_path / "big.en-de.tsv").write_text("".join(f"Sentence {i}.\tSatz {i}.\n" for i in range(1500)))
    (tmp_path / "words.en-de.txt").write_text("".join(f"word{i} wort{i}\n" for i in range(50)))
    corpora = (
        Corpus(path=str(tmp_path / "big.en-de.tsv")),
        Corpus(path=str(tmp_path / "words.en-de.txt"), kind="dictionary"),
    )
    rows = list(stream(lambda: open_corpora(corpora), balance="sources").rows(0))
    share = sum(row.domain == 1 for row in rows) / len(rows)
    assert share == pytest.approx(0.5, abs=0.05) and sum(row.domain == 0 for row in rows) > 1300


def test_sample_keeps_all_translations_of_a_sentence(two_languages):
    rows = list(stream(two_languages, sample=0.4).rows(0))
    de, nl = ({r.source for r in rows if r.language == code} for code in ("de", "nl"))
    both = {f"Sentence number {i}." for i in range(100)}
    assert nl == de & both and 0.25 < len(de) / 900 < 0.5


@pytest.mark.parametrize("passes", [3, 16])
def test_a_sorted_file_is_seen_whole_from_the_first_rows_on(tmp_path, passes):
    lines = [f"Sentence {'x' * (i // 20)} {i}.\tde {i}\n" for i in range(2000)]
    (tmp_path / "sorted.en-de.tsv").write_text("".join(lines), encoding="utf-8")
    path = str(tmp_path / "sorted.en-de.tsv")
    whole, parts = (list(in_passes(open_corpora((Corpus(path=path, passes=count),))[0])) for count in (1, passes))
    assert sorted(parts) == sorted(whole) and len(set(parts)) == 2000
    once = 2000 // passes
    lengths = [np.mean([len(row.source) for row in rows[:once]]) for rows in (whole, parts)]
    overall = np.mean([len(row.source) for row in whole])
    assert lengths[0] < 0.8 * overall and abs(lengths[1] - overall) < 0.02 * overall
    s = stream(lambda: open_corpora((Corpus(path=path, passes=passes),)), buffer=100)
    assert {row.target for row in s.rows(0)} == {r.target for r in whole if not s.is_heldout(r.source)}
