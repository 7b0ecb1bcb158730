"""Named sets and suites of `msdc evaluate`: files, sums, languages, what is absent."""

import hashlib

import numpy as np
import pytest
from accuracy_models import QUICKSTART, evaluated, markdown, write_pairs

from msdc.bench.accuracy import evaluate
from msdc.bench.accuracy.paper_tables import TABLES, paper_tables, read_published
from msdc.bench.accuracy.sets import find_data_folder, select_sets
from msdc.errors import InputError

ROWS = [(i % 6, f"word{i} cat", f"word{i % 3} dog") for i in range(20)]


@pytest.fixture
def stsb(tmp_path):
    """STSb's test file below the data folder `tmp_path`."""
    (tmp_path / "stsb").mkdir()
    return write_pairs(tmp_path / "stsb" / "sts-test.tsv", ROWS)


def test_named_sets_from_python(bag, monkeypatch, tmp_path, stsb):
    one = evaluate(bag, task="graded-pairs", resamples=0)
    assert one["name"] == "graded-pairs" and one["spearman"] == pytest.approx(
        evaluate(bag, task="sts", path=QUICKSTART / "graded_pairs.tsv", resamples=0)["spearman"]
    )
    with pytest.raises(InputError, match="quickstart is 7 data sets; name one of: quickstart/en-de"):
        evaluate(bag, task="quickstart")
    assert evaluate(bag, task="stsb", data=tmp_path, resamples=0)["pairs"] == 20
    monkeypatch.setenv("MSDC_DATA", str(tmp_path))
    assert evaluate(bag, task="stsb", resamples=0)["pairs"] == 20


def test_a_suite_reports_what_is_absent(tiny_student, tmp_path):
    folder = tmp_path / "sts2017"
    folder.mkdir()
    write_pairs(folder / "STS2017.en-en.tsv", ROWS)
    document = evaluated(tiny_student, ["paper-msd"], data=tmp_path, resamples=0)
    assert [r["name"] for r in document["results"]] == ["sts17/en-en"]
    assert {"sts17/ar-ar", "sts17/en-nl"} <= {one["name"] for one in document["absent"]}
    main = document["tables"][0]
    (ours,) = [row for row in main["rows"] if not row["published"]]
    assert ours["values"]["en-en"] == document["results"][0]["spearman"]
    assert ours["values"]["ar-ar"] is None and ours["values"]["mono_avg"] is None
    assert "data was not found" in markdown(document)


def test_sums_of_the_data_folder_are_held(tiny_student, tmp_path, stsb):
    digest = hashlib.sha256(stsb.read_bytes()).hexdigest()
    (tmp_path / "SHA256SUMS").write_text(f"{digest}  stsb/sts-test.tsv\n", encoding="utf-8")
    document = evaluated(tiny_student, ["stsb"], data=tmp_path, resamples=0)
    assert document["files_with_listed_sums"] == 1 and document["results"][0]["data"][0]["sha256"] == digest
    write_pairs(stsb, [*ROWS, (1, "one more", "pair")])
    with pytest.raises(InputError, match="its sha256 is not the one in SHA256SUMS"):
        evaluate(tiny_student, "stsb", data=tmp_path)
    (tmp_path / "SHA256SUMS").write_text("nonsense\n", encoding="utf-8")
    with pytest.raises(InputError, match="SHA256SUMS line 1"):
        evaluate(tiny_student, "stsb", data=tmp_path)


def test_languages_choose_the_tracks(tmp_path):
    folder = tmp_path / "sts2017"
    folder.mkdir()
    for pair in ("en-en", "es-es", "ar-ar", "en-de"):
        write_pairs(folder / f"STS2017.{pair}.tsv", [(1, "a", "b"), (2, "c", "d")])
    write_pairs(folder / "STS2017.es-en.4b.tsv", [(1, "a", "b"), (2, "c", "d")])
    names = lambda languages: [job.name for job in select_sets(["sts17"], find_data_folder(tmp_path, languages))[0]]  # noqa: E731
    assert names(None) == ["sts17/ar-ar", "sts17/es-es", "sts17/en-en", "sts17/en-de"]
    assert names(("de",)) == ["sts17/en-en", "sts17/en-de"]
    assert [j.name for j in select_sets(["sts17/es-en.4b"], find_data_folder(tmp_path))[0]] == ["sts17/es-en.4b"]


def test_reversed_and_official_file_names(tmp_path):
    folder = tmp_path / "STS2017-extended"
    folder.mkdir()
    (folder / "STS.fr-en.txt").write_text("un\tone\t2.0\ndeux\ttwo\t3\n", encoding="utf-8")
    (job,) = select_sets(["sts17/en-fr"], find_data_folder(tmp_path))[0]
    assert job.load().content.gold_N.tolist() == [2.0, 3.0]


def test_published_tables_are_read_and_add_up():
    for file, title, suites, *_ in TABLES:
        source, columns, rows = read_published(file)
        assert "20" in source and rows and columns[0] == "system"
        filled = paper_tables(suites, {"none": {}})
        (table,) = [t for t in filled if t["title"] == title]
        assert set(table["rows"][-1]["values"]) <= set(columns) and len(table["rows"]) == len(rows) + 1
    _, columns, rows = read_published("msd_sts2017")
    for row in rows:  # the paper's own means: rounded, and one row (XLM-R<-SBERT-paraphrases) is 0.3 off in print
        crossed = [float(row[c]) for c in columns[5:12]]
        assert float(row["cross_avg"]) == pytest.approx(np.mean(crossed), abs=0.16), row["system"]
        assert float(row["mono_avg"]) == pytest.approx(np.mean([float(row[c]) for c in columns[1:4]]), abs=0.35)
    for row in read_published("dcse_sts")[2]:
        assert float(row["avg"]) == pytest.approx(np.mean([float(v) for v in list(row.values())[1:8]]), abs=0.11)
