"""What validation can decide: enough held-out pairs, the start as a candidate, retrieval, the teacher's languages."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_models
from safetensors.torch import load_file
from scipy.stats import spearmanr

from msdc.distill import distill
from msdc.distill.catalog import load_recipe, parse_recipe
from msdc.distill.data import Row
from msdc.distill.data.corpora import open_corpora
from msdc.distill.data.tables import heldout_hash, open_source_table
from msdc.distill.data.text import StageText
from msdc.distill.preflight import card_languages, check_recipe
from msdc.distill.recipe import Corpus, HeldOut, Stage
from msdc.distill.run_folder import Metrics
from msdc.distill.training.trainer import Trainer
from msdc.distill.training.validation import Validator, chosen_by
from msdc.errors import MsdcError
from msdc.text.answers import nearest_accuracy, right_answers


@pytest.mark.parametrize(
    ("heldout", "rows", "share"),
    [
        ({}, {"de": 1_000_000, "es": 20_000}, 0.004),  # 80 pairs of the smaller language
        ({}, {"de": 1_000_000, "es": 3_000}, 0.02),
        ({"min_pairs_per_language": 0}, {"de": 1_000_000, "es": 3_000}, 0.004),
        ({}, {"de": 200}, 0.05),  # no more of the text
        ({"share": 0.1}, {"de": 200}, 0.1),
        ({"pairs": 10}, {"de": 3_000}, 0.004),
        ({}, {}, 0.004),
    ],
)
def test_of_little_text_more_is_held_out(heldout, rows, share):
    assert HeldOut(**heldout).enough(rows).share == pytest.approx(share)


def test_a_language_of_3000_pairs_has_enough_to_choose_by(tmp_path):
    """What the share gives by hash, with the defaults; it was 12."""
    path = tmp_path / "en-de.tsv"
    path.write_text("".join(f"sentence number {n}\tSatz Nummer {n}\n" for n in range(3000)), encoding="utf-8")
    sources = open_corpora((Corpus(path=str(path), languages=("de",)),))
    tables = [open_source_table(source, tmp_path / "tables") for source in sources]
    heldout = HeldOut().enough({table.source.language: table.rows for table in tables})
    assert len(StageText(tables, 1, heldout).heldout_rows()["de"]) >= heldout.min_pairs_per_language == 50
    assert len(StageText(tables, 1, HeldOut()).heldout_rows()["de"]) < 20


def test_copies_of_a_held_out_row_are_one(tmp_path):
    """Of 1,200 rows in three copies: copies would fill the places of others, and each would count three times."""
    rows = [(f"sentence number {n}", f"Satz Nummer {n}") for n in range(1200)]
    path = tmp_path / "en-de.tsv"
    path.write_text("".join(f"{source}\t{target}\n" * 3 for source, target in rows), encoding="utf-8")
    (source,) = open_corpora((Corpus(path=str(path), languages=("de",)),))
    table = open_source_table(source, tmp_path / "tables")
    held = [
        (row.source, row.target) for row in StageText([table], 1, HeldOut(share=0.1, pairs=500)).heldout_rows()["de"]
    ]
    assert held == [row for row in rows if heldout_hash(row[0]) < 0.1 * 2**32]
    assert len(StageText([table], 1, HeldOut(share=0.1, pairs=30)).heldout_rows()["de"]) == 30 < len(held)


def test_equal_answers_are_all_right():
    """Against an oracle in plain Python: ninety questions, six answers, an encoder that is always right and one not."""
    rng = np.random.default_rng(5)
    sources = [f"question {n}" for n in range(90)]
    targets = [f"answer {n % 6}" + "!" * (n % 2) for n in range(90)]
    vectors = {f"answer {n}": rng.normal(size=16) for n in range(6)}
    targets_ND = np.stack([vectors[text.rstrip("!")] for text in targets])
    assert nearest_accuracy(targets_ND, targets_ND, sources, targets) == (100, 100)
    sources_ND = targets_ND + 2 * rng.normal(size=(90, 16))
    unit = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (sources_ND, targets_ND)]
    shares = []
    for queries, candidates in (unit, unit[::-1]):
        nearest = [max(range(90), key=lambda row, v=v: (float(candidates[row] @ v), -row)) for v in queries]
        shares.append(100 * np.mean([n % 6 == row % 6 for n, row in enumerate(nearest)]))
    assert nearest_accuracy(sources_ND, targets_ND, sources, targets) == pytest.approx(shares)
    assert 10 < shares[0] < 90
    # A question that is asked twice has both answers; one without letters is compared as it is.
    assert right_answers(["a", "A?", "b"], ["x", "y", "z"], np.array([1, 0, 0])).tolist() == [True, True, False]
    assert right_answers(["?", "!"], ["x", "y"], np.array([1, 0])).tolist() == [False, False]


@pytest.fixture
def tuned(tiny_tree, tmp_path) -> dict:
    """Fine-tuning of a student by retrieval, on text of which too few pairs are held out."""
    stage = tiny_tree["stages"][3] | {"steps": 6, "evaluate_every": 3, "choose": "retrieval", "learning_rate": 0.05}
    heldout = {"pairs": 40, "share": 0.1}
    return tiny_tree | {
        "assistant": None, "student": str(tiny_models.student_folder()), "stages": [stage], "heldout": heldout
    }  # fmt: skip


def scored(monkeypatch, scores: dict[int, float]) -> None:
    """Validations measure these accuracies, by step."""
    original = Trainer._score

    def score(self):
        measure = self.validate
        step = self.position.step
        self.validate = lambda encoder: {**measure(encoder), "choice": scores[step]}
        try:
            return original(self)
        finally:
            self.validate = measure

    monkeypatch.setattr(Trainer, "_score", score)


@pytest.mark.parametrize(("end", "kept_step"), [(9.0, 0), (50.0, 6)])
def test_the_start_of_fine_tuning_is_a_candidate(tuned, tmp_path, monkeypatch, capsys, end, kept_step):
    """It is kept if training only did harm; of equal scores the trained weights are kept."""
    scored(monkeypatch, {0: 50.0, 3: 10.0, 6: end})
    result = distill(tuned, tmp_path / "run")
    shown = capsys.readouterr().err
    assert result.stages["four"]["step"] == kept_step
    assert ("no validation is as good as at the start, whose weights are kept" in shown) == (kept_step == 0)
    start = load_file(Path(tuned["student"]) / "model.safetensors")
    weights = load_file(result.student / "model.safetensors")
    same = all(bool((weights[name] == value).all()) for name, value in start.items())
    assert same == (kept_step == 0)
    steps = [row["step"] for row in Metrics(tmp_path / "run" / "metrics.jsonl").rows() if "evaluation" in row]
    assert steps == [0, 3, 6]
    # Of 60 rows a tenth is held out, too few for 40 pairs.
    assert "few held-out pairs (de " in shown
    assert "points, and choices by it are mostly chance" in shown


def test_retrieval_chooses_by_accuracy_alone():
    assert chosen_by("retrieval", 4, 0.01, 30.0, 60.0) == 30.0
    assert chosen_by("retrieval", 4, None, None, 60.0) == 60.0
    for name, choose in {"tune": "retrieval", "tune:margins": "retrieval", "tune:texts": "heldout",
                         "tune:scored": "graded"}.items():  # fmt: skip
        assert load_recipe(name).stages[0].choose == choose


@pytest.mark.parametrize(
    ("card", "languages"),
    [
        ("---\nlanguage: en\n---\n# x", {"en"}),
        ("---\nlanguage:\n- en\n- pt-BR\nlicense: mit\n---\n", {"en", "pt-br"}),
        ("---\nlanguage: multilingual\n---\n", set()),
        ("---\nlicense: mit\n---\n", set()),
        ("---\n: [\n---\n", set()),
        ("# no metadata\n", set()),
    ],
)
def test_languages_of_a_card(tmp_path, card, languages):
    (tmp_path / "README.md").write_text(card, encoding="utf-8")
    assert card_languages(tmp_path) == languages


def test_text_that_the_teacher_does_not_know_is_a_warning(tuned, tmp_path, capsys):
    import shutil

    teacher = tmp_path / "english"
    shutil.copytree(tuned["teacher"], teacher)
    (teacher / "README.md").write_text("---\nlanguage: en\n---\n", encoding="utf-8")
    tree = tuned | {"teacher": str(teacher)}
    check_recipe(parse_recipe(tree, "tiny"))
    assert "the teacher knows" not in capsys.readouterr().err, "it reads the English side only"
    search = tree | {"stages": [tree["stages"][0] | {"objective": "guided_contrastive", "source_share": 1.0}]}
    check_recipe(parse_recipe(search, "tiny"))
    assert (
        "by its card the teacher knows en, and it is given text in de, es: name a multilingual"
        in capsys.readouterr().err
    )


def test_few_graded_pairs_and_weights_that_are_no_numbers_are_named(tuned, tmp_path, monkeypatch, capsys):
    """Not as a damaged model: the learning rate is too high."""
    (tmp_path / "my-dev.tsv").write_text("".join(f"{n % 6}\tcat {n}\tdog {n % 4}\n" for n in range(12)))
    tree = tuned | {"heldout": tuned["heldout"] | {"graded": [str(tmp_path / "my-dev.tsv")]}}
    tree["stages"] = [tree["stages"][0] | {"choose": "graded"}]
    distill(tree, tmp_path / "run")
    assert "my-dev has 12 graded pairs: their correlation has an interval of +- 65 points" in capsys.readouterr().err
    step = Trainer._step

    def ruined(self, batches):
        done = step(self, batches)
        next(p for _, p in self._trained()).data[:] = float("nan")
        return done

    monkeypatch.setattr(Trainer, "_step", ruined)
    stages = [tree["stages"][0] | {"evaluate_every": 1}]
    with pytest.raises(MsdcError, match=r"weights are not finite\. Lower learning_rate .* from the start of the stage"):
        distill(tree | {"stages": stages}, tmp_path / "other")


def test_where_the_teacher_reads_the_targets_they_are_compared_with_its_own_vectors(tiny_teacher, tmp_path):
    """A student that equals the assistant has no error: its target's vector is the assistant's of the target."""
    stage = {"name": "only", "objective": "multilingual_mse", "teacher": "assistant", "steps": 1, "batch": 8,
             "max_length": 20, "learning_rate": 1e-9}  # fmt: skip
    tree = tiny_models.recipe(tiny_teacher, tmp_path / "outputs", [stage])
    tree |= {"student": {"max_length": 20, "bottleneck": None}, "precision": "float32"}
    distill(tree, tmp_path / "run")
    rows = [row["evaluation"] for row in Metrics(tmp_path / "run" / "metrics.jsonl").rows() if "evaluation" in row]
    assert rows
    for row in rows:
        assert row["heldout_mse"] < 1e-5
        assert row["explained_variance"] > 0.999


class Hashed:
    """Vectors of eight numbers that depend on a text and on its prompt."""

    width = 8

    def encode(self, texts, prompt=""):
        return np.stack([np.random.default_rng(list(f"{prompt}{text}".encode())).normal(size=8) for text in texts])

    def vectors(self, texts):
        return self.encode(texts, "teacher ")


def test_each_side_has_its_prompt_and_prefixes_a_score_of_their_own(tmp_path):
    """Against the numbers of vectors that the test encodes: the student's, and those of a teacher of both sides."""
    (tmp_path / "my-dev.tsv").write_text("".join(f"{n % 6}\tcat {n}\tdog {n % 4}\n" for n in range(12)))
    prompts = {"prompts": ("query: ", "passage: "), "teacher_prompts": ("q: ", "p: ")}
    stage = Stage(name="s", teacher="assistant", objective="multilingual_mse", dimensions=(3,), **prompts)
    rows = [Row(f"source {n}", f"target {n}", "de") for n in range(10)]
    task = SimpleNamespace(stage=stage, teacher=Hashed(), project=None)
    text = SimpleNamespace(heldout=HeldOut(), heldout_rows=lambda: {"de": rows})
    plan = SimpleNamespace(stage=stage, corpora=(), heldout=HeldOut(graded=(str(tmp_path / "my-dev.tsv"),)))
    numbers = Validator(task, text, plan)(Hashed())
    student = {side: Hashed().encode([getattr(row, side) for row in rows], prompt)
               for side, prompt in (("source", "query: "), ("target", "passage: "))}  # fmt: skip
    teacher = Hashed().vectors([f"p: {row.target}" for row in rows])
    assert numbers["mse_de"] == pytest.approx(np.mean((teacher - student["target"]) ** 2))
    unit = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in student.values()]
    similarity = unit[0] @ unit[1].T
    right = [np.mean(similarity.argmax(axis) == np.arange(10)) for axis in (0, 1)]
    assert numbers["accuracy_de"] == pytest.approx(100 * np.mean(right))
    first, second = (Hashed().encode([f"{word} {n % m}" for n in range(12)], "query: ")
                     for word, m in (("cat", 12), ("dog", 4)))  # fmt: skip
    for name, width in (("spearman_my-dev", 8), ("spearman_my-dev_3", 3)):
        cosines = [a[:width] @ b[:width] / np.linalg.norm(a[:width]) / np.linalg.norm(b[:width])
                   for a, b in zip(first, second, strict=True)]  # fmt: skip
        assert numbers[name] == pytest.approx(100 * spearmanr(cosines, [n % 6 for n in range(12)]).statistic)
    assert numbers["graded"] == numbers["spearman_my-dev"] != numbers["spearman_my-dev_3"]


def test_one_held_out_pair_ends_a_run(tiny_teacher, tmp_path):
    """Of one vector there is no variance to explain: the other numbers are written, and they are JSON."""
    (tmp_path / "pairs.tsv").write_text("".join(f"a cat {n}\teine Katze {n}\n" for n in range(60)), encoding="utf-8")
    stage = {"name": "only", "objective": "multilingual_mse", "steps": 1, "batch": 8, "max_length": 20}
    tree = tiny_models.recipe(tiny_teacher, tmp_path / "outputs", [stage])
    tree |= {
        "corpora": [{"path": str(tmp_path / "pairs.tsv"), "languages": ["de"]}],
        "heldout": {"pairs": 1, "share": 0.1, "min_pairs_per_language": 0},
    }
    distill(tree, tmp_path / "run")
    (row,) = [row["evaluation"] for row in Metrics(tmp_path / "run" / "metrics.jsonl").rows() if "evaluation" in row]
    assert "explained_variance" not in row
    assert "heldout_mse" in row
