"""What is probably wrong with training text: each kind is named with its count, and clean text is not accused."""

import json

import numpy as np
import pytest
import tiny_models
import yaml
from click.testing import CliRunner

from msdc.commands.distill import command
from msdc.distill import distill
from msdc.distill.catalog import parse_recipe
from msdc.distill.data import Row
from msdc.distill.data.checks import (
    copies,
    language_warnings,
    likely_language,
    overlap_warnings,
    repeated,
    texts_by_language,
    untrained_parts,
    vocabulary_warnings,
)
from msdc.distill.data.corpora import open_corpora
from msdc.distill.data.tables import heldout_hash, open_source_table
from msdc.distill.data.text import StageText
from msdc.distill.recipe import Corpus, HeldOut, Stage
from msdc.errors import InputError
from msdc.text.quickstart import PARALLEL, parallel_table
from msdc.text.scored_pairs import ScoredPairs

GEORGIAN = ["სახლი დიდია", "ძაღლი გარბის", "დღეს ცხელა", "წიგნი მაგიდაზეა", "ბავშვი თამაშობს"]


def table_of(tmp_path, lines, name="text.tsv", **settings):
    path = tmp_path / name
    path.write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")
    (source,) = open_corpora((Corpus(path=str(path), **({"languages": ("de",)} | settings)),))
    return open_source_table(source)


@pytest.mark.parametrize("code", parallel_table()[0])
def test_the_languages_of_the_embedded_corpus_are_told_apart(code):
    """No sentence of it is accused, and all its sentences are under every other name: by letters or by trigrams."""
    header, rows = parallel_table()
    texts = [row[header.index(code)] for row in rows]
    assert language_warnings("x", {code: texts}) == []
    for other in set(header) - {code}:
        (line,) = language_warnings("x", {other: texts})
        assert f"read as {other}" in line


def test_short_texts_numbers_and_other_languages_accuse_nobody():
    assert language_warnings("x", {"en": ["Danke"] * 5, "sw": ["habari ya asubuhi"] * 30, "de": ["12.5 %"] * 40}) == []
    assert likely_language("habari ya asubuhi", "sw") == "sw"
    assert likely_language("OK", "de") == "de"


def test_swapped_columns_are_told_before_the_run_and_in_its_card(tiny_tree, tmp_path, capsys):
    corpora = [{"path": str(PARALLEL), "columns": [2, 1], "languages": ["de"]}]
    tree = tiny_tree | {"corpora": corpora, "stages": [tiny_tree["stages"][0] | {"steps": 2}]}
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(tree))
    result = CliRunner().invoke(command, [str(file), "--dry-run"])
    for code, guess in (("en", "de"), ("de", "en")):
        assert f"texts read as {code} look like {guess}: check `columns`" in result.stderr
    card = (distill(tree, tmp_path / "run").student / "README.md").read_text()
    assert "## Warnings of the training run" in card
    assert "texts read as en look like de" in card
    assert str(tmp_path / "run") not in card


def test_text_that_no_token_spells_is_refused_or_counted(tiny_tree, tmp_path):
    """Against a count by the tokenizer itself."""
    tokenizer = tiny_models.tokenizer()
    texts = [f"{GEORGIAN[n % 5]} {n}" for n in range(40)]
    with pytest.raises(InputError, match="vocabulary of student cannot read ka: 40 of 40 texts are mostly unknown"):
        vocabulary_warnings("x", {"ka": texts}, tokenizer, "student")
    (line,) = vocabulary_warnings("x", {"ka": texts}, tokenizer, "the teacher", refuse=False)
    assert "the teacher cannot read ka" in line
    mixed = [f"the cat sleeps on the red house {n % 7}" + " წ" * (n % 10 == 0) for n in range(100)]
    (line,) = vocabulary_warnings("x", {"en": mixed}, tokenizer, "student")
    count = sum(tokenizer.unk_id in row for row in tokenizer.encode(mixed, 512))
    assert line.startswith(f"x: {count} of 100 texts in en have characters that are unknown")
    path = tmp_path / "text.en-ka.tsv"
    path.write_text("".join(f"the cat {n}\t{text}\n" for n, text in enumerate(texts)), encoding="utf-8")
    tree = tiny_tree | {
        "assistant": None, "student": str(tiny_models.student_folder()), "stages": tiny_tree["stages"][3:],
        "corpora": [{"path": str(path), "languages": ["ka"]}], "heldout": {"share": 0.1},
    }  # fmt: skip
    for attempt in (lambda: distill(tree, tmp_path / "run"), lambda: dry(tree, tmp_path)):
        with pytest.raises(InputError, match="cannot read ka"):
            attempt()


def dry(tree, tmp_path):
    from msdc.distill.dry_run import dry_run

    return dry_run(parse_recipe(tree, "tiny"))


def test_copies_are_counted(tmp_path):
    lines = [(f"sentence {n % 40}", f"Satz {n % 40}") for n in range(4000)]
    assert copies(table_of(tmp_path, lines)) == pytest.approx(100)
    assert copies(table_of(tmp_path, [(f"sentence {n}", "Satz") for n in range(300)], "b.tsv")) == 1


def test_a_small_set_that_is_read_many_times_is_named(tmp_path):
    """Against the rows that the order draws."""
    small = table_of(tmp_path, [(f"few {n}", f"wenig {n}") for n in range(64)], "small.tsv")
    large = table_of(tmp_path, [(f"many {n}", f"viel {n}") for n in range(6400)], "large.tsv", languages=("es",))
    text = StageText([small, large], 1, HeldOut(share=1e-6), "equal")
    stage = Stage(name="s", objective="multilingual_mse", balance="equal", batch=64, steps=400)

    def often(stage, text):
        return repeated(stage, text.order, [table.about["name"] for table in text.tables], text.languages(), 400)

    (line,) = often(stage, text)
    epochs = 400 * 64 / text.order.epoch_rows
    drawn = sum(len(rows.get(0, ())) for rows in (text.order.chunk(0, n) for n in range(text.order.chunks)))
    assert f"the 64 rows of small.tsv [de] are read {epochs * drawn / 64:.0f} times" in line
    assert often(stage.model_copy(update={"balance": "root"}), StageText([large], 1, HeldOut(share=1e-6))) == []


def test_development_and_report_pairs_inside_the_text_are_counted(tiny_tree, tmp_path, capsys):
    table = table_of(tmp_path, [(f"A cat {n}.", f"Eine Katze {n}.") for n in range(100)])
    first, second = [f"a CAT {n}." for n in range(95, 105)], ["Eine Katze 95.", *(f"other {n}" for n in range(9))]
    pairs = ScoredPairs("dev", first, second, np.arange(10.0), ["dev"] * 10, list(range(1, 11)), [])
    (line,) = overlap_warnings(pairs, "heldout.graded", [table])
    assert line.startswith("heldout.graded dev: 5 of its 10 pairs have a sentence in the training text (1 have both)")
    unseen = ScoredPairs("dev", ["x"], ["y"], np.arange(1.0), ["dev"], [1], [])
    assert overlap_warnings(unseen, "report", [table]) == []
    # In a run, for both settings.
    (tmp_path / "my-dev.tsv").write_text("".join(f"{n % 6}\tA cat {n}.\tno {n}\n" for n in range(20)))
    tree = tiny_tree | {
        "corpora": [{"path": str(tmp_path / "text.tsv"), "languages": ["de"]}],
        "report": [str(tmp_path / "my-dev.tsv")],
        "heldout": {"share": 0.1, "graded": [str(tmp_path / "my-dev.tsv")]},
        "stages": [tiny_tree["stages"][0] | {"steps": 2}],
    }  # fmt: skip
    result = distill(tree, tmp_path / "run")
    warnings = json.loads((tmp_path / "run" / "warnings.json").read_text())["warnings"]
    for use in ("heldout.graded", "report"):
        assert any(warning.startswith(f"{use} my-dev: 20 of its 20 pairs have a sentence") for warning in warnings)
    assert "report my-dev: 20 of its 20" in (result.student / "README.md").read_text()
    # A resumed run says it again and notes it once.
    distill(tree, tmp_path / "run", True)
    assert json.loads((tmp_path / "run" / "warnings.json").read_text())["warnings"] == warnings


def test_texts_are_those_of_their_columns():
    rows = [Row("a", "b", "de", ("c",)), Row("a", "", "de")]
    assert texts_by_language(rows, "en") == {"en": ["a"], "de": ["b", "c"]}


def test_a_file_that_two_corpora_read_and_a_part_that_none_is_trained_of(tiny_tree, tmp_path, capsys):
    path = tmp_path / "text.tsv"
    path.write_text("".join(f"the cat {n} sleeps\tdie katze {n}\n" for n in range(60)))
    (tmp_path / "one.tsv").write_text("the cat 1 sleeps\tle chat\n")
    corpora = [{"path": str(path), "languages": ["de"], "name": name} for name in ("a", "b")]
    corpora.append({"path": str(tmp_path / "one.tsv"), "languages": ["fr"]})
    (tmp_path / "my-dev.tsv").write_text("".join(f"{n % 6}\tdog {n}\tdog {n % 4}\n" for n in range(12)))
    tree = tiny_tree | {
        "corpora": corpora, "heldout": {"share": 0.45, "graded": [str(tmp_path / "my-dev.tsv")]}, "sample": 0.01,
        "report": [str(tmp_path / "my-dev.tsv")], "stages": [tiny_tree["stages"][0] | {"steps": 2, "batch": 500}],
    }  # fmt: skip
    distill(tree | {"sample": 0.5}, tmp_path / "run")
    messages = capsys.readouterr().err
    assert "text.tsv: 2 corpora read it: its rows count 2 times" in messages
    assert "stage one: batch is 500, the text has" in messages
    assert "my-dev.tsv also chooses the weights (heldout.graded): report another file" in messages


def test_a_part_of_which_no_row_is_trained_is_named(tmp_path):
    large = table_of(tmp_path, [(f"many {n}", f"viel {n}") for n in range(3000)])
    heldout = next(f"many {n}" for n in range(3000) if heldout_hash(f"many {n}") < 0.01 * 2**32)
    small = table_of(tmp_path, [(heldout, "beaucoup")], "one.tsv", languages=("fr",))
    stage = Stage(name="s", objective="multilingual_mse", batch=8)
    (line,) = untrained_parts(stage, StageText([large, small], 1, HeldOut(share=0.01)))
    assert line.startswith("stage s: none of the 1 rows of one.tsv [fr] is trained")
