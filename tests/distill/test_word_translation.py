"""English-only text through the dictionary of the parallel text."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from msdc.distill import distill
from msdc.distill.catalog import parse_recipe
from msdc.distill.data import Row
from msdc.distill.data.corpora import join_punctuation, open_corpora, open_corpus
from msdc.distill.data.tables import open_source_table
from msdc.distill.data.text import StageText
from msdc.distill.recipe import Corpus, HeldOut
from msdc.distill.run import Run
from msdc.distill.word_translation import PendingDictionary, learn_dictionary, translate_sources
from msdc.errors import InputError

# A toy language: every English word has one counterpart, the article has none, "big" has two.
WORDS = {"dog": "wuf", "cat": "mia", "house": "kas", "sleeps": "dor", "runs": "kor", "sees": "vid", "bird": "pip"}


def toy_pairs() -> list[Row]:
    rows = []
    nouns, verbs = ["dog", "cat", "house", "bird"], ["sleeps", "runs", "sees"]
    for repeat in range(4):
        for noun in nouns:
            for verb in verbs:
                big = ("grand", "gross")[repeat % 2]
                rows.append(Row(f"the big {noun} {verb}", f"{WORDS[noun]} {big} {WORDS[verb]}", "xx"))
                rows.append(Row(f"the {noun} {verb}", f"{WORDS[noun]} {WORDS[verb]}", "xx"))
    return rows


def pending(rows: list[Row]) -> PendingDictionary:
    return PendingDictionary(lambda: learn_dictionary(rows), (repr(rows),))


def test_the_dictionary_finds_every_counterpart_and_leaves_the_article_out() -> None:
    dictionary = learn_dictionary(toy_pairs())
    entries = dictionary.by_language["xx"]
    for word, counterpart in WORDS.items():
        assert entries[word][0][0] == counterpart
    assert set(entries["big"][0]) == {"grand", "gross"}
    assert dictionary.translate("The cat sees, the Bird runs!", "xx") == "mia vid, pip kor!"


def test_words_in_more_than_one_of_a_hundred_sentences_are_no_content_words() -> None:
    """Such a word without a counterpart is dropped, as an article is; one with a counterpart replaces no other."""
    nouns = [first + vowel + last for first in "bdfgklmnprstv" for vowel in "aeiou" for last in ("do", "ki")]
    rows = []
    for number, noun in enumerate(nouns):
        for verb, counterpart in (("sleeps", "dor"), ("runs", "kor")):
            article = "the " if number % 10 == 0 else ""
            rows += [Row(f"{article}{noun} {verb}", f"{noun[::-1]} {counterpart}", "xx")] * 2
    dictionary = learn_dictionary(rows)
    assert dictionary.translate("the bado sleeps", "xx") == "odab dor"
    assert set(dictionary.content) == set(nouns)


def test_every_process_has_the_same_dictionary() -> None:
    """Tables of translated text are found again, and processes that train together read the same text."""
    code = (
        "from msdc.distill.data import Row; from msdc.distill.word_translation import learn_dictionary;"
        "nouns = [a + b + 'o' for a in 'bdfgk' for b in 'aeiou'];"
        "rows = [Row(f'{noun} {verb}', f'{noun[::-1]} {verb[::-1]}', code)"
        " for noun in nouns for verb in ('sleeps', 'runs', 'sees') for code in ('xx', 'zh')] * 2;"
        "found = learn_dictionary(rows); print(found)"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_unknown_words_stay_and_a_text_has_one_translation() -> None:
    dictionary = learn_dictionary(toy_pairs())
    assert dictionary.translate("the zebra sleeps", "xx") == "zebra dor"
    translations = {dictionary.translate("the big dog", "xx") for _ in range(20)}
    assert len(translations) == 1
    assert {dictionary.translate(f"big {i}", "xx").split()[0] for i in range(40)} == {"grand", "gross"}


def test_a_word_of_fewer_than_three_sentences_is_not_translated() -> None:
    for count, translation in ((2, "fish dor"), (3, "nag dor")):
        dictionary = learn_dictionary([*toy_pairs(), *[Row("the fish sleeps", "nag dor", "xx")] * count])
        assert dictionary.translate("fish sleeps", "xx") == translation


def test_a_language_without_spaces_is_cut_into_words() -> None:
    words = {
        "dog": "小狗",
        "cat": "花猫",
        "house": "房子",
        "bird": "飞鸟",
        "sleeps": "睡觉",
        "runs": "跑步",
        "sees": "看见",
    }
    nouns, verbs = list(words)[:4], list(words)[4:]
    rows = [Row(f"{noun} {verb}", f"{words[noun]}{words[verb]}", "zh") for noun in nouns for verb in verbs] * 8
    dictionary = learn_dictionary(rows)
    for noun in nouns:
        assert words[noun] in dictionary.by_language["zh"][noun][0]
    translation = dictionary.translate("Cat cat bird, OK dog", "zh")
    assert " " not in translation.split(",")[0]


def _corpora(folder: Path) -> tuple[Corpus, Corpus]:
    pairs = folder / "pairs.en-xx.tsv"
    pairs.write_text("".join(f"{row.source}\t{row.target}\n" for row in toy_pairs()), encoding="utf-8")
    with gzip.open(folder / "nli.tsv.gz", "wt", encoding="utf-8") as handle:
        handle.write("gold_label\tpremise\thypothesis\n")
        handle.write("entailment\tThe dog runs .\tThe big dog runs .\nneutral\tThe dog runs .\tThe cat sleeps .\n")
    text = Corpus(
        path=str(folder / "nli.tsv.gz"), kind="text", columns=("premise", "hypothesis"), tokenized=True,
        word_by_word=("xx",),
    )  # fmt: skip
    return Corpus(path=str(pairs)), text


def test_text_becomes_pairs_that_are_never_held_out_nor_learnt_from(tmp_path: Path) -> None:
    corpora = _corpora(tmp_path)
    sources = open_corpora(corpora)
    plain = StageText(list(map(open_source_table, sources)), 1, HeldOut(share=0.4)).sample_rows(1000)
    sources = translate_sources(sources, pending(toy_pairs()))
    text = StageText(list(map(open_source_table, sources)), 1, HeldOut(share=0.4))
    table = text.tables[-1]
    rows = table.read(np.arange(table.rows))
    assert [row.source for row in rows] == ["The dog runs.", "The big dog runs.", "The cat sleeps."]
    assert rows[0].target == "wuf kor."
    assert rows[0].language == "xx"
    assert {row.source for row in text.sample_rows(1000)} == {row.source for row in plain if row.language == "xx"}
    held = {row.source for rows in text.heldout_rows().values() for row in rows}
    assert held
    assert not held & {row.source for row in rows}


def test_languages_of_a_recipe_leave_english_text(tmp_path: Path) -> None:
    assert [source.language for source in open_corpora(_corpora(tmp_path), languages=("xx",))] == ["xx", "en"]
    assert [source.language for source in open_corpora(_corpora(tmp_path), languages=("yy",))] == ["en"]


def test_a_language_without_parallel_text_and_a_missing_column_are_named(tmp_path: Path) -> None:
    _, text = _corpora(tmp_path)
    other = text.model_copy(update={"word_by_word": ("qq",)})
    (source,) = translate_sources(open_corpus(other), pending(toy_pairs()))
    with pytest.raises(InputError, match="word_by_word 'qq' needs parallel text in that language \\(have xx\\)"):
        open_source_table(source)
    with pytest.raises(InputError, match="no column 'sentence' \\(have gold_label, premise, hypothesis\\)"):
        open_corpus(text.model_copy(update={"columns": ("sentence",)}))


def rich_pairs() -> list[Row]:
    """Two hundred nouns, each in half a percent of the sentences; a noun's counterpart is its mirror image."""
    nouns = [a + b + c + "o" for a in "bdfgk" for b in "aeiou" for c in "lmnprstv"]
    verbs = ["sleeps", "runs", "sees"]
    return [Row(f"{noun} {verb}", f"{noun[::-1]} {WORDS[verb]}", "xx") for noun in nouns for verb in verbs]


def test_recombined_text_keeps_its_frame_and_its_translation_follows() -> None:
    dictionary = learn_dictionary(rich_pairs())
    texts = [f"balo sleeps {i}." for i in range(200)]
    recombined = [dictionary.recombine(text, 0.5) for text in texts]
    assert recombined == [dictionary.recombine(text, 0.5) for text in texts]
    nouns = [text.split()[0] for text in recombined]
    assert 60 < sum(noun != "balo" for noun in nouns) < 140
    assert len(set(nouns)) > 40
    for number, (text, noun) in enumerate(zip(recombined, nouns, strict=True)):
        assert text == f"{noun} sleeps {number}."
        assert noun in dictionary.content
        assert dictionary.translate(text, "xx") == f"{noun[::-1]} dor {number}."
    assert dictionary.recombine("zebra sleeps", 1.0) == "zebra sleeps"
    assert dictionary.recombine(texts[0], 0.0) == texts[0]


def test_columns_by_number_have_no_header(tmp_path: Path) -> None:
    path = tmp_path / "rich.tsv"
    path.write_text("".join(f"{row.source}\t{row.target}\n" for row in rich_pairs()), encoding="utf-8")
    text = Corpus(path=str(path), kind="text", columns=(1,), word_by_word=("xx",), recombine=0.4)
    [source] = translate_sources(open_corpus(text), pending(rich_pairs()))
    rows = list(source.read())
    assert rows[0].target.split()[1] in WORDS.values()
    assert rows[0].target.split()[0][::-1] == rows[0].source.split()[0]
    with pytest.raises(InputError, match="no column 3"):
        open_corpus(text.model_copy(update={"columns": (3,)}))


def test_join_punctuation() -> None:
    assert join_punctuation("a dog , a cat ( or two ) and i do n't know .") == "a dog, a cat (or two) and i don't know."
    assert join_punctuation("the man 's hat !") == "the man's hat!"
    assert join_punctuation("No change, here.") == "No change, here."
    assert join_punctuation("在 测试 中 ， 艾伦 Allen 看 书 。") == "在测试中，艾伦 Allen 看书。"
    assert join_punctuation("친구 와 영화") == "친구 와 영화"


def test_a_resumed_run_aligns_nothing_again(tiny_tree, tmp_path, monkeypatch) -> None:
    """Its tables are found without the dictionary that they were translated with; other parallel text is another."""
    learned: list[int] = []
    monkeypatch.setattr("msdc.distill.run.learn_dictionary", lambda rows: learned.append(1) or learn_dictionary(rows))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text("".join(f"The dog sees bird {i}.\n" for i in range(30)))
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{row.source}\t{row.target}\n" for row in toy_pairs()))
    text = {"path": str(tmp_path / "text.txt"), "kind": "text", "word_by_word": ["es"]}
    tree = tiny_tree | {
        "corpora": [{"path": str(pairs), "languages": ["es"]}, text], "stages": tiny_tree["stages"][3:],
    }  # fmt: skip

    def rows(run: Run) -> list[Row]:
        (table,) = (table for table in run.text().tables if table.source.synthetic)
        return table.read(np.arange(table.rows))

    distill(tree, tmp_path / "run")
    assert len(learned) == 1
    first = rows(Run(parse_recipe(tree, "tiny"), tmp_path / "other"))
    assert len(first) == 30
    assert first[0].target.split()[1:] != first[0].source.split()[1:]
    (tmp_path / "run" / "result.json").unlink()
    distill(tree, tmp_path / "run", resume=True)
    assert len(learned) == 1
    # Another seed, and another held-out share, choose other rows to learn from.
    for change, count in (({"seed": 5}, 2), ({}, 2), ({"heldout": {"share": 0.3}}, 3)):
        rows(Run(parse_recipe(tree | change, "tiny"), tmp_path / "other"))
        assert len(learned) == count
    with pairs.open("a") as handle:
        handle.write("the horse runs\tkab kor\n" * 4)
    rows(Run(parse_recipe(tree, "tiny"), tmp_path / "other"))
    assert len(learned) == 4
