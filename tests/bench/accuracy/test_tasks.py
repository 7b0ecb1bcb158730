"""Bias, geometry, classification, transfer and drift against formulas written down again here."""

import math

import numpy as np
import pytest
from accuracy_models import QUICKSTART, LookupEncoder, WordBag, write_pairs
from scipy.stats import spearmanr
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression

from msdc.bench.accuracy import evaluate
from msdc.bench.accuracy.classification import (
    BY_CLASS,
    BY_PART,
    STRENGTHS,
    Labelled,
    LabelledSet,
    read_mldoc,
    read_senteval,
    score_classification,
    score_transfer,
)
from msdc.bench.accuracy.parallel import Parallel
from msdc.bench.accuracy.similarity import (
    alignment,
    language_separability,
    mean_cosine,
    partition_isotropy,
    principal_plane,
    resampled_bias,
    score_bias,
    uniformity,
)
from msdc.bench.accuracy.task import Settings
from msdc.bench.accuracy.vectors import CachedEncoder
from msdc.errors import InputError
from msdc.scores import cosine_rows, unit_rows
from msdc.text.scored_pairs import ScoredPairs


def biased_model(tmp_path, shift: float):
    """Two sets of pairs in different languages; `shift` moves all vectors of language b by a common vector."""
    generator = np.random.default_rng(0)
    axis = np.zeros(12)
    axis[0] = shift
    vectors, folder = {}, tmp_path / "sets"
    folder.mkdir()
    for name, sides in (("a-a", "aa"), ("b-b", "bb"), ("a-b", "ab")):
        rows = []
        for number in range(60):
            gold = (number % 25) / 5  # never 5: two equal vectors would tie at cosine 1 but for rounding
            base = generator.standard_normal(12)
            other = gold / 5 * base + (1 - gold / 5) * generator.standard_normal(12)
            first, second = f"{name} left {number}", f"{name} right {number}"
            vectors[first] = base + (axis if sides[0] == "b" else 0)
            vectors[second] = other + (axis if sides[1] == "b" else 0)
            rows.append((gold, first, second))
        write_pairs(folder / f"{name}.tsv", rows)
    return LookupEncoder(vectors), folder


def test_language_bias_is_joint_minus_mean(tmp_path):
    model, folder = biased_model(tmp_path, shift=6.0)
    result = evaluate(model, task="bias", path=folder, resamples=300)
    rows, sets = [], {}
    for file in sorted(folder.iterdir()):
        lines = [line.split("\t") for line in file.read_text("utf-8").splitlines()]
        vectors = [(float(score), model.vectors[first], model.vectors[second]) for score, first, second in lines]
        scored = [(score, a @ b / math.sqrt((a @ a) * (b @ b))) for score, a, b in vectors]
        sets[file.stem] = 100 * spearmanr(*zip(*scored, strict=True)).statistic
        rows += scored
    joint, mean = 100 * spearmanr(*zip(*rows, strict=True)).statistic, np.mean(list(sets.values()))
    assert result["sets"] == pytest.approx(sets, abs=1e-4)
    assert result["bias"] == pytest.approx(joint - mean, abs=1e-4)
    assert result["bias"] < -10
    assert result["p"] < 0.02
    assert result["interval"][1] < 0
    (tmp_path / "none").mkdir()
    model, folder = biased_model(tmp_path / "none", shift=0.0)
    result = evaluate(model, task="bias", path=folder, resamples=300)
    assert abs(result["bias"]) < 3
    assert result["p"] > 0.01


def test_bias_divides_by_language_and_needs_two_sets(tmp_path, bag, graded_rows):
    result = evaluate(bag, task="bias", path=QUICKSTART / "graded_pairs.tsv", resamples=20)
    assert set(result["sets"]) >= {"en-en", "en-de", "en-ar"}
    # A set whose pairs all have one score has no correlation: it is left out.
    (tmp_path / "sets").mkdir()
    for name, rows in (("a", graded_rows[:20]), ("b", graded_rows[20:]), ("flat", [(2, "one", "two"), (2, "x", "y")])):
        write_pairs(tmp_path / "sets" / f"{name}.tsv", rows)
    result = evaluate(bag, task="bias", path=tmp_path / "sets", resamples=20)
    assert (set(result["sets"]), result["pairs"]) == ({"a", "b"}, 40)
    with pytest.raises(InputError, match="at least two sets"):
        evaluate(bag, task="bias", path=write_pairs(tmp_path / "one.tsv", graded_rows))


def test_picture_is_sklearns_pca_up_to_sign():
    generator = np.random.default_rng(1)
    points = generator.standard_normal((80, 10)) * np.linspace(3, 0.1, 10)
    plane, explained = principal_plane(points)
    reference = PCA(2).fit(points)
    assert np.allclose(np.abs(plane), np.abs(reference.transform(points)), atol=1e-8)
    assert np.allclose(explained, reference.explained_variance_ratio_, atol=1e-10)


def test_the_distance_of_two_languages_is_in_standard_deviations():
    """Of vectors of two dimensions, which the plane only turns."""
    generator = np.random.default_rng(4)
    sides = generator.standard_normal((30, 2)) * (3, 1), generator.standard_normal((30, 2)) + np.array([4, 2])
    texts = [[f"{code} {row}" for row in range(30)] for code in ("en", "de")]
    vectors = {text: v for side, rows in zip(texts, sides, strict=True) for text, v in zip(side, rows, strict=True)}
    gold = [row % 5 for row in range(30)]
    pairs = ScoredPairs("p", *texts, np.array(gold, float), ["a", "b"] * 15, list(range(1, 31)), [])
    parallel = Parallel("both", dict(zip(("en", "de"), texts, strict=True)), list(range(1, 31)), [])
    scores = score_bias(CachedEncoder(LookupEncoder(vectors)), (pairs, parallel), Settings(resamples=0)).scores
    picture = scores["picture"]
    spread = math.sqrt(sum(side.var(0).sum() for side in sides) / 2)
    assert picture["gap"] == pytest.approx(np.linalg.norm(sides[0].mean(0) - sides[1].mean(0)) / spread, rel=1e-3)
    assert {code: len(points) for code, points in picture["points"].items()} == {"en": 30, "de": 30}


@pytest.mark.parametrize(("shift", "accuracy"), [(9.0, 100.0), (0.0, 50.0)])
def test_languages_are_told_apart_by_what_translations_do_not_share(shift, accuracy):
    """Where both sides of a row have one vector it is exactly chance: no translation is in the rows that are fitted."""
    generator = np.random.default_rng(5)
    sides = {code: [f"{code} {row}" for row in range(60)] for code in ("en", "de")}
    rows = generator.standard_normal((60, 8))
    vectors = {
        text: rows[n] + shift * (1 if code == "de" else -1)
        for code, side in sides.items()
        for n, text in enumerate(side)
    }
    parallel = Parallel("both", sides, list(range(1, 61)), [])
    scores = language_separability(CachedEncoder(LookupEncoder(vectors)), parallel, 0)
    assert (scores["accuracy"], scores["chance"], scores["sentences"]) == (accuracy, 50.0, 120)


def test_alignment_and_uniformity_are_wang_and_isolas():
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(2)
    first_vectors = unit_rows(generator.standard_normal((50, 12)))
    second_vectors = unit_rows(first_vectors + 0.2 * generator.standard_normal((50, 12)))
    tx, ty = torch.tensor(first_vectors, dtype=torch.float64), torch.tensor(second_vectors, dtype=torch.float64)
    assert alignment(first_vectors, second_vectors) == pytest.approx(
        float((tx - ty).norm(p=2, dim=1).pow(2).mean()), abs=1e-6
    )
    expected = float(torch.pdist(tx, p=2).pow(2).mul(-2).exp().mean().log())
    assert uniformity(first_vectors) == pytest.approx(expected, abs=1e-6)
    assert mean_cosine(first_vectors) == pytest.approx(
        (first_vectors @ first_vectors.T)[~np.eye(50, dtype=bool)].mean(), abs=1e-6
    )


def test_isotropy_knows_a_ball_from_a_cone():
    generator = np.random.default_rng(3)
    ball = unit_rows(generator.standard_normal((3000, 8)))
    cone = unit_rows(generator.standard_normal((3000, 8)) * 0.1 + np.eye(8)[0])
    assert partition_isotropy(ball) > 0.95 > 0.5 > partition_isotropy(cone)
    axes = np.linalg.eigh(cone.T.astype(np.float64) @ cone.astype(np.float64))[1]
    sums = [np.exp(sign * (cone @ axes[:, i])).sum() for i in range(8) for sign in (1, -1)]
    assert partition_isotropy(cone) == pytest.approx(min(sums) / max(sums), abs=1e-6)


def test_geometry_task_and_its_positives(tmp_path, bag, graded_rows):
    file = write_pairs(tmp_path / "pairs.tsv", graded_rows)
    result = evaluate(bag, task="geometry", path=file)
    positives = [(source, target) for score, source, target in graded_rows if score > 4]
    first, second = (unit_rows(bag.encode([pair[side] for pair in positives])) for side in (0, 1))
    assert result["positives"] == len(positives) > 0
    assert result["alignment"] == pytest.approx(np.mean(((first - second) ** 2).sum(1)), abs=1e-6)
    # A sentence counts once, however many pairs it is in.
    sentences = list(dict.fromkeys(text for side in (1, 2) for text in (row[side] for row in graded_rows)))
    assert result["sentences"] == len(sentences) < 2 * len(graded_rows)
    units = unit_rows(bag.encode(sentences))
    assert result["uniformity"] == pytest.approx(uniformity(units), abs=1e-6)
    assert result["mean_cosine"] == pytest.approx(mean_cosine(units), abs=1e-6)
    low = write_pairs(
        tmp_path / "low.tsv", [(min(score, 4.0), source, target) for score, source, target in graded_rows]
    )
    with pytest.raises(InputError, match="above 4"):
        evaluate(bag, task="geometry", path=low)


def topic_data(labels_by_word: dict[str, str], languages=("en", "xx"), rows=60):
    """Sentences whose class can be read off one word; the 'languages' differ in a suffix."""
    words = list(labels_by_word)

    def texts(language, count, seed):
        generator = np.random.default_rng(seed)
        picks = generator.integers(0, len(words), size=count)
        fillers = generator.integers(0, 50, size=count)
        end = "" if language == "en" else "nun"
        sentences = [f"{words[p]} filler{f} {end}" for p, f in zip(picks, fillers, strict=True)]
        return Labelled(sentences, [labels_by_word[words[p]] for p in picks], [])

    tests = {language: texts(language, rows, 100 + i) for i, language in enumerate(languages)}
    return LabelledSet("topics", texts("en", 2 * rows, 7), tests)


def test_classification_is_sklearn_on_frozen_vectors():
    data = topic_data({"ball": "sport", "goal": "sport", "vote": "politics", "law": "politics", "virus": "science"})
    bag = WordBag(width=32)
    result = score_classification(CachedEncoder(bag), data, Settings(resamples=50)).scores
    reference = LogisticRegression(C=result["strength"], max_iter=2000)
    reference.fit(bag.encode(data.training.texts), data.training.labels)
    for language, test in data.tests.items():
        expected = 100 * reference.score(bag.encode(test.texts), test.labels)
        assert result["languages"][language]["accuracy"] == pytest.approx(expected, abs=1e-6)
    # the headline is zero-shot: the training language does not count
    assert result["accuracy"] == result["languages"]["xx"]["accuracy"]
    assert result["accuracy"] > result["majority_class"]


def test_the_regularisation_is_chosen_on_the_development_rows():
    """Of labels that the vectors hardly tell: the training rows alone would have the weakest."""
    generator = np.random.default_rng(6)
    parts, vectors = [], {}
    for name, rows in (("training", 40), ("development", 60), ("test", 30)):
        texts = [f"{name} {row}" for row in range(rows)]
        labels = ["ab"[row % 2] for row in range(rows)]
        vectors |= {
            text: generator.standard_normal(24) + 0.4 * (label == "b")
            for text, label in zip(texts, labels, strict=True)
        }
        parts.append(Labelled(texts, labels, []))
    training, development, test = parts
    store = CachedEncoder(LookupEncoder(vectors))
    data = LabelledSet("noise", training, {"xx": test}, development)
    marks = {}
    for strength in STRENGTHS:
        fitted = LogisticRegression(C=strength, max_iter=2000).fit(store.encode(training.texts), training.labels)
        marks[strength] = [fitted.score(store.encode(part.texts), part.labels) for part in (development, training)]
    best, memorised = (max(marks, key=lambda strength, part=part: marks[strength][part]) for part in (0, 1))
    assert best != memorised
    assert score_classification(store, data, Settings(resamples=0)).scores["strength"] == best


def test_classification_with_one_class_is_refused(bag):
    with pytest.raises(InputError, match="one class"):
        score_classification(CachedEncoder(bag), topic_data({"ball": "sport"}), Settings())


def test_mldoc_is_the_mean_of_five_runs(tmp_path, bag):
    """Five classifiers from five seeds; on classes that overlap they differ, and the table's cell is their mean."""
    generator = np.random.default_rng(8)
    words = ["bank", "goal", "vote", "rain"]
    for name, rows in (("english.train.1000", 60), ("english.test", 30), ("german.test", 30)):
        lines = []
        for _ in range(rows):
            first, second = generator.choice(4, size=2)
            lines.append(f"class{first}\tthe {words[first]} and the {words[second]} of {generator.integers(9)}")
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    result = evaluate(bag, task="classification", path=tmp_path)
    german = result["languages"]["de"]
    assert len(german["runs"]) == result["runs"]["count"] == 5
    assert german["mean_of_runs"] == pytest.approx(np.mean(german["runs"])) == result["runs"]["accuracy"]
    assert result["runs"]["deviation"] == pytest.approx(np.std(german["runs"], ddof=1))
    assert len(set(german["runs"])) > 1
    assert german["mean_of_runs"] > 40 > 100 / 4
    assert evaluate(bag, task="classification", path=tmp_path)["languages"]["de"]["runs"] == german["runs"]


def test_mldoc_reader(tmp_path):
    for name in ("english.train.1000", "english.dev", "english.test", "german.test"):
        (tmp_path / name).write_text("CCAT\tsome company text\nECAT\tabout prices\n" * 8, encoding="utf-8")
    data = read_mldoc(tmp_path).content
    assert list(data.tests) == ["en", "de"]
    assert len(data.training.texts) == 16
    assert data.development is not None
    assert data.training.labels[:2] == ["CCAT", "ECAT"]
    (tmp_path / "german.test").write_text("CCAT\tfine\nno tab here\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"german\.test line 2: expected a label"):
        read_mldoc(tmp_path)
    with pytest.raises(InputError, match="as MLDoc writes them"):
        read_mldoc(tmp_path, source="fr")


def write_senteval(folder, name):
    folder.mkdir(parents=True, exist_ok=True)
    both = [(f"a fine and lovely film number {i}", f"a dull and awful film number {i}") for i in range(15)]
    if name in BY_CLASS:
        for file, lines in zip(BY_CLASS[name], zip(*both, strict=True), strict=True):
            (folder / file).write_bytes(("\n".join(lines) + "\ncaf\xe9 scene\n").encode("latin-1"))
        return
    rows = {
        "SST2": [line for good, bad in both for line in (f"{good}\t1", f"{bad}\t0")],
        "TREC": [line for i in range(12) for line in (f"HUM:ind Who wrote book {i} ?", f"NUM:date When did {i} end ?")],
        "MRPC": ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        + [f"1\t{i}\t{i}\t{good}\tit is {good}" for i, (good, _) in enumerate(both)]
        + [f"0\t{i}\t{i}\t{good}\tthe weather was wet {i}" for i, (good, _) in enumerate(both)],
    }[name]
    for file in BY_PART[name][0].values():
        (folder / file).write_text("\n".join(rows) + "\n", encoding="utf-8")


@pytest.mark.parametrize("name", ["MR", "CR", "SUBJ", "MPQA", "SST2", "TREC", "MRPC"])
def test_transfer_tasks_read_and_learn(tmp_path, name):
    folder = tmp_path / name
    write_senteval(folder, name)
    result = evaluate(WordBag(width=32), "transfer", folder, folds=5, resamples=50)
    assert result["name"] == name
    assert result["accuracy"] > 80
    assert result["pairs"] > 20
    assert ("f1" in result) == (name == "MRPC")
    assert result["protocol"] == ("5-fold cross-validation" if name in ("MR", "CR", "SUBJ", "MPQA") else "test rows")


def test_transfer_on_noise_is_chance(tmp_path):
    write_senteval(tmp_path / "MR", "MR")
    data = read_senteval(tmp_path / "MR").content
    generator = np.random.default_rng(0)
    noise = LookupEncoder({text: generator.standard_normal(16) for text in data.training.texts})
    # were test rows seen in training, noise of this width would be learnt by heart
    assert 20 < score_transfer(CachedEncoder(noise), data, Settings(folds=5, resamples=0)).scores["accuracy"] < 80


def test_bad_senteval_lines(tmp_path):
    write_senteval(tmp_path / "SST", "SST2")
    (tmp_path / "SST" / "sentiment-dev").write_text("fine\t1\nno label\n", encoding="utf-8")
    with pytest.raises(InputError, match="sentiment-dev line 2"):
        read_senteval(tmp_path / "SST")
    with pytest.raises(InputError, match="no files of a SentEval task"):
        read_senteval(tmp_path)


def test_drift_by_language_and_length(tmp_path):
    file = tmp_path / "texts.tsv"
    rows = [(f"short {i}", f"ein sehr viel laengerer deutscher Satz mit der Nummer {i}") for i in range(40)]
    file.write_text("en\tde\n" + "".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    bag = WordBag(width=16)
    texts = [text for row in rows for text in row]
    moved = {text: bag.encode([text])[0] for text in texts}
    generator = np.random.default_rng(0)
    for _, german in rows:
        moved[german] = moved[german] + 0.05 * generator.standard_normal(16)
    scores = evaluate(LookupEncoder(moved), "drift", file, reference=bag, resamples=50)
    german = [german for _, german in rows]
    exact = cosine_rows(bag.encode(german), np.array([moved[text] for text in german], dtype=np.float32))
    assert scores["languages"]["en"]["mean"] == pytest.approx(1.0, abs=1e-6)
    assert scores["languages"]["de"]["mean"] == pytest.approx(np.mean(exact), abs=1e-6)
    assert scores["cosine"] == pytest.approx((1 + np.mean(exact)) / 2, abs=1e-6)
    low, high = scores["interval"]
    assert 0.9 < low < scores["cosine"] < high < 1
    assert scores["worst"]["language"] == "de"
    assert sum(scores["histogram"]["counts"]) == 80
    assert set(scores["lengths"]) == {"1-20", "21-60"}
    assert scores["lengths"]["1-20"]["texts"] == 40


def test_drift_and_mse_want_a_reference(tmp_path, bag):
    (tmp_path / "t.en-de.tsv").write_text("one\teins\ntwo\tzwei\n", encoding="utf-8")
    for task in ("drift", "mse"):
        with pytest.raises(InputError, match="`reference`"):
            evaluate(bag, task=task, path=tmp_path / "t.en-de.tsv")
        with pytest.raises(InputError, match="width"):
            evaluate(bag, task=task, path=tmp_path / "t.en-de.tsv", reference=WordBag(width=5))


def test_resampled_bias_is_scipys_on_each_resample():
    generator = np.random.default_rng(3)
    cosines, gold = generator.standard_normal(50), generator.integers(0, 6, size=50).astype(float)
    members = [np.arange(20), np.arange(20, 50)]
    resampled = resampled_bias(cosines, gold, members, Settings(resamples=5, seed=1))
    again = np.random.default_rng(1)
    rows = [member[again.integers(0, len(member), size=(5, len(member)))] for member in members]
    for resample in range(5):
        score = lambda pick: 100 * spearmanr(cosines[pick], gold[pick]).statistic  # noqa: E731
        joint = score(np.concatenate([member_rows[resample] for member_rows in rows]))
        assert resampled[resample] == pytest.approx(
            joint - np.mean([score(member_rows[resample]) for member_rows in rows]), abs=1e-9
        )
