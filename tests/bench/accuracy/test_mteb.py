"""Tasks of mteb by name, on data in local files: the library's own scores, its files, and mistakes in one line."""

import json
import re

import pytest
import tiny_models
from accuracy_models import WordBag, evaluated, markdown

import msdc
from msdc import cli
from msdc.bench.accuracy import evaluate
from msdc.errors import InputError, MsdcError
from msdc.scores import cosine_rows, spearman
from msdc.text.quickstart import GRADED_PAIRS
from msdc.text.scored_pairs import read_pairs

mteb = pytest.importorskip("mteb")

GRADED = read_pairs(GRADED_PAIRS)
PARTS = {code: [row for row, part in enumerate(GRADED.subsets) if part == code] for code in ("en-en", "en-de")}
DOCUMENTS = {"d1": "The station is next to the old church.", "d2": "Bread and cheese are sold here.",
             "d3": "The boat leaves at nine."}  # fmt: skip
QUERIES = {"q1": "Where is the station?", "q2": "When does the boat leave?"}


def metadata(name, folder, kind, score, languages, **extra_fields):
    return mteb.TaskMetadata(
        name=name, description="Local text.", reference=None, type=kind, category="t2t", modalities=["text"],
        eval_splits=["test"], eval_langs=languages, main_score=score, date=("2026-01-01", "2026-01-02"),
        domains=["Written"], task_subtypes=[], license="apache-2.0", annotations_creators="human-annotated",
        dialect=[], sample_creation="created", bibtex_citation="",
        dataset={"path": str(folder), "revision": "1"}, **extra_fields,
    )  # fmt: skip


@pytest.fixture
def local_tasks(tmp_path, monkeypatch):
    """`LocalSTS` (two subsets) and `LocalRetrieval`, known to mteb, whose data `datasets` reads from files."""
    from mteb.abstasks import AbsTaskRetrieval
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.get_tasks import _TASKS_REGISTRY

    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    sts, search = tmp_path / "sts", tmp_path / "search"
    sts.mkdir()
    for part, rows in PARTS.items():
        lines = [
            json.dumps({"sentence1": GRADED.first[i], "sentence2": GRADED.second[i], "score": float(GRADED.gold_N[i])})
            for i in rows
        ]
        (sts / f"{part}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    configs = "".join(f"- config_name: {p}\n  data_files: [{{split: test, path: {p}.jsonl}}]\n" for p in PARTS)
    (sts / "README.md").write_text(f"---\nconfigs:\n{configs}---\n", encoding="utf-8")
    search.mkdir()
    for name, rows in (
        ("corpus", [{"_id": key, "title": "", "text": text} for key, text in DOCUMENTS.items()]),
        ("queries", [{"_id": key, "text": text} for key, text in QUERIES.items()]),
        ("qrels", [{"query-id": q, "corpus-id": d, "score": 1} for q, d in (("q1", "d1"), ("q2", "d3"))]),
    ):
        (search / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    configs = "".join(
        f"- config_name: {name}\n  data_files: [{{split: {split}, path: {file}.jsonl}}]\n"
        for name, split, file in (("corpus", "corpus", "corpus"), ("queries", "queries", "queries"),
                                  ("default", "test", "qrels"))
    )  # fmt: skip
    (search / "README.md").write_text(f"---\nconfigs:\n{configs}---\n", encoding="utf-8")

    class LocalSTS(AbsTaskSTS):
        metadata = metadata("LocalSTS", sts, "STS", "cosine_spearman",
                            {"en-en": ["eng-Latn"], "en-de": ["eng-Latn", "deu-Latn"]})  # fmt: skip

    class LocalRetrieval(AbsTaskRetrieval):
        metadata = metadata("LocalRetrieval", search, "Retrieval", "ndcg_at_10", ["eng-Latn"])

    for task in (LocalSTS, LocalRetrieval):
        monkeypatch.setitem(_TASKS_REGISTRY, task.metadata.name, task)


@pytest.fixture(params=["student", "onnx"])
def model(request):
    folder = tiny_models.student_folder()
    return msdc.load_encoder(folder) if request.param == "student" else msdc.load_bundle(tiny_models.bundle(), "onnx")


def test_scores_are_those_of_the_vectors_and_files_are_mtebs(model, local_tasks, tmp_path):
    """Subsets are results of the document; mteb reads its own files again and runs nothing twice."""
    out = tmp_path / "mteb"
    tasks = ["mteb:LocalSTS", "graded-pairs"]
    document = evaluated(model, tasks, mteb_output=out, resamples=0)
    rows = {row["name"]: row for row in document["results"]}
    assert list(rows) == ["mteb:LocalSTS/en-en", "mteb:LocalSTS/en-de", "graded-pairs"]
    for part, picked in PARTS.items():
        first, second = (model.encode([side[i] for i in picked]) for side in (GRADED.first, GRADED.second))
        expected = spearman(cosine_rows(first, second), GRADED.gold_N[picked])
        assert rows[f"mteb:LocalSTS/{part}"]["main_score"] == pytest.approx(expected, abs=0.01)
    assert rows["mteb:LocalSTS/en-de"]["metric"] == "cosine_spearman"
    shown = markdown(document)
    assert "Tasks of mteb: main score x 100" in shown
    assert "mteb:LocalSTS, mean of 2" in shown

    (file,) = out.glob("results/*/*/LocalSTS.json")
    stored = mteb.TaskResult.from_disk(file)
    assert 100 * stored.get_score() == pytest.approx(
        sum(rows[f"mteb:LocalSTS/{p}"]["main_score"] for p in PARTS) / 2, abs=1e-3
    )
    meta = json.loads(file.with_name("model_meta.json").read_text("utf-8"))
    assert meta["revision"] == file.parent.name == model.fingerprint()[:40]
    assert meta["embed_dim"] == model.width
    written = file.stat().st_mtime_ns
    again = evaluated(model, tasks[:1], mteb_output=out)
    assert file.stat().st_mtime_ns == written, "run again"
    before, after = (
        [row["main_score"] for row in evaluation["results"] if row["task"] == "mteb"]
        for evaluation in (document, again)
    )
    assert after == pytest.approx(before, abs=1e-3)


def test_one_subset_languages_and_several_models(local_tasks):
    folder = tiny_models.student_folder()
    assert evaluate(folder, "mteb:LocalSTS/en-de")["name"] == "mteb:LocalSTS/en-de"
    with pytest.raises(InputError, match=r"mteb:LocalSTS is 2 data sets; name one of: mteb:LocalSTS/en-en"):
        evaluate(folder, "mteb:LocalSTS")
    document = evaluated(folder, ["mteb:LocalSTS/en-en"], against=WordBag(), truncate_dims=[8])
    scores = {row["model"]: row["main_score"] for row in document["results"]}
    assert list(scores) == ["tiny-student", "tiny-student (first 8)", "bag"]
    assert len(set(scores.values())) == 3
    first, second = (msdc.load_encoder(folder).encode([side[i] for i in PARTS["en-en"]])[:, :8]
                     for side in (GRADED.first, GRADED.second))  # fmt: skip
    expected = spearman(cosine_rows(first, second), GRADED.gold_N[PARTS["en-en"]])
    assert scores["tiny-student (first 8)"] == pytest.approx(expected, abs=0.01)
    document = evaluated(folder, ["mteb:LocalSTS"], languages=["tr"])
    assert [row["name"] for row in document["results"]] == ["mteb:LocalSTS/en-en"]


def test_queries_and_documents_get_their_prompts(local_tasks):
    """The prompts reach the model by role; the scores are those of these vectors."""
    model = msdc.load_encoder(tiny_models.student_folder())
    model.prompts = {"query": "When? ", "document": "Cheese: "}
    (row,) = evaluated(model, ["mteb:LocalRetrieval"])["results"]
    scores_QM = model.encode_query(list(QUERIES.values())) @ model.encode_document(list(DOCUMENTS.values())).T
    ranks = [int((scores > scores[gold]).sum()) + 1 for scores, gold in zip(scores_QM, (0, 2), strict=True)]
    mrr = 100 * sum(1 / rank for rank in ranks) / 2
    assert 100 * row["scores"]["mrr_at_10"] == pytest.approx(mrr, abs=0.01)


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ("mteb:STS71", r"mteb has no task 'STS71'; similar: STS1\d"),
        ("mteb:bucc", "mteb has no task 'bucc'; similar: BUCC"),
        ("mteb:qqqqqq", "mteb has no task 'qqqqqq'; `mteb available-tasks` lists them"),
        ("mteb:STS17/en-ed", r"mteb:STS17 has no subset 'en-ed'; similar: en-"),
        ("mteb:CIFAR10", "mteb:CIFAR10: a task of image"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(capsys, tasks, message):
    with pytest.raises(SystemExit) as stop:
        cli.main(["evaluate", str(tiny_models.student_folder()), "--tasks", tasks])
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert re.search(f"error: {message}", error)
    assert error.count("error:") == 1


def test_a_language_without_text_and_data_that_cannot_be_loaded(local_tasks, tmp_path):
    folder = tiny_models.student_folder()
    with pytest.raises(InputError, match="mteb:CMedQAv2-reranking has nothing in tr"):
        evaluated(folder, ["mteb:CMedQAv2-reranking"], languages=["tr"])
    (tmp_path / "sts" / "en-de.jsonl").unlink()
    with pytest.raises(MsdcError, match="mteb:LocalSTS: mteb failed: "):
        evaluated(folder, ["mteb:LocalSTS"])


def test_without_mteb_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("msdc.extras.installed", lambda name: name != "mteb")
    with pytest.raises(InputError, match=r"mteb:STS17 needs mteb: pip install '\.\[mteb\]'"):
        evaluated(tiny_models.student_folder(), ["mteb:STS17"])


def test_the_shipped_model_describes_itself_to_mteb():
    from msdc.integrations.mteb import as_mteb

    model = as_mteb("msdc-mini")
    meta = model.mteb_model_meta
    assert meta.name == "msdc/msdc-mini"
    assert meta.embed_dim == 384
    assert meta.max_tokens == 128
    assert {"eng-Latn", "ara-Arab", "tur-Latn"} <= set(meta.languages)
    assert len(meta.languages) == 14
    assert "FloresBitextMining" in meta.training_datasets
    assert meta.license == "apache-2.0"
    assert type(meta).model_validate(meta.model_dump()).revision == model.model.fingerprint()[:40]
    again = meta.load_model()
    assert again.mteb_model_meta.name == meta.name
    assert (again.model.encode(["a text"]) == model.model.encode(["a text"])).all()
