"""Teachers without a model folder: tables of vectors, functions in a file."""

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models

from msdc import load_encoder
from msdc.distill import distill
from msdc.distill.catalog import load_recipe, parse_recipe
from msdc.distill.dry_run import dry_run
from msdc.distill.preflight import check_recipe
from msdc.distill.recipe import is_external
from msdc.distill.teacher import open_external
from msdc.errors import InputError, MsdcError

FUNCTION = """
import msdc
model = msdc.load_encoder({teacher!r})
model.max_length = 20
def encode(texts):
    assert isinstance(texts, list)
    return model.encode(texts)
def short(texts):
    return [[1.0]] * (len(texts) - 1)
def broken(texts):
    raise KeyError("token")
number = 3
"""


@pytest.fixture
def tree(tiny_tree, tiny_teacher, tmp_path, parallel_tsv):
    """One stage of a student by name, taught by the tiny teacher."""
    stage = tiny_tree["stages"][3] | {
        "steps": 6,
        "evaluate_every": 6,
        "source_share": 1,
        "objective": "multilingual_mse",
    }
    return tiny_tree | {
        "assistant": None, "student": str(tiny_models.student_folder()), "stages": [stage],
        "teacher": str(tiny_teacher),
        "corpora": [{"path": str(parallel_tsv), "languages": ["de"], "limit": 60}],
    }  # fmt: skip


def pairs(tree) -> list[tuple[str, str]]:
    lines = Path(tree["corpora"][0]["path"]).read_text(encoding="utf-8").splitlines()
    return [tuple(line.split("\t")[:2]) for line in lines]


def write_table(path: Path, texts: list[str], vectors_ND: np.ndarray, **columns) -> Path:
    lists = pa.array(list(vectors_ND), pa.list_(pa.from_numpy_dtype(vectors_ND.dtype)))
    pq.write_table(pa.table({**(columns or {"text": texts}), "vector": lists}), path)
    return path


@pytest.fixture
def table(tree, tiny_teacher, tmp_path) -> Path:
    """The teacher's vectors of the English sides, also as those of their translations."""
    vector_of = {}
    for source, target in pairs(tree):
        vector_of.setdefault(source, source)
        vector_of.setdefault(target, source)
    teacher = load_encoder(tiny_teacher)
    teacher.max_length = 20
    vectors_ND = teacher.encode(list(vector_of.values()), prompt="")
    return write_table(tmp_path / "teacher.parquet", list(vector_of), vectors_ND)


def trained(tree, folder) -> np.ndarray:
    return load_encoder(distill(tree, folder).student).encode(["A dog runs.", "Ein Hund.", "Tea"])


def test_a_table_and_a_function_teach_as_the_model_whose_vectors_they_give(tree, table, tiny_teacher, tmp_path):
    (tmp_path / "own.py").write_text(FUNCTION.format(teacher=str(tiny_teacher)))
    expected = trained(tree, tmp_path / "model")
    for number, teacher in enumerate(({"vectors": str(table)}, str(table), f"{tmp_path}/own.py:encode")):
        np.testing.assert_allclose(trained(tree | {"teacher": teacher}, tmp_path / f"run{number}"), expected, atol=2e-3)
    untrained = load_encoder(tiny_models.student_folder()).encode(["A dog runs.", "Ein Hund.", "Tea"])
    assert abs(expected - untrained).max() > 0.01
    # The function's vectors are stored, and read by the next run.
    stored = [
        path.parent.name for path in (tmp_path / "outputs").rglob("vectors") if path.parent.name.endswith("-encode")
    ]
    assert len(stored) == 1


def test_hashes_and_half_precision(tree, table):
    rows = pq.read_table(table)
    texts, vectors_ND = rows["text"].to_pylist(), np.array(rows["vector"].to_pylist(), np.float16)
    hashes = [int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") for text in texts]
    other = write_table(table.with_name("hash.parquet"), [], vectors_ND, hash=pa.array(hashes, pa.uint64()))
    np.testing.assert_array_equal(
        open_external(str(other), None).vectors(texts[::-1]), vectors_ND[::-1].astype(np.float32)
    )


def test_paths_are_relative_to_the_recipe_also_in_a_mix(tree, table, tiny_teacher, tmp_path):
    (tmp_path / "own.py").write_text(FUNCTION.format(teacher=str(tiny_teacher)))
    stage = tree["stages"][0] | {"teacher": {"teacher.parquet": 2, "own.py:encode": 1}, "objective": "multilingual_mse"}
    text = parse_recipe(tree | {"stages": [stage]}, "x").model_dump_json()
    (tmp_path / "recipe.yaml").write_text(text.replace(f"{tmp_path}/own.py", "own.py"))
    recipe = load_recipe(str(tmp_path / "recipe.yaml"))
    names = list(recipe.stages[0].teachers)
    assert names == [f"{tmp_path}/teacher.parquet", f"{tmp_path}/own.py:encode"]
    assert all(map(is_external, names))
    assert dry_run(recipe)["stages"][0]["steps"] == 6
    assert trained(str(tmp_path / "recipe.yaml"), tmp_path / "run").shape == (3, 32)


def test_missing_texts_are_counted_before_the_run(tree, table, tmp_path):
    rows = pq.read_table(table)
    pq.write_table(rows.slice(9), table)
    with pytest.raises(InputError, match=r"teacher\.parquet has no vector for [1-9]\d* of \d+ texts, such as .*: '"):
        distill(tree | {"teacher": str(table)}, tmp_path / "run")
    with pytest.raises(MsdcError, match="has no vector for 1 texts, such as 'Something else'"):
        open_external(str(table), None).vectors(["Something else"])


def test_another_table_is_refused_on_resume(tree, table, tmp_path):
    distill(tree | {"teacher": str(table)}, tmp_path / "run")
    rows = pq.read_table(table)
    write_table(table, rows["text"].to_pylist(), 2 * np.array(rows["vector"].to_pylist()))
    with pytest.raises(InputError, match=r"other inputs: file .*teacher\.parquet: changed"):
        distill(tree | {"teacher": str(table)}, tmp_path / "run", resume=True)


TWO = np.ones((2, 4), np.float32)


@pytest.mark.parametrize(
    ("texts", "vectors", "columns", "message"),
    [
        (["a", "a"], np.array([[1.0, 2], [1, 3]]), {}, "row 2 has another vector for the text of an earlier row"),
        (["a", "b"], np.array([[1.0, 2], [1, np.nan]]), {}, "a vector is not finite"),
        (
            [],
            TWO,
            {"sentence": ["a", "b"]},
            "expected the columns `vector` and `text` or `hash`; it has sentence, vector",
        ),
        ([], TWO, {"hash": ["a", "b"]}, "the column `hash` has string, expected uint64"),
        ([], TWO, {"text": [1, 2]}, "the column `text` has int64, expected text"),
        ([], TWO, {"text": ["a", None]}, "each row needs a text and a vector of 4 floats"),
        (["a", "b"], np.ones((2, 4), np.int64), {}, "each row needs a text and a vector of 4 floats"),
        ([], np.ones((0, 4)), {"text": pa.array([], pa.string())}, "no rows"),
    ],
)
def test_a_table_that_is_none_is_an_error(tmp_path, texts, vectors, columns, message):
    with pytest.raises(InputError, match=message):
        open_external(str(write_table(tmp_path / "t.parquet", texts, vectors, **columns)), None)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own.py:encod", r"no function 'encod'; did you mean 'encode'\?"),
        ("own.py:number", "number is a int, not a function"),
        ("own.py:short", r"own\.py:short: 1 texts gave an array \(0,\), expected \[N, D\]"),
        ("own.py:broken", r"own\.py, line 11: KeyError: 'token'"),
        ("none.py:encode", r"none\.py: no such file"),
        ("none.parquet", r"none\.parquet: no such file"),
        ("text.parquet", r"text\.parquet: no Parquet file"),
    ],
)
def test_a_teacher_that_gives_no_vectors_is_an_error_before_the_run(tree, tiny_teacher, tmp_path, name, message):
    (tmp_path / "own.py").write_text(FUNCTION.format(teacher=str(tiny_teacher)))
    (tmp_path / "text.parquet").write_text("text")
    with pytest.raises(InputError, match=message):
        check_recipe(parse_recipe(tree | {"teacher": f"{tmp_path}/{name}"}, "x"))
    (stage,) = tree["stages"]
    of_a_stage = tree | {"stages": [stage | {"teacher": {"teacher": 1, f"{tmp_path}/{name}": 1}}]}
    with pytest.raises(InputError, match=message):
        check_recipe(parse_recipe(of_a_stage, "x"))


def test_what_such_a_teacher_cannot_give(tree, table):
    for changes, message in (
        ({"assistant": "teacher"}, "its layers are those of the teacher, and .* has none"),
        (
            {"stages": [tree["stages"][0] | {"objective": {"name": "metakd", "options": {"layers": "skip"}}}]},
            "compares layers",
        ),
        (
            {"stages": [tree["stages"][0] | {"teacher_prompts": ["q: ", "p: "]}]},
            "has the vectors of texts without prompts",
        ),
    ):
        with pytest.raises(InputError, match=message):
            check_recipe(parse_recipe(tree | {"teacher": str(table)} | changes, "x"))
    with pytest.raises(InputError, match=r"expected a Parquet file"):
        parse_recipe(tree | {"teacher": {"vectors": "x.npy"}}, "x")
