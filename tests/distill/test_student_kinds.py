"""Students of other shapes than their teacher, from the recipe to both runtimes: without layers, with a head."""

import pytest
import tiny_models
import torch
from stock_models import write_stock
from tiny_models import LOOSE

import msdc
from msdc.compress import cut_student, quantize
from msdc.compress.cut import RARE, shrink
from msdc.compress.student.io import load_student
from msdc.compress.student.stock import materialise
from msdc.distill import distill
from msdc.distill.catalog import parse_recipe
from msdc.distill.preflight import check_recipe
from msdc.errors import InputError
from msdc.export import export
from msdc.export.bundle import load_bundle
from msdc.scores import cosine_rows

TEXTS = ["a cat sleeps", "a dog runs in the garden", "eine katze", "the sun", "x"]


def recipe(teacher, tmp_path, **changes) -> dict:
    stage = {"name": "only", "objective": "multilingual_mse", "steps": 20, "batch": 8, "max_length": 20,
             "learning_rate": 1e-3, "table_learning_rate": 1e-2}  # fmt: skip
    tree = tiny_models.recipe(teacher, tmp_path / "outputs", [stage])
    assistant = tree["assistant"] | changes.pop("assistant", {})
    return tree | {"assistant": assistant, "student": {"max_length": 20, **changes}}


SCRATCH = {"layers": 1, "hidden": 16, "heads": 2, "intermediate": 32, "vocabulary": {"train": 500}, "normalize": True}
KINDS = {
    "static": {"layers": [], "bottleneck": 16},
    "static, coded": {"layers": [], "bottleneck": None, "assistant": {"nonzeros": 3}},
    "static, fitted": {"layers": [], "bottleneck": 16, "base_rows": 90, "nonzeros": 2},
    "head": {"scratch": SCRATCH, "bottleneck": None, "head": "teacher"},
    "static, head": {"layers": [], "bottleneck": 16, "head": "teacher"},
    "ridge head": {"layers": [0], "bottleneck": 16, "head": "ridge"},
    "static, ridge head": {"layers": [], "bottleneck": 16, "head": "ridge"},
    "static, ridge": {"layers": [], "bottleneck": None, "head": "ridge"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_from_the_recipe_to_both_runtimes(kind, tiny_teacher, tmp_path):
    """The student has the teacher's width; integers and programs have its vectors."""
    tree = recipe(tiny_teacher, tmp_path, **KINDS[kind])
    if "head" in kind:
        tree["teacher"] = str(write_stock(tmp_path / "wide", "bert", hidden_size=48, num_attention_heads=4))
        tree["assistant"] = tree["assistant"] | {"body": str(tiny_teacher)}
    done = distill(tree, tmp_path / "run")
    student, teacher = msdc.load_encoder(done.student), msdc.load_encoder(tree["teacher"])
    assert student.width == teacher.width == student.module.width
    assert len(student.module.layers) == int("static" not in kind)
    expected = student.encode(TEXTS)
    quantize(done.student, output=tmp_path / "int8", precision="int8")
    assert cosine_rows(msdc.load_encoder(tmp_path / "int8").encode(TEXTS), expected).min() > LOOSE.min_cosine
    folder, manifest = export(
        tmp_path / "int8", target="linux", runtime="both", gates=False, output=tmp_path / "bundle"
    )
    for runtime in manifest.runtimes:
        vectors = load_bundle(folder, runtime).encode(TEXTS)
        assert cosine_rows(vectors, expected).min() > LOOSE.min_cosine, runtime
        assert manifest.parity[runtime].mean_cosine > LOOSE.mean_cosine


@pytest.mark.parametrize("coded", [False, True])
def test_a_static_student_is_the_weighted_mean_of_its_tokens_alone(coded):
    """Rows are the model's vectors of single tokens, rare ones longer: a / (a + p)."""
    torch.manual_seed(1)
    large = tiny_models.student(**({"base_rows": 60, "nonzeros": 3} if coded else {}))
    frequency_V = torch.rand(large.config.vocabulary) + 0.1
    small = shrink(large, layers=[], frequency_V=frequency_V)
    assert small.config.static
    assert not small.layers
    share_V = frequency_V / frequency_V.sum()
    ids = torch.tensor([[5, 9, 9, 200]])
    total = torch.zeros(large.width)
    with torch.no_grad():
        for token in ids[0].tolist():
            rows = [(1.0, torch.tensor([[token]]))]
            if coded:
                # The base row of a code, alone, is that of no token: it is put into the table of a copy.
                code = large.embedding.code
                rows = list(zip(code.weight[token].tolist(), code.index[token].tolist(), strict=True))
            for weight, row in rows:
                if coded:
                    hidden = large.embedding.finish(large.embedding.table.weight[row].view(1, 1, -1))
                    for _ in range(large.config.repeats):
                        hidden = large.unit(hidden)
                    vector = large.head(hidden, torch.ones(1, 1))[0]
                else:
                    vector = large(row, torch.ones_like(row))[0]
                total += weight * RARE / (RARE + share_V[token]) * vector
        sentence_vector = small(ids, torch.ones_like(ids))[0]
    torch.testing.assert_close(sentence_vector, total / total.norm(), atol=1e-5, rtol=1e-4)


def test_a_bottleneck_of_full_width_and_a_cut_in_one_command(tiny_teacher, tmp_path):
    report = cut_student(tiny_teacher, output=tmp_path / "wide", layers=[])
    again = cut_student(tiny_teacher, output=tmp_path / "narrow", layers=[], bottleneck=32)
    wide, narrow = (msdc.load_encoder(tmp_path / name).encode(TEXTS) for name in ("wide", "narrow"))
    assert cosine_rows(wide, narrow).min() > 0.9999
    assert (report.layers, load_student(tmp_path / "narrow").config.dense) == ([], 32)
    assert again.kept_variance is None
    with pytest.raises(InputError, match="without layers has no equal model of stock classes"):
        materialise(load_student(tmp_path / "wide"))


def test_what_a_static_student_cannot_have_is_one_line(tiny_teacher, tmp_path):
    for wrong, message in (
        ({"layers": [], "place": "embedding"}, "layers: .. is a table and a mean"),
        ({"layers": [], "repeats": 2}, "layers: .. is a table and a mean"),
    ):
        with pytest.raises(InputError, match=message):
            parse_recipe(recipe(tiny_teacher, tmp_path, **wrong), "test")
    tree = recipe(tiny_teacher, tmp_path, layers=[])
    tree["stages"][0] |= {
        "train": "student.embedding",
        "objective": "embedding_alignment",
        "teacher": "assistant.embedding",
    }
    with pytest.raises(InputError, match="those of a student without layers have another meaning"):
        check_recipe(parse_recipe(tree, "test"))
