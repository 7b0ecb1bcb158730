"""`msdc corpus` shows what training would read; what was cut is said."""

import json

from click.testing import CliRunner

from msdc.compress.vocabulary.train import train_vocabulary
from msdc.distill.corpus import command
from msdc.distill.data.corpora import open_corpus
from msdc.distill.recipe import Corpus

CSV = "en,de,score\n" + "A cat.,Eine Katze.,1\n,Ein Hund.,1\nYes.,Ja.,1\nx,y\n" + "z" * 300 + ",Z.,1\n"


def test_rows_language_reasons_and_examples(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(CSV)
    answer = CliRunner().invoke(command, [str(path)])
    assert answer.exit_code == 0
    assert answer.output.splitlines() == [
        f"{path}: csv, columns en + de; language de; 2 rows",
        "  dropped 1: an empty side, the first at line 3",
        "  dropped 1: 2 columns, expected 3, the first at line 5",
        "  dropped 1: longer than 250 characters (max_characters)",
        "  A cat.  |  Eine Katze.",
        "  Yes.  |  Ja.",
    ]


def test_numbers_are_those_of_training(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(CSV)
    (found,) = json.loads(CliRunner().invoke(command, [str(path), "--json"]).output)
    (source,) = open_corpus(Corpus(path=str(path)))
    assert found["rows"] == len(list(source.read())) == 2
    assert sum(drop["rows"] for drop in found["dropped"]) == source.bad + source.too_long == 3
    (found,) = json.loads(CliRunner().invoke(command, [str(path), "--json", "--rows", "1", "--examples", "0"]).output)
    assert (found["rows"], found["all_rows"], found["examples"]) == (1, False, [])


def test_a_file_that_cannot_be_read_does_not_hide_the_others(tmp_path):
    good, bad = tmp_path / "a.en-de.tsv", tmp_path / "b.tsv"
    good.write_text("A.\tB.\n")
    bad.write_text("A.\tB.\n")
    answer = CliRunner().invoke(command, [str(bad), str(good), str(tmp_path / "none.csv")])
    assert answer.exit_code == 2
    lines = answer.output.splitlines()
    assert lines[0].startswith(f"{bad}: nothing says which language")
    assert lines[1].endswith("language de; 1 rows") and lines[-1].endswith("none.csv: no such corpus file")


def test_the_corpora_of_a_recipe_and_the_options_as_keys(tmp_path):
    (tmp_path / "x.tsv").write_text("7\tA.\tB.\t0.3\n")
    (tmp_path / "r.yaml").write_text(
        "corpora: [{path: x.tsv, columns: [3, 2], languages: [fr]}]\nstages: [{name: a, objective: kd}]\n"
    )
    for arguments in (["r.yaml"], ["x.tsv", "--columns", "3,2", "--languages", "fr"]):
        answer = CliRunner().invoke(command, [str(tmp_path / arguments[0]), *arguments[1:]])
        assert answer.output.splitlines()[0].endswith("columns 3 + 2; language fr; 1 rows")
        assert answer.output.splitlines()[1] == "  B.  |  A."


def test_a_vocabulary_that_was_cut_says_so(tmp_path, capsys):
    texts = [f"the {a} {b} of house {n}" for n, (a, b) in enumerate([("red", "door"), ("old", "roof")] * 40)]
    train_vocabulary(texts, tmp_path / "t.model", 2000)
    said = capsys.readouterr().err
    assert "vocabulary: 2,000 pieces asked, " in said and "the 80 sentences support no more" in said
