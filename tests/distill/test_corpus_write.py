"""`msdc corpus --write`: the rows that training would read, without near duplicates, in files that training reads."""

import itertools
import json
import random

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from msdc.cli import msdc as cli
from msdc.text import duplicates
from msdc.text.duplicates import NEAR, GrowingTexts, jaccard, normalise, shingles


def run(*words, code=0):
    done = CliRunner().invoke(cli, ["corpus", *map(str, words)])
    assert getattr(done.exception, "exit_code", done.exit_code) == code, done.output + repr(done.exception)
    return str(done.exception) if code else done.stdout


def rows(folder):
    return [row for path in sorted(folder.iterdir()) for row in pq.read_table(path).to_pylist()]


PAIRS = [
    ("Where is the station of this town?", "Wo ist der Bahnhof dieser Stadt?"),
    ("The red car stands on level two.", "Das rote Auto steht auf Ebene zwei."),
    ("where is the station, of this town", "Wo ist der Bahnhof dieser Stadt"),  # near the first
    ("The red car stands on level two.", "Das rote Auto steht auf Ebene zwei."),  # equal to the second
    ("!!!", "???"),
    ("An excluded sentence about the weather.", "Ein ausgeschlossener Satz."),
]


def test_pairs_by_shard(tmp_path):
    for shard, part in enumerate((PAIRS, [*PAIRS[:1], ("I like cheese very much.", "Ich mag Käse sehr.")], PAIRS[:2])):
        lines = "".join("\t".join(pair) + "\n" for pair in part)
        (tmp_path / f"part-{shard}.en-de.tsv").write_text(lines + "no pair\n", encoding="utf-8")
    (tmp_path / "test.txt").write_text("an excluded sentence about the weather\n")
    words = [f"{tmp_path}/part-*.tsv", "--exclude", tmp_path / "test.txt", "--write", tmp_path / "out", "--json"]
    parts = json.loads(run(*words))
    assert [(part["rows"], part["duplicates"], part["near_duplicates"]) for part in parts] == [
        (5, 1, 1),
        (2, 1, 0),
        (2, 2, 0),
    ]
    assert [part["written"] for part in parts] == ["00000-part-0.en-de.parquet", "00001-part-1.en-de.parquet", ""]
    expected = [*PAIRS[:2], PAIRS[4], ("I like cheese very much.", "Ich mag Käse sehr.")]
    assert rows(tmp_path / "out") == [{"en": source, "de": target} for source, target in expected]
    # Training reads what was written, and finds nothing to leave out.
    again = json.loads(run(tmp_path / "out", "--write", tmp_path / "again", "--json"))
    assert [(part["language"], part["rows"], part["near_duplicates"]) for part in again] == [("de", 3, 0), ("de", 1, 0)]
    assert rows(tmp_path / "again") == rows(tmp_path / "out")
    assert "exists already" in run(tmp_path / "out", "--write", tmp_path / "again", code=2)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("text", "A first sentence about cheese.\nA second one, of another kind.\n"),
        ("triples", "query\tpos\tneg\nWhere is it?\tIt is here.\tIt rains today.\n"),
        ("nli-pairs", "label\tpremise\thypothesis\nentailment\tA man eats.\tSomebody eats.\n"),
    ],
)
def test_other_kinds_are_read_as_before(kind, content, tmp_path):
    (tmp_path / "mine.tsv").write_text(content)
    first = json.loads(run(tmp_path / "mine.tsv", "--kind", kind, "--write", tmp_path / "out", "--json"))
    second = json.loads(run(tmp_path / "out", "--kind", kind, "--json"))
    assert [part["examples"] for part in second] == [part["examples"] for part in first]
    assert [part["rows"] for part in second] == [part["rows"] for part in first] != [0]


def test_a_part_that_cannot_be_read_writes_nothing(tmp_path):
    (tmp_path / "good.en-de.tsv").write_text("a cat\teine Katze\n")
    message = run(tmp_path / "good.en-de.tsv", tmp_path / "missing.tsv", "--write", tmp_path / "out", code=2)
    assert "missing.tsv: no such corpus file; nothing was written" in message
    assert [path.name for path in tmp_path.iterdir()] == ["good.en-de.tsv"]


def test_near_texts_are_those_of_all_pairs():
    """Against every pair of texts, in blocks of any size: no kept text is near another, and none is left out alone."""
    generator = random.Random(1)
    words = [f"word{number}" for number in range(60)]
    texts = [" ".join(generator.choices(words, k=8)) for _ in range(150)]
    for _ in range(150):  # with one word changed, or equal
        chosen = generator.choice(texts).split()
        chosen[generator.randrange(8)] = generator.choice(words)
        texts.append(" ".join(chosen))
    texts = [normalise(text) for text in texts]
    growing, kept_texts = GrowingTexts(), []
    edges = [0, 1, 5, 90, 91, 200, len(texts)]
    for start, stop in itertools.pairwise(edges):
        block = texts[start:stop]
        for text, new in zip(block, growing.add(block), strict=True):
            parts = shingles(text)
            nearest = max((jaccard(parts, shingles(other)) for other in kept_texts), default=0.0)
            if abs(nearest - NEAR) > 0.1:  # MinHash finds pairs far enough above it
                assert new == (nearest < NEAR), (text, nearest)
            kept_texts += [text] if new else []
    assert 100 < len(kept_texts) < 250
    assert len(growing._parts) < np.log2(len(texts)) + 2


def test_texts_of_one_pattern_are_compared_with_those_that_stay(monkeypatch):
    """Log lines, templates: all pairs of a block would be millions."""
    pairs = []
    monkeypatch.setattr(duplicates, "jaccard", lambda first, second: pairs.append(1) or jaccard(first, second))
    texts = [f"the house number {number} in the street" for number in range(2000)]
    growing = GrowingTexts()
    is_new = growing.add(texts[:1500]) + growing.add(texts[1500:])
    assert is_new[0]
    assert sum(is_new) < 200
    assert len(pairs) < len(texts) ** 2 / 8
