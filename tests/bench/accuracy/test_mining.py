"""Neighbours and mining against loops that share no code with them."""

import numpy as np
import pytest
from accuracy_models import Constant, LookupEncoder

from msdc.bench.accuracy import evaluate
from msdc.bench.accuracy.neighbours import both_ways, gold_ranks, mine, nearest
from msdc.bench.accuracy.retrieval import Split, best_threshold, read_bucc, score_mining, scores_at
from msdc.bench.accuracy.sets import find_data_folder, select_sets
from msdc.bench.accuracy.task import Settings
from msdc.bench.accuracy.vectors import CachedEncoder
from msdc.errors import InputError, MsdcError
from msdc.scores import unit_rows


def clustered(rows: int, width: int, seed: int, noise: float = 0.35) -> tuple[np.ndarray, np.ndarray]:
    """Two sides of noisy translations."""
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((rows, width))
    sides = [centres + noise * generator.standard_normal((rows, width)) for _ in range(2)]
    return unit_rows(sides[0].astype(np.float32)), unit_rows(sides[1].astype(np.float32))


def brute_force_miner(source_vectors, target_vectors, neighbours, kind):
    """Margin mining as the formula says it, one pair at a time."""
    similarity = source_vectors.astype(np.float64) @ target_vectors.astype(np.float64).T
    near_targets, near_sources = (
        np.argsort(-similarity, 1)[:, :neighbours],
        np.argsort(-similarity.T, 1)[:, :neighbours],
    )
    mean = (np.sort(similarity, 1)[:, -neighbours:].mean(1)[:, None] + np.sort(similarity, 0)[-neighbours:].mean(0)) / 2
    score = {"ratio": similarity / mean, "distance": similarity - mean, "absolute": similarity}[kind]
    candidates = [(i, max(near_targets[i], key=lambda j, i=i: score[i, j])) for i in range(len(source_vectors))]
    candidates += [(max(near_sources[j], key=lambda i, j=j: score[i, j]), j) for j in range(len(target_vectors))]
    used_rows, used_columns, out = set(), set(), []
    for row, column in sorted(candidates, key=lambda pair: -score[pair]):
        if row not in used_rows and column not in used_columns:
            used_rows.add(row)
            used_columns.add(column)
            out.append((row, column, score[row, column]))
    return out


@pytest.mark.parametrize("kind", ["ratio", "distance", "absolute"])
@pytest.mark.parametrize("neighbours", [1, 4])
def test_miner_equals_brute_force(kind, neighbours):
    source_vectors, target_vectors = clustered(60, 16, seed=neighbours, noise=0.7)
    target_vectors = target_vectors[np.random.default_rng(0).permutation(60)][:47]
    source, target, score = mine(source_vectors, target_vectors, k=neighbours, kind=kind)
    expected = brute_force_miner(source_vectors, target_vectors, neighbours, kind)
    assert list(zip(source.tolist(), target.tolist(), strict=True)) == [e[:2] for e in expected]
    assert np.allclose(score, [e[2] for e in expected], atol=1e-6)


def test_nearest_equals_brute_force():
    source_vectors, target_vectors = clustered(40, 12, seed=3)
    full = source_vectors.astype(np.float64) @ target_vectors.astype(np.float64).T
    assert np.array_equal(nearest(source_vectors, target_vectors), full.argmax(1))
    assert len(mine(source_vectors[:3], target_vectors[:3], k=10)[2]) == 3


@pytest.mark.parametrize("block", [64_000_000, 300, 1])
@pytest.mark.parametrize(("rows", "columns"), [(57, 40), (40, 57), (3, 50), (50, 2), (1, 1)])
def test_both_ways_equals_two_searches(monkeypatch, block, rows, columns):
    monkeypatch.setattr("msdc.bench.accuracy.neighbours.BLOCK_NUMBERS", block)
    source_vectors, target_vectors = clustered(60, 12, seed=9)
    source_vectors, target_vectors = source_vectors[:rows], target_vectors[:columns]
    neighbours = both_ways(source_vectors, target_vectors, 4)
    for full, values, index in (
        (source_vectors @ target_vectors.T, *neighbours[:2]),
        (target_vectors @ source_vectors.T, *neighbours[2:]),
    ):
        assert np.array_equal(index, np.argsort(-full, axis=1)[:, :4])
        assert np.allclose(values, -np.sort(-full, axis=1)[:, :4], atol=1e-6)


@pytest.mark.parametrize("rows", [np.zeros((0, 4), np.float32), np.eye(3, dtype=np.float32)])
def test_nothing_to_search(rows):
    with pytest.raises(InputError, match="a query, a candidate and one width"):
        both_ways(rows, np.eye(4, dtype=np.float32), 1)


def test_threshold_is_the_best_of_all_cuts():
    generator = np.random.default_rng(4)
    for _ in range(30):
        score = -np.sort(-generator.integers(0, 12, size=25) / 4.0)  # many ties
        right = generator.random(25) < 0.6
        gold = int(right.sum()) + 3
        threshold = best_threshold(score, right, gold)
        best = 0.0
        for cut in [*np.unique(score), score.max() + 1]:
            taken = score >= cut
            hits = (right & taken).sum()
            best = max(best, 2 * hits / (taken.sum() + gold))
        assert scores_at(score, right, gold, threshold)["f1"] == pytest.approx(100 * best, abs=1e-9)


def write_bucc(folder, rows=40, seed=0, width=16, noise=0.25):
    """BUCC files whose sentences have given vectors; half of the rows are translations."""
    vectors = {}
    generator = np.random.default_rng(seed)
    for split in ("training", "test"):
        source_vectors, target_vectors = clustered(rows, width, seed=seed + len(split), noise=noise)
        lines = {"de": [], "en": [], "gold": []}
        order = generator.permutation(rows)
        for row in range(rows):
            vectors[f"{split} quelle {row}"] = source_vectors[row]
            lines["de"].append(f"de-{row}\t{split} quelle {row}")
        for position, row in enumerate(order):
            vector = target_vectors[row] if row < rows // 2 else generator.standard_normal(width)
            vectors[f"{split} target {row}"] = vector
            lines["en"].append(f"en-{position}\t{split} target {row}")
            if row < rows // 2:
                lines["gold"].append(f"de-{row}\ten-{position}")
        for name, content in lines.items():
            (folder / f"de-en.{split}.{name}").write_text("\n".join(content) + "\n", encoding="utf-8")
    return LookupEncoder(vectors)


def test_bucc_threshold_from_training_scored_on_test(tmp_path):
    model = write_bucc(tmp_path)
    result = evaluate(model, task="mining", path=tmp_path)
    assert result["split"] == "test"
    assert result["gold"] == 20
    assert result["sources"] == 40
    store, ranked_pairs = CachedEncoder(model), []
    for split in read_bucc(tmp_path).content:
        sides = unit_rows(store.encode(split.source)), unit_rows(store.encode(split.target))
        ranked_pairs.append([((i, j) in split.gold, value) for i, j, value in brute_force_miner(*sides, 4, "ratio")])
    training, test = ranked_pairs
    best = max((2 * sum(r for r, _ in training[: n + 1]) / (n + 1 + 20), n) for n in range(len(training)))[1]
    threshold = (training[best][1] + training[best + 1][1]) / 2
    assert result["threshold"] == pytest.approx(threshold, abs=1e-6)
    taken = [right for right, value in test if value >= threshold]
    precision, recall = sum(taken) / len(taken), sum(taken) / 20
    assert result["precision"] == pytest.approx(100 * precision, abs=1e-6)
    assert result["recall"] == pytest.approx(100 * recall, abs=1e-6)
    assert result["f1"] == pytest.approx(200 * precision * recall / (precision + recall), abs=1e-6)
    (tmp_path / "de-en.test.gold").unlink()
    result = evaluate(model, task="mining", path=tmp_path)
    assert result["split"] == "training"
    assert "no gold" in result["notes"][0]


def test_constant_model_is_refused(tmp_path):
    write_bucc(tmp_path)
    with pytest.raises(MsdcError, match="same vector"):
        evaluate(Constant(), task="mining", path=tmp_path)
    with pytest.raises(InputError, match="`margin` 'best' is unknown"):
        evaluate(Constant(), task="mining", path=tmp_path, margin="best")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("de-en.training.de", "de-1\tein\textra\n", r"training.de line 1: expected two tab-separated cells"),
        ("de-en.training.de", "de-1\tein\nde-2\t \n", r"training.de line 2: expected two tab-separated cells"),
        ("de-en.training.de", "de-1\tein\nde-1\tzwei\n", r"line 2: the id 'de-1' is a duplicate"),
        ("de-en.training.gold", "de-0\ten-0\nde-0\ten-999\n", r"training.gold line 2: the id 'en-999' is in no"),
    ],
)
def test_bad_bucc_files(tmp_path, file, content, message):
    write_bucc(tmp_path)
    (tmp_path / file).write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_bucc(tmp_path)


def test_gold_ranks_count_ties_apart():
    candidates = unit_rows(np.array([[1, 0], [1, 0], [0, 1], [1, 0.5]], dtype=np.float32))
    queries = unit_rows(np.array([[1, 0], [0, 1], [1, 0.5]], dtype=np.float32))
    above, level = gold_ranks(queries, candidates, [[0], [0], [2]])
    assert above.tolist() == [0, 2, 3]
    assert level.tolist() == [1, 1, 0]
    source_vectors, target_vectors = clustered(200, 12, seed=11, noise=0.8)
    full = source_vectors.astype(np.float64) @ target_vectors.astype(np.float64).T
    above, level = gold_ranks(source_vectors, target_vectors, [[row] for row in range(200)])
    assert above.tolist() == (full > full.diagonal()[:, None]).sum(1).tolist()
    assert not level.any()
    # Of several gold ones the best; those that tie with it are not counted.
    above, level = gold_ranks(queries, candidates, [[0, 1], [0, 3], [1, 2]])
    assert above.tolist() == [0, 1, 1]
    assert level.tolist() == [0, 0, 1]


def test_a_model_that_is_always_right_is_so_with_equal_answers(tmp_path):
    """Ninety questions and six answers: an oracle's score is 100 in every retrieval task, whatever row is nearest."""
    unit_vectors, near = clustered(6, 8, seed=2, noise=0.1)
    questions, answers = [f"question {n}" for n in range(90)], [f"answer {n % 6}" for n in range(90)]
    answers[:6] = [f"ANSWER {n}." for n in range(6)]
    questions[80:] = questions[:10]  # asked twice, answered in other words
    answers[80:86] = [f"other words {n}" for n in range(6)]
    vectors = {text: unit_vectors[n % 6] for side in (questions[:80], answers[:80]) for n, text in enumerate(side)}
    vectors |= {f"other words {n}": near[n] for n in range(6)}
    lines = "".join(f"{q}\t{a}\n" for q, a in zip(questions, answers, strict=True))
    (tmp_path / "faq.en-de.tsv").write_text(lines, encoding="utf-8")
    encoder = LookupEncoder(vectors)
    assert evaluate(encoder, task="xsr", path=tmp_path / "faq.en-de.tsv")["p_at_1"] == 100
    result = evaluate(encoder, task="tatoeba", path=tmp_path / "faq.en-de.tsv")
    assert (result["forward"], result["backward"]) == (100, 100)


def test_retrieval_equals_brute_force_and_breaks_ties_fairly(tmp_path):
    query_vectors, answer_vectors = clustered(30, 8, seed=6, noise=0.8)
    noise = np.random.default_rng(1).standard_normal((50, 8))
    vectors = {f"query {i}": query_vectors[i] for i in range(30)} | {
        f"answer {i}": answer_vectors[i] for i in range(30)
    }
    vectors |= {f"other {i}": noise[i] for i in range(50)}
    (tmp_path / "q.en-de.tsv").write_text("".join(f"query {i}\tanswer {i}\n" for i in range(30)), encoding="utf-8")
    (tmp_path / "q.en-de.pool.txt").write_text("".join(f"other {i}\n" for i in range(50)), encoding="utf-8")
    result = evaluate(LookupEncoder(vectors), task="xsr", path=tmp_path / "q.en-de.tsv")
    pool = unit_rows(np.concatenate([answer_vectors, noise]).astype(np.float32)).astype(np.float64)
    scores = query_vectors.astype(np.float64) @ pool.T
    ranks = 1 + (scores > scores.diagonal()[:, None] + 1e-9).sum(1)
    assert result["candidates"] == 80
    assert result["queries"] == 30
    assert result["p_at_1"] == pytest.approx(100 * np.mean(ranks == 1), abs=1e-6)
    assert result["mrr"] == pytest.approx(100 * np.mean(1 / ranks), abs=1e-6)
    # Of fewer queries the first ones, in a pool without the answers of the others.
    few = evaluate(LookupEncoder(vectors), task="xsr", path=tmp_path / "q.en-de.tsv", queries=10)
    scores = query_vectors[:10].astype(np.float64) @ np.concatenate([pool[:10], pool[30:]]).T
    ranks = 1 + (scores > scores.diagonal()[:, None] + 1e-9).sum(1)
    assert (few["queries"], few["candidates"]) == (10, 60)
    assert few["mrr"] == pytest.approx(100 * np.mean(1 / ranks), abs=1e-6)
    same = evaluate(Constant(), task="xsr", path=tmp_path / "q.en-de.tsv")
    assert same["p_at_1"] == pytest.approx(100 / 80)
    assert same["tied"] == 30
    assert same["mrr"] == pytest.approx(100 * np.mean(1 / np.arange(1, 81)))
    # The pool is cut, but never below the answers.
    for limit, size in ((40, 40), (10, 30)):
        cut = evaluate(LookupEncoder(vectors), task="xsr", path=tmp_path / "q.en-de.tsv", candidates=limit)
        assert cut["candidates"] == size


def test_flores_mining_set_is_one_third_parallel(data_folder):
    (job,) = select_sets(["flores-mining/de-en"], find_data_folder(data_folder))[0]
    _, test = job.load().content
    rows = len(test.gold)
    assert len(test.source) == len(test.target) == 2 * rows
    # the rows that are no pair really have no translation on the other side
    assert {s for s, _ in test.gold} == set(range(rows, 2 * rows))
    assert {t for _, t in test.gold} == set(range(rows))


def test_equal_sentences_of_a_split_are_one():
    split = Split(["a", "b", "a"], ["x", "y", "x"], {(0, 0), (1, 1)})
    assert split.distinct() == Split(["a", "b"], ["x", "y"], {(0, 0), (1, 1)})
    assert Split(["a"], ["x", "x"], None).distinct() == Split(["a"], ["x"], None)
    # Mined as if each were there once: a copy is neither a candidate nor a missing pair.
    first, second = clustered(12, 8, seed=5, noise=0.5)
    vectors = {f"{side} {row}": v for side, rows in (("s", first), ("t", second)) for row, v in enumerate(rows)}
    once = Split([f"s {row}" for row in range(12)], [f"t {row}" for row in range(12)], {(row, row) for row in range(8)})
    twice = Split(once.source + once.source[:5], once.target + once.target[:5], once.gold | {(12, 0), (1, 13)})
    scores = [score_mining(CachedEncoder(LookupEncoder(vectors)), (s, s), Settings()).scores for s in (once, twice)]
    assert scores[0] == scores[1]
    assert (scores[0]["gold"], scores[0]["sources"]) == (8, 12)


@pytest.mark.parametrize("pair", ["de-en", "ru-en", "zh-en"])
def test_the_sides_of_a_pair_are_in_the_order_of_its_name(pair, tmp_path):
    """Also where the first language is behind the second in the alphabet."""
    first, second = pair.split("-")
    (tmp_path / f"{pair}.training.{first}").write_text(f"a-1\tone in {first}\na-2\ttwo in {first}\n", encoding="utf-8")
    (tmp_path / f"{pair}.training.{second}").write_text(f"b-1\ttwo in {second}\n", encoding="utf-8")
    (tmp_path / f"{pair}.training.gold").write_text("a-2\tb-1\n", encoding="utf-8")
    training, test = read_bucc(tmp_path).content
    assert (training.source, training.target) == ([f"one in {first}", f"two in {first}"], [f"two in {second}"])
    assert training.gold == {(1, 0)}
    assert test is None
