"""Stages on labels: SBERT's two, and MetaKD's meta-teacher; from the corpus file to the trained weights."""

import csv
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from msdc.distill import distill
from msdc.distill.catalog import parse_recipe
from msdc.distill.data import Row
from msdc.distill.data.corpora import open_corpora
from msdc.distill.preflight import check_recipe
from msdc.distill.recipe import Corpus
from msdc.distill.run_folder import Metrics
from msdc.distill.training.validation import scored_heldout
from msdc.errors import InputError
from msdc.loading import load_encoder

NLI = "gold_label\tpremise\thypothesis\n" + "".join(
    f"{label}\tA man number {i} eats {food}.\t{other}\n"
    for i, food in enumerate(("bread", "soup", "fish", "rice", "cake", "corn") * 4)
    for label, other in (
        ("entailment", "A person eats."), ("contradiction", f"Nobody eats {food}."), ("neutral", "It is late."),
    )
)  # fmt: skip


@pytest.fixture
def files(tmp_path):
    (tmp_path / "nli.tsv").write_text(NLI)
    animals = ("cat", "dog")
    lines = [f"{4 * (i % 2) + i // 2 % 2}.0\tA dog runs {i}.\tA {animals[i % 2]} runs {i}.\n" for i in range(40)]
    (tmp_path / "dev.tsv").write_text("score\tsentence1\tsentence2\n" + "".join(lines))
    (tmp_path / "sts.tsv").write_text("score\tsentence1\tsentence2\n" + "".join(reversed(lines)))
    return tmp_path


def test_scores_of_another_scale_are_said(files):
    """Scores of 0 to 1, as Sentence Transformers takes them, must not pass for the lowest fifth of 0 to 5."""
    (scored,) = open_corpora((Corpus(path=str(files / "sts.tsv"), kind="scored"),))
    assert sorted({row.label for row in scored.read()}) == [0.0, 0.2, 0.8, 1.0]
    (files / "sts-test.tsv").write_text((files / "sts.tsv").read_text())
    with pytest.raises(InputError, match="a test set must not"):
        open_corpora((Corpus(path=str(files / "sts-test.tsv"), kind="scored"),))
    path = files / "unit.tsv"
    path.write_text("score\tsentence1\tsentence2\n" + "".join(f"{i / 10}\tA {i}.\tB {i}.\n" for i in range(11)))
    with pytest.raises(InputError, match=r"no score is above 1: set `scale: \[0, 1\]` if .* or `scale: \[0, 5\]`"):
        open_corpora((Corpus(path=str(path), kind="scored"),))
    (unit,) = open_corpora((Corpus(path=str(path), kind="scored", scale=(0, 1)),))
    assert [row.label for row in unit.read()] == [i / 10 for i in range(11)]
    assert "scores 0 to 1" in unit.form
    (low,) = open_corpora((Corpus(path=str(path), kind="scored", scale=(0, 5)),))
    assert [row.label for row in low.read()] == pytest.approx([i / 50 for i in range(11)])
    for wrong in ({"kind": "text", "scale": (0, 1)}, {"kind": "scored", "scale": (1, 0)}):
        with pytest.raises(ValueError, match="scale requires `kind: scored`"):
            Corpus(path=str(path), **wrong)


def test_the_held_out_figure_of_a_scored_corpus_is_its_correlation(files, tiny_teacher):
    tree = sbert(files, tiny_teacher)
    tree |= {"stages": tree["stages"][1:], "heldout": {"pairs": 20, "share": 0.3}}
    tree["stages"][0]["choose"] = "heldout"
    numbers = distill(tree, files / "run").stages["stsb"]
    assert "heldout_accuracy" not in numbers
    assert -100 <= numbers["graded"] <= 100
    assert numbers["graded"] == numbers["spearman_heldout"] == numbers["choice"]


def test_classes_are_no_scores_of_held_out_pairs():
    """Rows of pairs with a class stay pairs of which one finds the other; only scores of similarity are correlated."""
    classes = [Row(f"a {n}", f"b {n}", "en", (), 0, float(n % 3)) for n in range(6)]
    scores = [Row(f"c {n}", f"d {n}", "en", (), 1, float(n)) for n in range(4)]
    corpora = [Corpus(path="nli.tsv", kind="nli-pairs"), Corpus(path="sts.tsv", kind="scored")]
    (graded,), others = scored_heldout({"en": classes + scores}, corpora)
    assert (graded.first, graded.gold_N.tolist()) == ([row.source for row in scores], [0, 1, 2, 3])
    assert others == {"en": classes}
    assert scored_heldout({"en": classes}, corpora) == ([], {"en": classes})


def sbert(files, tiny_teacher, **stage) -> dict:
    common = {"teacher": None, "steps": 12, "batch": 8, "max_length": 20, "learning_rate": 1e-3, "evaluate_every": 6}
    nli = {"name": "nli", "objective": "softmax_classification"} | common | stage
    sts = {"name": "stsb", "objective": "cosine_regression"} | common
    sts["corpora"] = [{"path": str(files / "sts.tsv"), "kind": "scored"}]
    return {
        "name": "tiny-sbert", "teacher": str(tiny_teacher), "assistant": None, "student": str(tiny_teacher),
        "corpora": [{"path": str(files / "nli.tsv"), "kind": "nli-pairs"}], "precision": "float32", "threads": 1,
        "heldout": {"pairs": 5, "share": 0.1, "graded": [str(files / "dev.tsv")]},
        "cache": str(files / "outputs"), "stages": [nli, sts],
    }  # fmt: skip


def test_sbert_learns_classes_and_then_scores(files, tiny_teacher):
    """The classifier's loss falls below chance and that of the regression falls; both stages move the encoder."""
    tree = sbert(files, tiny_teacher, steps=60, learning_rate=3e-3)
    tree["stages"][1]["steps"] = 40
    done = distill(tree, files / "run")
    rows = Metrics(files / "run" / "metrics.jsonl").rows()
    for name in ("nli", "stsb"):
        losses = [row["loss"] for row in rows if row.get("stage") == name and "loss" in row]
        assert sum(losses[-8:]) < 0.7 * sum(losses[:8]), losses
    weights = [
        load_file(files / "run" / "stages" / stage / "model" / "model.safetensors") for stage in ("0-nli", "1-stsb")
    ]
    name = next(key for key in weights[0] if "layers.0" in key and key.endswith("weight"))
    assert not torch.equal(weights[0][name], weights[1][name])
    # The classifier is the task's: the student is a plain encoder.
    assert not any("classifier" in key for key in weights[0])
    for numbers in done.stages.values():
        assert numbers["minutes_per_10000_steps"] > 0
        assert numbers["peak_mib"] > 50
    assert load_encoder(done.student).encode(["A man eats."]).shape == (1, load_encoder(tiny_teacher).width)


def test_labels_that_a_corpus_does_not_have_are_missed_at_the_start(files, tiny_teacher):
    tree = sbert(files, tiny_teacher)
    tree["corpora"][0]["kind"] = "nli"
    with pytest.raises(InputError, match="softmax_classification needs labels: set `kind: nli-pairs`"):
        check_recipe(parse_recipe(tree, "test"))
    tree = sbert(files, tiny_teacher)
    del tree["stages"][1]["corpora"]
    with pytest.raises(InputError, match="cosine_regression needs labels: set `kind: scored`"):
        check_recipe(parse_recipe(tree, "test"))


def triples(path, subject: str) -> dict:
    path.write_text(
        "".join(f"A {subject} runs {i}.\tA {subject} moves.\tNo {subject} is here {i}.\n" for i in range(30))
    )
    return {"path": str(path), "kind": "triples"}


def test_a_meta_teacher_is_trained_and_then_teaches(files, tiny_teacher):
    """MetaKD: a copy of the teacher is trained over two domains and trains the student; the teacher stays."""
    common = {"steps": 4, "batch": 8, "max_length": 20, "learning_rate": 1e-3, "evaluate_every": 4}
    corpora = [triples(files / "one.tsv", "dog"), triples(files / "two.tsv", "horse")]
    adversarial = {"name": "domain_adversarial", "weight": 0.5}
    tree = sbert(files, tiny_teacher) | {
        "assistant": "teacher",
        "corpora": [{"path": c["path"], "kind": "text", "columns": [1]} for c in corpora],
        "stages": [
            common | {"name": "meta-teacher", "train": "assistant", "teacher": None, "corpora": corpora,
                      "objective": ["supervised_contrastive", adversarial]},
            common | {"name": "distil", "teacher": "assistant",
                      "objective": {"name": "metakd", "options": {"layers": "skip"}}},
        ],
    }  # fmt: skip
    before = load_encoder(tiny_teacher).encode(["A dog runs."])
    done = distill(tree, files / "run")
    assert done.assistant is not None
    assert done.stages["meta-teacher"]["share_domain_adversarial"] > 0
    meta = load_encoder(done.assistant).encode(["A dog runs."])
    assert abs(meta - before).max() > 1e-3
    assert (load_encoder(tiny_teacher).encode(["A dog runs."]) == before).all()
    # What the student learned from are the meta-teacher's vectors: the store has them under its fingerprint only.
    stored = [path.parent.name for path in (files / "outputs").rglob("vectors")]
    assert stored
    assert all(name.startswith(load_encoder(done.assistant).fingerprint()[:32]) for name in stored)


def test_one_domain_has_no_adversary(files, tiny_teacher):
    tree = sbert(files, tiny_teacher)
    tree["stages"] = [{"name": "a", "teacher": None, "objective": "domain_adversarial"}]
    for corpora in (None, [triples(files / "one.tsv", "dog")]):
        tree["stages"][0]["corpora"] = corpora
        with pytest.raises(InputError, match="needs two corpora or more"):
            check_recipe(parse_recipe(tree, "test"))


# (label as written, premise, hypothesis): one premise without a contradiction, one pair without a gold label
PAIRS = [
    ("entailment", "P, \"one\"", "e1"), ("-", "P, \"one\"", "unclear"), ("contradiction", "P, \"one\"", "c\n1"),
    ("neutral", "Q", "n"), ("entailment", "Q", "e2"),
]  # fmt: skip
NUMBERS = {"entailment": 0, "neutral": 1, "contradiction": 2, "-": -1}


def write_table(folder, form: str) -> Path:
    """The pairs, among other columns, as people have them."""
    path = folder / f"pairs.{form}"
    if form == "csv":
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", "sentence1", "sentence2", "gold_label"])
            writer.writerows([i, premise, hypothesis, label] for i, (label, premise, hypothesis) in enumerate(PAIRS))
    else:
        lines = [{"label": NUMBERS[a], "premise": b, "hypothesis": c, "genre": "x"} for a, b, c in PAIRS]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_labelled_pairs_in_tables(tmp_path, form):
    path = write_table(tmp_path, form)
    (source,) = open_corpora((Corpus(path=str(path), kind="nli-pairs"),))
    rows = [(row.label, row.source, row.target.replace("\n", " ")) for row in source.read()]
    order = ("contradiction", "entailment", "neutral")
    assert rows == [(float(order.index(a)), b, c.replace("\n", " ")) for a, b, c in PAIRS if a != "-"]
    ((why, drop),) = source.dropped.items()
    assert "label of NLI" in why
    assert drop[0] == 1
    (triples,) = open_corpora((Corpus(path=str(path), kind="nli"),))
    records = [(row.source, row.target, row.negatives[0].replace("\n", " ")) for row in triples.read()]
    assert records == [('P, "one"', "e1", "c 1")]
    assert list(triples.dropped) == [
        "no label of NLI, premise and hypothesis", "the premise has no entailment or no contradiction"
    ]  # fmt: skip


def test_named_columns_of_labelled_pairs(tmp_path):
    path = tmp_path / "own.tsv"
    path.write_text("verdict\tfirst\tsecond\nneutral\tA.\tB.\n", encoding="utf-8")
    corpus = Corpus(path=str(path), kind="nli-pairs", columns=("verdict", "first", "second"))
    (source,) = open_corpora((corpus,))
    assert [(row.label, row.source, row.target) for row in source.read()] == [(2.0, "A.", "B.")]
    assert not source.dropped
    other = path.with_suffix(".csv")
    other.write_text("verdict,first,second,note\nneutral,A.,B.,x\n", encoding="utf-8")
    with pytest.raises(
        InputError, match=r"choose the labelled pairs \(label, premise, hypothesis\): `columns: \[A, B, C\]`"
    ):
        open_corpora((Corpus(path=str(other), kind="nli-pairs"),))
    with pytest.raises(InputError, match="need 3 columns"):
        open_corpora((Corpus(path=str(other), kind="nli", columns=("first", "second")),))


def scored_triples(path: Path, scale=(-10, 10)) -> Corpus:
    """Two negatives for each query, with the logits of a cross-encoder; one is no number, one out of the scale."""
    texts = ("A dog runs {}.", "The dog {} is running.", "A cat {}.", "Rain.")
    rows = [[*(text.format(i) for text in texts), 8 - i % 3, i % 4, -6] for i in range(60)]
    rows[3][5], rows[4][6] = "none", -11
    names = ["query", "positive", "negative_1", "negative_2", "right", "near", "far"]
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    return Corpus(path=str(path), kind="triples", scores=("right", "near", "far"), scale=scale)


def test_scores_of_a_file_are_read_with_their_triples(tmp_path):
    (source,) = open_corpora((scored_triples(tmp_path / "t.csv"),))
    rows = list(source.read())
    assert len(rows) == 58
    assert rows[1].label == pytest.approx(((7 + 10) / 20, (1 + 10) / 20, (-6 + 10) / 20))
    assert rows[1].negatives == ("A cat 1.", "Rain.")
    assert source.dropped == {"a score is not a number of -10 to 10": (2, [5, 6])}
    (plain,) = open_corpora((scored_triples(tmp_path / "t.csv", None),))
    assert [row.label for row in plain.read()][1] == (7, 1, -6)
    assert list(plain.dropped) == ["a score is not a number"]
    two = plain.corpus.model_copy(update={"scores": (5, 6)})
    with pytest.raises(InputError, match=r"rows of 4 texts need 3 columns in `scores` .*, not 2"):
        open_corpora((two,))
    with pytest.raises(InputError, match="no column 'logit'"):
        open_corpora((two.model_copy(update={"scores": ("right", "near", "logit")}),))


@pytest.mark.parametrize("objective", ["margin_mse", "listwise_kl"])
def test_a_student_learns_the_scores_of_a_file_without_a_teacher(files, tiny_teacher, objective):
    corpus = scored_triples(files / "t.csv").model_dump(include={"path", "kind", "scores", "scale"})
    tree = sbert(files, tiny_teacher, objective=objective, corpora=[corpus], steps=30, learning_rate=3e-3)
    tree["stages"] = tree["stages"][:1]
    distill(tree, files / "run")
    losses = [row["loss"] for row in Metrics(files / "run" / "metrics.jsonl").rows() if "loss" in row]
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5]), losses
    for wrong, message in (
        ({"mined_negatives": 2}, "do not set mined_negatives"),
        ({"corpora": [corpus, triples(files / "one.tsv", "dog")]}, "scores: set them for each of its corpora or none"),
        ({"corpora": [triples(files / "one.tsv", "dog")]}, "needs a teacher"),
        ({"corpora": [corpus | {"kind": "nli"}]}, "scores requires `kind: triples`"),
    ):
        with pytest.raises(InputError, match=message):
            check_recipe(parse_recipe({**tree, "stages": [tree["stages"][0] | wrong]}, "test"))
