"""Word alignment against IBM Model 1, sentence by sentence; coded tables in recipes: transplant, fit, mistakes."""

import re

import numpy as np
import pytest
import tiny_models
import torch
from refusals import one_line
from scipy import sparse

from msdc.compress.student.io import load_student
from msdc.compress.student.model import Student, StudentConfig
from msdc.compress.texts import quickstart_texts
from msdc.compress.vocabulary.tokens import open_vocabulary
from msdc.distill import distill, vocabulary_transfer
from msdc.distill.catalog import parse_recipe
from msdc.distill.data import Row
from msdc.distill.preflight import check_recipe
from msdc.distill.recipe import Stage
from msdc.distill.tasks.sentence import SentenceTask
from msdc.distill.training.trainer import make_optimizer
from msdc.distill.vocabulary_transfer import (
    align,
    align_tokens,
    most_used,
    of_one_kind,
    strongest,
    transplant_code,
    transplant_rows,
    with_spelling,
    with_twins,
)
from msdc.errors import InputError
from msdc.loading import load_encoder

P, W = 12, 9


def sentences(seed: int, count: int) -> tuple[list[list[int]], list[list[int]]]:
    """Sentence pairs in which new word p mostly stands for old word p % W."""
    generator = np.random.default_rng(seed)
    old = [sorted(set(generator.integers(0, W, generator.integers(1, 6)).tolist())) for _ in range(count)]
    new = [
        sorted({int(w + W * (generator.random() < 0.3)) % P for w in row if generator.random() < 0.9}) for row in old
    ]
    return new, old


def model_1(new, old, rounds, null, faint):
    """Both directions from the same start, sentence by sentence; their geometric mean over a piece's sentences."""
    in_new, in_old = (np.array([np.isin(np.arange(size), row) for row in rows]) for rows, size in ((new, P), (old, W)))
    links_SPW = in_new[:, :, None] & in_old[:, None, :]
    seen_P, seen_W = np.maximum(in_new.sum(0), 1)[:, None], np.maximum(in_old.sum(0), 1)
    start = links_SPW.sum(0) ** 2 / (seen_P * seen_W)
    start *= (start >= faint * start.max(1, keepdims=True)) | (start >= faint * start.max(0))

    def expected(piece_axis: int):
        table = start
        for _ in range(rounds):
            parts_SPW = (table + null * 1e-3) * (links_SPW & (start > 0))
            total = parts_SPW.sum(1 + piece_axis, keepdims=True)
            counts = np.divide(parts_SPW, total, out=np.zeros_like(parts_SPW), where=total > 0).sum(0)
            table = counts / np.maximum(counts.sum(1 - piece_axis, keepdims=True), 1e-300)
        return counts

    return np.sqrt(expected(0) * expected(1)) / seen_P


@pytest.mark.parametrize("faint", [0.0, 0.02, 0.3])
@pytest.mark.parametrize("chunk", [7, 1000])
def test_alignment_is_model_1_over_the_candidates(monkeypatch, faint, chunk):
    for name, value in {"FAINT": faint, "CHUNK": chunk, "ROUNDS": 3}.items():
        monkeypatch.setattr(vocabulary_transfer, name, value)
    new, old = sentences(3, 60)
    weights = align(new, old, P, W).todense()
    np.testing.assert_allclose(weights, model_1(new, old, 3, 0.02, faint), rtol=2e-5, atol=1e-9)


def test_words_without_a_counterpart():
    weights = align([[0], [], [2]], [[], [1], [0]], P, W)
    assert weights.nnz == 1
    assert weights[2, 0] > 0
    assert align([[0]], [[]], P, W).nnz == 0


def test_words_link_with_words_and_marks_with_marks():
    score = sparse.csr_matrix(np.array([[0.5, 0.4, 0.1], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]]))
    remaining = of_one_kind(score, ["haus", ".", "7", None], ["house", "!", "17"]).toarray()
    assert remaining.tolist() == [[0.5, 0, 0], [0, 0.7, 0], [0, 0, 0.8], [0, 0, 0]]


def test_the_spelling_counts_as_half_a_sentence():
    weights = sparse.csr_matrix(np.array([[1.0, 0, 0], [0, 0, 0], [0, 1.0, 0]]))
    mixed = with_spelling(weights, np.array([4.5, 0, 9.0]), {0: [1, 2], 1: [2]}, worth=0.5).toarray()
    assert mixed == pytest.approx(np.array([[0.9, 0.05, 0.05], [0, 0, 1.0], [0, 1.0, 0]]))
    assert with_spelling(weights, np.ones(3), {}).toarray() == pytest.approx(weights.toarray())


def test_a_rare_token_takes_from_its_twin():
    weights = sparse.csr_matrix(np.array([[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]]))
    mixed = with_twins(weights, np.array([15.0, 0.0, 3.0]), {0: 1, 1: 0}).toarray()
    assert mixed == pytest.approx(np.array([[0.75, 0.25, 0], [1.0, 0, 0], [0, 0, 1.0]]))
    assert with_twins(weights, np.ones(3), {}).toarray() == pytest.approx(weights.toarray())


def test_pieces_inside_words_are_made_of_the_teachers(tiny_teacher):
    teacher, tokenizer = load_encoder(tiny_teacher), tiny_models.tokenizer(3000)
    rows = [Row(text, "", "en") for text in quickstart_texts(["en"])[:40]]
    plain, seen_P = align_tokens(teacher, tokenizer, rows, "alignment", 64)
    inside, _ = align_tokens(teacher, tokenizer, rows, "alignment", 64, inside=True)
    teacher_rows = {
        piece.name[2:]: piece.row for piece in open_vocabulary(teacher.tokenizer).tokens if piece.name[:2] == "##"
    }
    names = [tokenizer.processor.id_to_piece(piece) for piece in range(tokenizer.size)]
    same = [piece for piece, name in enumerate(names) if name in teacher_rows]
    unseen = [piece for piece in same if seen_P[piece] == 1]
    assert len(same) > 20
    assert len(unseen) > 5
    assert all(inside[piece, teacher_rows[names[piece]]] == pytest.approx(1.0) for piece in unseen)
    assert all(
        inside[piece, teacher_rows[names[piece]]] > plain[piece, teacher_rows[names[piece]]] - 1e-9 for piece in same
    )
    starts = [piece for piece, name in enumerate(names) if name.startswith("▁") or not name.isascii()]
    unlike = abs(inside - plain)[starts].max(1).toarray().ravel() > 1e-6
    assert not any(unlike[i] for i, piece in enumerate(starts) if max(names[piece]) > "\u024f")


PIECES, WORDS, H = 300, 90, 12


def random_scores():
    """Scores of pieces and wordpieces; some pieces have one nonzero, some none."""
    rng = np.random.default_rng(4)
    dense = rng.random((PIECES, WORDS)) * (rng.random((PIECES, WORDS)) < 0.08)
    dense[::11] = 0
    dense[5::13, 3:] = 0
    return sparse.csr_matrix(dense)


@pytest.mark.parametrize("nonzeros", [2, 4, 5])
def test_the_code_is_the_transplant_not_multiplied_out(nonzeros):
    table = torch.randn(WORDS, H, generator=torch.Generator().manual_seed(1))
    weights = strongest(random_scores(), nonzeros)
    exact_rows = {0: torch.ones(H), 7: table[3]}
    code = transplant_code(weights, table, nonzeros, exact_rows)
    expected = transplant_rows(weights, table)
    expected[0], expected[7] = exact_rows[0], exact_rows[7]
    assert torch.allclose(code.rows(), expected, atol=1e-5)
    used = set(weights.tocsr()[[p for p in range(PIECES) if p not in exact_rows]].indices.tolist())
    # The teacher's rows that pieces use, the mean row, and the rows of their own.
    assert len(code.base_RE) == len(used) + 1 + len(exact_rows)
    assert code.weight_Vk.shape == (PIECES, nonzeros)
    assert code.index_Vk.dtype == torch.int16
    with pytest.raises(ValueError, match="more than"):
        transplant_code(strongest(random_scores(), nonzeros + 1), table, nonzeros, exact_rows)


def test_the_base_keeps_the_rows_that_are_used_most():
    frequency = np.arange(PIECES, dtype=float)
    scores = strongest(random_scores())
    share = np.array([sum(frequency[p] ** 0.5 * scores[p, w] for p in range(PIECES)) for w in range(WORDS)])
    base_rows = set(np.argsort(-share)[:40].tolist())
    remaining = most_used(scores, 40, frequency)
    assert set(remaining.indices.tolist()) == base_rows
    for piece in range(PIECES):
        best = sorted(
            (w for w in range(WORDS) if scores[piece, w] and w in base_rows), key=lambda w: -scores[piece, w]
        )[:2]
        assert set(strongest(remaining, 2)[piece].indices.tolist()) == set(best)


def test_a_recipe_keeps_the_code_of_its_transplant(tiny_tree, tmp_path):
    tiny_tree["assistant"] |= {"nonzeros": 3, "base_rows": 100}
    tiny_tree["stages"] = [tiny_tree["stages"][0] | {"steps": 2}, tiny_tree["stages"][2] | {"steps": 2}]
    with pytest.raises(InputError, match="set nonzeros too"):
        parse_recipe(tiny_tree | {"assistant": tiny_tree["assistant"] | {"nonzeros": None}}, "tiny")
    done = distill(tiny_tree, tmp_path / "run")
    start = load_student(tmp_path / "run" / "assistant-start")
    student = load_student(done.student)
    assert start.config.nonzeros == student.config.nonzeros == 3
    assert student.config.bottleneck == 8
    assert start.config.base_rows == student.config.base_rows <= 100
    assert torch.equal(start.embedding.code.index, student.embedding.code.index)
    # A transplant's rows are means: weights are shares.
    assert torch.allclose(start.embedding.code.weight.sum(1), torch.ones(start.config.vocabulary), atol=1e-5)


def test_a_recipe_fits_a_code_to_a_dense_table(tiny_tree, tmp_path, capsys):
    tiny_tree["student"] |= {"base_rows": 150, "nonzeros": 4, "place": "embedding"}
    tiny_tree["stages"] = [tiny_tree["stages"][1] | {"steps": 2}, tiny_tree["stages"][2] | {"steps": 2, "start": "svd"}]
    done = distill(tiny_tree, tmp_path / "run")
    config = load_student(done.student).config
    assert (config.base_rows, config.nonzeros, config.place) == (150, 4, "embedding")
    assert "coding its table, 4 of 150 base rows" in capsys.readouterr().err


def test_a_student_from_scratch_may_be_coded(tiny_tree, tmp_path):
    tiny_tree |= {
        "assistant": None,
        "student": {
            "scratch": {"layers": 1, "hidden": 16, "heads": 2, "intermediate": 16, "vocabulary": {"train": 500}},
            "bottleneck": None, "max_length": 20, "base_rows": 80, "nonzeros": 2,
        },
        "stages": [tiny_tree["stages"][3] | {"steps": 2, "objective": "multilingual_contrastive"}],
    }  # fmt: skip
    done = distill(tiny_tree, tmp_path / "run")
    assert load_student(done.student).config.base_rows == 80


def test_base_and_code_have_learning_rates_of_their_own():
    config = StudentConfig(
        vocabulary=60, hidden=16, heads=2, intermediate=16, unit=1, bottleneck=8, positions=8, base_rows=20, nonzeros=3
    )
    stage = {"name": "one", "teacher": None, "objective": "multilingual_contrastive", "learning_rate": 1e-4}
    for rates, table, code in (
        ({}, 1e-4, 1e-4),
        ({"table_learning_rate": 1e-3}, 1e-3, 1e-4),
        ({"table_learning_rate": 1e-3, "code_learning_rate": 5e-4}, 1e-3, 5e-4),
    ):
        task = SentenceTask(Student(config), Stage(**stage, **rates))
        optimizer = make_optimizer(task)
        learning_rates = {
            id(p): (group["lr"], group["weight_decay"]) for group in optimizer.param_groups for p in group["params"]
        }
        embedding = task.student.embedding
        assert learning_rates[id(embedding.table.weight)] == (table, 0.0)
        assert learning_rates[id(embedding.code.weight)] == (code, 0.0)
        assert learning_rates[id(embedding.project.weight)] == (1e-4, 0.01)
        assert len(learning_rates) == len(list(task.parameters()))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("assistant.nonzeros=0",), "assistant.*greater than or equal to 2"),
        (("assistant.nonzeros=6",), "assistant.*less than or equal to 5"),
        (("student.nonzeros=3",), "set both or neither"),
        (("student.base_rows=30",), "set both or neither"),
        (("student.base_rows=500", "student.nonzeros=3"), "no smaller than the vocabulary of 500"),
    ],
)
def test_mistakes_are_met_before_any_work(tiny_tree, changes, message):
    assert re.search(message, one_line(lambda: check_recipe(parse_recipe(tiny_tree, "tiny", changes)), InputError))
