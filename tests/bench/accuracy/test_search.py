"""Search as an evaluation: published layouts, ranks against brute force, words beside vectors."""

from __future__ import annotations

import gzip
import json
import math

import numpy as np
import pytest
from accuracy_models import WordBag, evaluated
from click.testing import CliRunner

import msdc
from msdc.bench.accuracy import evaluate
from msdc.bench.accuracy.search import ranking, read_collection, relevance_scores, score_retrieval, vector_scores
from msdc.bench.accuracy.task import Settings
from msdc.bench.accuracy.vectors import CachedEncoder
from msdc.bench.evaluate_cli import command
from msdc.errors import InputError
from msdc.scores import unit_rows

DOCUMENTS = [
    ("p0", "Harbours", "The harbour of Rotterdam is the largest of Europe. Ships carry coal and grain."),
    ("p1", "Bees", "Bees dance to tell each other where flowers are."),
    ("p2", "Bridges", "The bridge was closed for a year. A ferry took its place."),
    ("p3", "Bread", "Bread needs flour, water, salt and time."),
]
QUESTIONS = [("q0", "Which harbour is the largest?", "p0"), ("q1", "How do bees tell where flowers are?", "p1"),
             ("q2", "Köprünün yerini ne aldı?", "p2")]  # fmt: skip


@pytest.fixture
def beir(tmp_path):
    folder = tmp_path / "retrieval" / "tiny"
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": key, "title": title, "text": text} for key, title, text in DOCUMENTS]
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, corpus)).encode()))
    queries = [json.dumps({"_id": key, "text": text}) for key, text, _ in [*QUESTIONS, ("q9", "Unanswered?", "")]]
    (folder / "queries.jsonl").write_text("\n".join(queries) + "\n")
    rows = [f"{key}\t{answer}\t1" for key, _, answer in QUESTIONS] + ["q0\tp3\t0"]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    return folder


def test_beir_and_squad_are_read_alike(beir, tmp_path):
    # The judgements of the test split, though those of another one stand before them.
    (beir / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq9\tp2\t1\n")
    first = read_collection(beir).content
    assert list(first.queries) == ["q0", "q1", "q2"]
    assert first.grades["q0"] == {"p0": 1.0}
    squad = {"data": [
        {"title": title, "paragraphs": [{"context": text, "qas": [
            {"id": q, "question": asked} for q, asked, answer in QUESTIONS if answer == key
        ] + [{"id": "x", "question": "?", "is_impossible": True}]}]}
        for key, title, text in DOCUMENTS
    ]}  # fmt: skip
    (tmp_path / "squad.json").write_text(json.dumps(squad))
    second = read_collection(tmp_path / "squad.json").content
    assert list(second.documents.values()) == list(first.documents.values())
    assert second.queries == first.queries
    assert all(first.documents[a] == second.documents[b] for q in first.queries
               for a, b in zip(first.grades[q], second.grades[q], strict=True))  # fmt: skip


def test_a_hybrid_finds_by_words_and_across_languages(beir):
    result = evaluated(msdc.load_encoder("msdc-mini"), [f"retrieval={beir}"])
    (score,) = result["results"]
    assert score["mrr"] == score["both"]["mrr"] == 100
    assert score["pairs"] == 3
    assert score["documents"] == 4
    # No word of the Turkish question is in any paragraph.
    assert score["words"]["acc1"] == pytest.approx(200 / 3)
    assert score["passages"] >= 4
    done = CliRunner().invoke(command, ["msdc-mini", "--tasks", "retrieval", "--data", str(beir.parent.parent), "-q"])
    assert done.exit_code == 0
    assert "retrieval/tiny, both" in done.output
    assert "nDCG@10" in done.output


def test_a_model_without_a_tokenizer_is_scored(beir):
    assert evaluate(WordBag(), task="retrieval", path=beir)["mrr"] > 0


def test_a_document_has_the_score_of_its_best_passage():
    """Against every sentence by itself, of more questions than are compared at a time; an empty document is last."""
    words = [f"{first}{second}" for first in "bdfgklm" for second in ("ale", "iro", "opa", "une")]
    sentences = [[" ".join(words[4 * d + 2 * p :][:9]) + "." for p in range(d + 1)] for d in range(4)]
    documents = [("", " ".join(texts)) for texts in sentences] + [("", "")]
    queries = [f"{words[n % 28]} {words[n // 28]}" for n in range(300)]
    bag = WordBag(width=24)
    scores, count = vector_scores(CachedEncoder(bag), documents, queries)
    assert count == sum(map(len, sentences))
    asked = unit_rows(bag.encode(queries))
    expected = np.stack([(asked @ unit_rows(bag.encode(texts)).T).max(1) for texts in sentences], axis=1)
    np.testing.assert_allclose(scores[:, :4], expected, atol=1e-5)
    assert (scores[:, 4] == -1).all()


def test_of_many_questions_an_even_spread_is_asked(beir):
    """The first and the last of three, of which words find the first alone."""
    data = read_collection(beir).content
    scores = score_retrieval(CachedEncoder(WordBag()), data, Settings(queries=2)).scores
    assert (scores["pairs"], scores["words"]["acc1"]) == (2, 50)


class Turned:
    """A model whose vectors are another's, their dimensions reversed, or the first ones."""

    name = "turned"

    def __init__(self, model, step=-1, width=None):
        self.model, self.step, self.width = model, step, width

    def encode(self, texts):
        return self.model.encode(texts)[:, :: self.step][:, : self.width]


def test_one_model_asks_and_another_has_the_documents(beir):
    model = msdc.load_encoder("msdc-mini")
    asked = {"tasks": [f"retrieval={beir}"], "documents": Turned(model)}
    (alone,) = evaluated(model, asked["tasks"])["results"]
    (crossed,) = evaluated(model, **asked)["results"]
    (turned,) = evaluated(Turned(model), **asked)["results"]
    assert crossed["mrr"] < turned["mrr"] == alone["mrr"] == 100
    assert crossed["words"] == alone["words"]
    cut = evaluated(model, **asked | {"documents": model, "truncate_dims": [192]})["results"]
    assert [row["mrr"] for row in cut] == [100, 100]
    with pytest.raises(InputError, match="`documents`: turned has 100 dimensions, msdc-mini 384; a student of `head"):
        evaluated(model, **asked | {"documents": Turned(model, 1, 100)})
    with pytest.raises(InputError, match="`documents` is for the task retrieval, not for sts"):
        evaluated(model, ["graded-pairs"], documents=model)


def test_ranks_are_those_of_a_whole_sort():
    """Against sorting every row; a score that is the same for all documents puts the relevant one last."""
    generator = np.random.default_rng(1)
    score_QM = generator.integers(0, 12, (40, 30)).astype(float)
    grades = [{int(row): float(generator.integers(1, 4)) for row in generator.choice(30, 3, False)} for _ in range(40)]
    measures = ranking(score_QM, grades)
    for number, graded in enumerate(grades):
        order = sorted(range(30), key=lambda row: (-score_QM[number, row], row in graded, -graded.get(row, 0)))
        ranks = [order.index(row) + 1 for row in graded]
        assert measures["acc1"][number] == (min(ranks) == 1)
        assert measures["acc5"][number] == (min(ranks) <= 5)
        assert measures["mrr"][number] == (1 / min(ranks) if min(ranks) <= 10 else 0)
        gain = sum(graded.get(row, 0) / math.log2(rank + 2) for rank, row in enumerate(order[:10]))
        ideal = sum(grade / math.log2(rank + 2) for rank, grade in enumerate(sorted(graded.values(), reverse=True)))
        if len({score_QM[number, row] for row in graded}) == 3:
            assert measures["ndcg"][number] == pytest.approx(gain / ideal)
    assert ranking(np.zeros((1, 30)), [{0: 1.0}])["mrr"][0] == 0


def test_relevance_is_that_of_a_search():
    """The scores of an index of the same documents, in all orders of words and meaning."""
    documents = [
        ("", "東京都は日本の首都です"),
        ("", "大阪は大きい都市です"),
        ("Şehir", "İstanbul büyük bir şehir"),
        ("", "Release 1.3.0"),
    ]
    queries = ["日本の首都", "大阪は", "istanbul BUYUK", "1.3.0", "sehir", "nothing"]
    model = msdc.load_encoder("msdc-mini")
    index = msdc.open_index([documents[0][1]], model)
    index.remove(["1"])
    index.add({"id": str(number), "title": title, "text": text} for number, (title, text) in enumerate(documents))
    cosine_QM = np.zeros((len(queries), len(documents)))
    for number, query in enumerate(queries):
        for hit in index.search(query, mode="vectors").hits:
            cosine_QM[number, int(hit.id)] = hit.cosine
    for mode, score_QM in relevance_scores(documents, queries, cosine_QM, model.cosines()).items():
        for query, score_M in zip(queries, score_QM, strict=True):
            hits = {int(hit.id): hit.score for hit in index.search(query, mode=mode).hits}
            assert [hits.get(number, 0.0) for number in range(4)] == pytest.approx(score_M.tolist(), abs=1e-3), query


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("corpus.jsonl.gz", "{}\n", "corpus.jsonl.gz line 1: expected a JSON object with _id and text"),
        ("qrels/test.tsv", "h\nq0\tp0\tx\n", "test.tsv line 2: expected query-id"),
        ("qrels/test.tsv", "h\nq0\tp7\t1\n", "'q0' is answered by a document that is not in the corpus"),
        ("qrels/test.tsv", "h\nq7\tp0\t1\n", "no question has a document"),
        ("queries.jsonl", None, "no queries.jsonl"),
    ],
)
def test_a_broken_set_is_one_line(beir, file, content, message):
    if content is None:
        (beir / file).unlink()
    else:
        (beir / file).write_text(content)
    with pytest.raises(InputError, match=message):
        read_collection(beir)
    (beir / "other.json").write_text("[1]")
    with pytest.raises(InputError, match="neither a folder of a retrieval set nor SQuAD"):
        read_collection(beir / "other.json")


def test_a_model_with_narrow_cosines_is_ranked_as_one_with_wide_ones():
    """The same vectors with a constant part have other cosines; order and distances of the hits are the same."""
    documents = [("", f"Entry {number} about {word}s") for number, word in enumerate(["cat", "train", "moon", "cake"])]
    queries = ["train", "a moon 2", "nothing"]
    cosine_QM = np.random.default_rng(5).uniform(-0.2, 0.9, (len(queries), len(documents)))
    wide = relevance_scores(documents, queries, cosine_QM, (0.07, 0.092))["both"]
    narrow = relevance_scores(documents, queries, 0.8 + 0.2 * cosine_QM, (0.8 + 0.2 * 0.07, 0.2 * 0.092))["both"]
    assert narrow == pytest.approx(wide, abs=1e-3)
    assert np.ptp(wide) > 10
    # Without the model's own spread its cosines hardly differ.
    assert relevance_scores(documents, queries, 0.8 + 0.2 * cosine_QM)["both"] != pytest.approx(wide, abs=1)
