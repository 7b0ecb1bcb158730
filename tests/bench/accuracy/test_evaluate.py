"""`msdc evaluate`: float models, artifacts on both runtimes, named sets, suites, files, what is absent, exit codes."""

import hashlib
import json
import os
import re
import shutil
from functools import partial

import numpy as np
import pytest
from accuracy_models import QUICKSTART, WordBag, evaluated, markdown, write_pairs

import msdc
from msdc import cli
from msdc.bench.accuracy import evaluate, verbs
from msdc.bench.accuracy.document import read_document
from msdc.bench.accuracy.evaluation import NO_CORPUS, exported, open_evaluated, training_text
from msdc.bench.accuracy.paper_tables import TABLES, paper_tables, read_published
from msdc.bench.accuracy.parallel import read_parallel
from msdc.bench.accuracy.sets import SETS, SUITES, find_data_folder, select_sets
from msdc.bench.accuracy.task import Settings
from msdc.bench.accuracy.vectors import CachedEncoder
from msdc.bench.accuracy.verbs import EvaluateOptions
from msdc.bench.report.page import evaluation_report, to_html
from msdc.errors import InputError
from msdc.options import with_option_keywords
from msdc.scores import cosine_rows, spearman, unit_rows
from msdc.text.quickstart import GRADED_PAIRS, PARALLEL
from msdc.text.scored_pairs import read_pairs

GRADED = read_pairs(GRADED_PAIRS)


def command(capsys, *arguments) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def page(document: dict) -> str:
    return to_html(evaluation_report(read_document(document)))


def test_the_precision_of_a_shipped_model(tiny_bundle):
    """int8 as in every command; float where programs are compared with it, and where it is asked for."""

    def records(**options) -> list[tuple]:
        models = evaluated("msdc-mini", ["graded-pairs"], resamples=0, **options)["models"]
        return [
            (model["kind"], model.get("precision"), model["sha256"])
            for model in models
            if model["label"] == "msdc-mini"
        ]

    exact = msdc.load_encoder("msdc-mini", precision="float").fingerprint()
    assert records() == [("program", "int8", msdc.load_encoder("msdc-mini").fingerprint())]
    assert records(precision="float") == records(artifacts=[tiny_bundle]) == [("float", None, exact)]


def test_list_needs_no_model(capsys):
    code, out, _ = command(capsys, "evaluate", "--list")
    assert code == 0
    assert all(name in out for name in (*SETS, *SUITES))


def test_json_of_a_float_model(capsys, tiny_student, tmp_path):
    code, out, err = command(
        capsys, "evaluate", tiny_student, "--tasks", f"graded-pairs,sts={QUICKSTART / 'graded_pairs.tsv'}", "--json",
        "--resamples", "20", "--quiet", "-o", tmp_path / "r.json",
    )  # fmt: skip
    assert code == 0, err
    document = json.loads(out)
    first, second = document["results"]
    assert first["name"] == "graded-pairs"
    assert second["name"].startswith("sts=")
    assert first["spearman"] == second["spearman"]
    assert first["pairs"] == second["pairs"] == 112
    assert document["models"][0]["kind"] == "float"
    assert "contamination not checked" in err
    assert json.loads((tmp_path / "r.json").read_text("utf-8")) == document
    assert re.fullmatch("[0-9a-f]{64}", first["data"][0]["sha256"])
    scores = evaluate(str(tiny_student), "sts", QUICKSTART / "graded_pairs.tsv", resamples=20)
    assert {**scores, "seconds": 0, "name": 0} == {**first, "seconds": 0, "name": 0}


def test_texts_that_a_model_reads_in_part_are_counted(tiny_student, tiny_bundle, tmp_path, capsys):
    """In the result, on the page and in the terminal, of a float model, its artifact and fewer dimensions."""
    long = "The bus to the old station leaves at seven in the morning. " * 9
    file = tmp_path / "pairs.tsv"
    # Five texts, of which two different ones are long; one of them is there twice.
    file.write_text(f"{long}\ta bus\t3\n{long}\ta cat\t1\na dog\t{long} too\t2\nrain\tsnow\t4\n", encoding="utf-8")
    document = evaluated(tiny_student, ["graded-pairs", f"sts={file}"], artifacts=(str(tiny_bundle),),
                         truncate_dims=(8,), resamples=0)  # fmt: skip
    counts = {(row["model"], row["name"]): row["truncated"] for row in document["results"]}
    assert set(counts.values()) == {0, 2}
    assert {model for (model, name), count in counts.items() if count == 2} == {
        model["label"] for model in document["models"]
    }
    line = "tiny-student: 2 texts are longer than the model reads and only in part in its score"
    assert line in page(document)
    code, out, err = command(capsys, "evaluate", tiny_student, "--tasks", f"sts={file}", "--resamples", 0)
    assert code == 0, err
    assert "2 texts are longer than the model reads" in " ".join(out.split())
    (row,) = evaluated(WordBag(), [f"sts={file}"], resamples=0)["results"]
    assert row["truncated"] is None, "a model that has no tokens that we know of"


@pytest.fixture(scope="module")
def card(tiny_student, tiny_bundle, tmp_path_factory):
    """The tiny student and its artifacts through a suite, with a training corpus to look through."""
    corpus = tmp_path_factory.mktemp("corpus") / "c.en-de.tsv"
    corpus.write_text("".join(f"{text.upper()}\tx\n" for text in GRADED.first[:7]), encoding="utf-8")
    texts = corpus.with_name("texts.tsv")
    texts.write_text("\n".join(PARALLEL.read_text("utf-8").splitlines()[:40]) + "\n", encoding="utf-8")
    tasks = ["graded-pairs", "bias/graded-pairs", f"drift={texts}"]
    return evaluated(
        tiny_student, tasks, artifacts=[tiny_bundle], languages=["en", "de"], corpora=[corpus], resamples=30
    )


def test_artifacts_are_what_is_measured(card, tiny_student, tiny_bundle):
    """Every row of an artifact comes from its own runtime's vectors, not from the float model."""
    labels = [model["label"] for model in card["models"]]
    assert labels == ["tiny-student", "tiny (executorch)", "tiny (onnx)"]
    (row,) = [r for r in card["results"] if r["model"] == "tiny-student" and r["name"] == "graded-pairs"]
    assert row["contamination"]["exact"] == 7
    assert card["contamination"]["corpora"][0]["sentences"] == 14
    assert "7 + " in markdown(card)
    for model in card["models"][1:]:
        bundle = msdc.load_bundle(tiny_bundle, runtime=model["runtime"])
        spearman = evaluate(bundle, task="sts", path=QUICKSTART / "graded_pairs.tsv", resamples=0)["spearman"]
        (row,) = [r for r in card["results"] if r["model"] == model["label"] and r["name"] == "graded-pairs"]
        assert row["spearman"] == spearman
        assert row["against"]["model"] == "tiny-student"
        assert row["against"]["difference"] == pytest.approx(spearman - row["against"]["spearman"], abs=1e-9)
        assert model["bytes"] > 1000
        assert model["kind"] == "artifact"
    rows = [r for r in card["results"] if r["task"] == "drift"]
    assert [r["model"] for r in rows] == labels[1:], "a float model drifts from nobody"
    assert all(r["reference"] == "tiny-student" and r["cosine"] > 0.9999 for r in rows)
    assert set(rows[0]["languages"]) == {"en", "de", "es", "fr", "it", "nl", "tr", "ar"}


def test_vectors_cut_to_their_first_numbers(tiny_student, tiny_bundle, capsys):
    """A cut model is scored on the numbers it keeps, against the whole one, and drifts from nobody."""
    texts = ("graded-pairs", f"drift={QUICKSTART / 'parallel.tsv'}")
    document = evaluated(tiny_student, texts, artifacts=[tiny_bundle], truncate_dims=[8], resamples=20)
    label = "tiny-student (first 8)"
    assert [model["label"] for model in document["models"]][:2] == ["tiny-student", label]
    (row,) = [r for r in document["results"] if r["model"] == label]
    model = msdc.load_encoder(tiny_student)
    first, second = (model.encode(side)[:, :8] for side in (GRADED.first, GRADED.second))
    expected = spearman(cosine_rows(first, second), GRADED.gold_N)
    assert row["spearman"] == pytest.approx(expected, abs=1e-6)
    assert row["against"]["model"] == "tiny-student"
    assert "p" in row["against"]
    assert label in markdown(document)
    for widths, word in (("99", "give fewer"), ("0", "give fewer"), ("x", "expected numbers")):
        code, _, err = command(capsys, "evaluate", tiny_student, "--tasks", "graded-pairs", "--truncate-dim", widths)
        assert code == 2
        assert word in err


def test_a_page_is_escaped(card):
    poisoned = page(json.loads(json.dumps(card).replace("tiny-student", "<b>&x")))
    assert "<b>&x" not in poisoned
    assert "&lt;b&gt;&amp;x" in poisoned
    assert "<svg" in page(card)


def test_against_another_model(tiny_student, tiny_bundle):
    tasks = ["graded-pairs", f"drift={QUICKSTART / 'golden_texts.txt'}"]
    document = evaluated(tiny_bundle, tasks, runtime="onnx", against=tiny_student, resamples=40)
    sts = [r for r in document["results"] if r["task"] == "sts"]
    assert sts[0]["model"] == "tiny (onnx)"
    assert sts[0]["against"]["model"] == "tiny-student"
    assert 0 < sts[0]["against"]["p"] <= 1
    assert "against" not in sts[1]
    (drift,) = [r for r in document["results"] if r["task"] == "drift"]
    assert drift["model"] == "tiny (onnx)"
    assert drift["reference"] == "tiny-student"


def test_cache_is_used_and_a_damaged_one_named(tiny_student, tmp_path):
    first = evaluate(tiny_student, "graded-pairs", cache=tmp_path, resamples=0)
    (file,) = tmp_path.iterdir()
    assert evaluate(tiny_student, "graded-pairs", cache=tmp_path, resamples=0)["spearman"] == first["spearman"]
    bag = WordBag()
    CachedEncoder(bag, cache=tmp_path, key="k").encode(["one"])
    store = CachedEncoder(bag, cache=tmp_path, key="k")
    store.encode(["one", "two"])
    store.save()
    again = CachedEncoder(bag, cache=tmp_path, key="k")
    calls = bag.calls
    assert np.array_equal(again.encode(["two", "one"]), store.encode(["two", "one"]))
    assert bag.calls == calls
    file.write_bytes(b"not an archive")
    with pytest.raises(InputError, match="damaged vector cache"):
        evaluate(tiny_student, "graded-pairs", cache=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tasks", "nonsense"], "unknown set 'nonsense' (known: sts17"),
        (["--tasks", "stsb"], "stsb needs a data folder: pass --data or set MSDC_DATA"),
        (["--tasks", "sts17/xx-yy", "--data", "{empty}"], "sts17 has no part 'xx-yy'; known parts:"),
        (["--tasks", "stsb", "--data", "{empty}"], "stsb: no stsb/sts-test.tsv* under"),
        (["--tasks", "sts=none.tsv"], "none.tsv: no such file"),
        (["--tasks", "drift/quickstart"], "name it as --reference"),
        (["--tasks", "graded-pairs", "-o", "x.pdf"], "choose one of these suffixes"),
        (["--tasks", "graded-pairs", "--corpus", "none"], "none: no such training corpus"),
        (["--tasks", "flores", "--data", "{empty}", "--languages", "klingon"], "unknown language 'klingon'"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(capsys, monkeypatch, tmp_path, tiny_student, arguments, message):
    monkeypatch.delenv("MSDC_DATA", raising=False)
    code, _, err = command(capsys, "evaluate", tiny_student, "--quiet", *(a.format(empty=tmp_path) for a in arguments))
    line = [row for row in err.splitlines() if row.startswith("error: ")]
    assert code == 2
    assert len(line) == 1
    assert message in line[0]


def test_card_exports_and_finds_the_training_text_by_itself(tiny_student, tmp_path, monkeypatch):
    """Nothing but the model is named: artifacts, languages and corpora come from the model and its run folder."""
    run_folder = tmp_path / "run"
    student = shutil.copytree(tiny_student, run_folder / "student")
    (student / "README.md").write_text("---\nlanguage: [en, de]\n---\n", encoding="utf-8")
    (tmp_path / "data").mkdir()
    rows = "".join(f"{text}\tx\n" for text in GRADED.first[:3])
    (tmp_path / "data" / "c.en-de.tsv").write_text(rows, encoding="utf-8")
    (run_folder / "recipe.yaml").write_text(
        "teacher: all-MiniLM-L6-v2\ncorpora:\n  - {path: '{data}/c.*.tsv', languages: [de]}\n"
        "stages:\n  - {name: train, train: student, teacher: teacher, objective: multilingual_mse}\n",
        encoding="utf-8",
    )
    monkeypatch.setitem(SUITES, "card", ("graded-pairs", "quickstart", "drift/quickstart"))
    monkeypatch.setenv("MSDC_DATA", "/nowhere")
    # one runtime: the other takes a minute to export
    monkeypatch.setattr(verbs, "exported", partial(exported, runtime="onnx"))
    document = evaluated(student, ["card"], data=tmp_path / "data", resamples=0)
    assert os.environ["MSDC_DATA"] == "/nowhere"
    labels = [model["label"] for model in document["models"]]
    assert labels == ["student", "student (onnx)"]
    assert document["models"][1]["precision"] == "int8"
    assert {r["name"] for r in document["results"]} == {"graded-pairs", "quickstart/en-de", "drift/quickstart"}
    assert [r["model"] for r in document["results"] if r["task"] == "drift"] == labels[1:]
    assert document["contamination"]["checked"]
    assert document["results"][0]["contamination"]["exact"] >= 1
    shown = markdown(document)
    assert "| student | float |" in shown
    assert "int8" in shown.split("## ")[2]


def test_a_recipe_whose_text_is_not_here_is_told_and_stops_nothing(tmp_path, tiny_student, monkeypatch):
    monkeypatch.setenv("MSDC_DATA", str(tmp_path))
    shipped, unshipped = (
        open_evaluated(name, taken=set(), settings=Settings()) for name in ("msdc-mini", tiny_student)
    )
    corpora, why = training_text(shipped, None)
    assert corpora == ()
    assert "tatoeba" in why
    assert training_text(unshipped, None) == ((), NO_CORPUS)


def test_retrieval_is_reported_without_the_pairs_of_the_training_text(tiny_student, tmp_path):
    """Accuracy over pairs of which the corpus holds neither side, in the same pool, by brute force."""
    german, english = (read_parallel(PARALLEL).sides[code][:60] for code in ("de", "en"))
    for code, side in (("deu", german), ("eng", english)):
        (tmp_path / f"x.deu-eng.{code}").write_text("\n".join(side) + "\n", encoding="utf-8")
    trained_texts = {*german[:10], *english[5:25]}
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(f"{text.upper()}!\n" for text in sorted(trained_texts)), encoding="utf-8")
    tasks = [f"tatoeba={tmp_path / 'x.deu-eng.deu'}"]
    document = evaluated(tiny_student, tasks, corpora=[corpus], near=None, resamples=20)
    (row,) = document["results"]
    model = msdc.load_encoder(tiny_student)
    cosines = unit_rows(model.encode(german)) @ unit_rows(model.encode(english)).T
    right = ((cosines.argmax(1) == np.arange(60)) * 1.0 + (cosines.argmax(0) == np.arange(60))) / 2
    assert row["accuracy"] == pytest.approx(100 * right.mean())
    assert row["unseen"]["pairs"] == 35
    assert row["unseen"]["accuracy"] == pytest.approx(100 * right[25:].mean())
    assert 0 < right[25:].mean() != right.mean()
    assert row["unseen"]["interval"][0] <= row["unseen"]["accuracy"] <= row["unseen"]["interval"][1]
    shown = markdown(document)
    words = ("x.deu-eng, unseen pairs |", "| 35 |", "neither side is in the training")
    assert all(word in shown for word in words)


def test_a_file_is_shown_by_its_name_and_the_summary_says_who_is_better(tiny_student, tmp_path):
    rows = [(i % 6, f"word{i} cat", f"word{i % 3} dog") for i in range(20)]
    for name in ("one.en-de.tsv", "two.tsv"):
        write_pairs(tmp_path / name, rows)
    tasks = [f"sts={tmp_path}/one.en-de.tsv", f"sts={tmp_path}/two.tsv"]
    document = evaluated(tiny_student, tasks, against="msdc-nano", near=None, resamples=50)
    assert [row["name"] for row in document["results"]][::2] == tasks  # the document has the paths
    report = markdown(document)
    assert "sts=" not in report
    assert f"one.en-de: `{tmp_path}/one.en-de.tsv`" in report
    (difference,) = {round(row["against"]["difference"], 1) for row in document["results"] if row.get("against")}
    names = ["msdc-nano", document["models"][0]["label"]]
    better, worse = names if difference < 0 else reversed(names)
    assert f"{better} is ahead of {worse} by {abs(difference):.1f} [" in report
    assert report.index("is ahead of") < report.index("Semantic textual")


ROWS = [(i % 6, f"word{i} cat", f"word{i % 3} dog") for i in range(20)]


@pytest.fixture
def stsb(tmp_path):
    """STSb's test file below the data folder `tmp_path`."""
    (tmp_path / "stsb").mkdir()
    return write_pairs(tmp_path / "stsb" / "sts-test.tsv", ROWS)


def test_named_sets_from_python(bag, monkeypatch, tmp_path, stsb):
    scores = evaluate(bag, task="graded-pairs", resamples=0)
    assert scores["name"] == "graded-pairs"
    assert scores["spearman"] == pytest.approx(
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
    assert {"sts17/ar-ar", "sts17/en-nl"} <= {entry["name"] for entry in document["absent"]}
    main = document["tables"][0]
    (ours,) = [row for row in main["rows"] if not row["published"]]
    assert ours["values"]["en-en"] == document["results"][0]["spearman"]
    assert ours["values"]["ar-ar"] is None
    assert ours["values"]["mono_avg"] is None
    assert "data was not found" in markdown(document)


def test_sums_of_the_data_folder_are_held(tiny_student, tmp_path, stsb):
    digest = hashlib.sha256(stsb.read_bytes()).hexdigest()
    (tmp_path / "SHA256SUMS").write_text(f"{digest}  stsb/sts-test.tsv\n", encoding="utf-8")
    document = evaluated(tiny_student, ["stsb"], data=tmp_path, resamples=0)
    assert document["files_with_listed_sums"] == 1
    assert document["results"][0]["data"][0]["sha256"] == digest
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
        assert "20" in source
        assert rows
        assert columns[0] == "system"
        filled = paper_tables(suites, {"none": {}})
        (table,) = [t for t in filled if t["title"] == title]
        assert set(table["rows"][-1]["values"]) <= set(columns)
        assert len(table["rows"]) == len(rows) + 1
    _, columns, rows = read_published("msd_sts2017")
    for row in rows:  # the paper's own means: rounded, and one row (XLM-R<-SBERT-paraphrases) is 0.3 off in print
        crossed = [float(row[c]) for c in columns[5:12]]
        assert float(row["cross_avg"]) == pytest.approx(np.mean(crossed), abs=0.16), row["system"]
        assert float(row["mono_avg"]) == pytest.approx(np.mean([float(row[c]) for c in columns[1:4]]), abs=0.35)
    for row in read_published("dcse_sts")[2]:
        assert float(row["avg"]) == pytest.approx(np.mean([float(v) for v in list(row.values())[1:8]]), abs=0.11)


def test_languages_are_a_list_or_separated_by_commas():
    def shown(options: EvaluateOptions) -> list[str]:
        """The languages."""
        return [*(options.languages or ())]

    call = with_option_keywords(EvaluateOptions, shown)
    assert call(languages="de, es") == call(languages=["de", "es"]) == ["de", "es"]
