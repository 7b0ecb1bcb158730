"""Vectors of other encoders from files: the same scores as the encoder itself, and what does not fit is refused."""

import numpy as np
import pytest
from accuracy_models import QUICKSTART, evaluated

from msdc.bench.accuracy import evaluate
from msdc.bench.accuracy.parallel import read_parallel
from msdc.bench.accuracy.vectors import VectorFiles
from msdc.errors import InputError, MsdcError


def write_vectors(folder, texts_by_name, encode):
    folder.mkdir()
    for name, texts in texts_by_name.items():
        (folder / f"{name}.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        np.save(folder / f"{name}.npy", encode(texts))
    return folder


@pytest.fixture(scope="module")
def sides():
    parallel = read_parallel(QUICKSTART / "parallel.tsv")
    return {code: parallel.sides[code][:59] for code in ("en", "de")}


def test_files_score_as_the_encoder_that_wrote_them(tmp_path, tiny_student, sides, capsys):
    """The tiny student's vectors, written to files, get the tiny student's own accuracy, beside it in one document."""
    import msdc

    encoder = msdc.load_encoder(tiny_student)
    folder = write_vectors(tmp_path / "laser", sides, lambda texts: encoder.encode(texts)[:, ::-1])
    pairs = tmp_path / "pairs.tsv"
    rows = ["en\tde", *("\t".join(pair) for pair in zip(sides["en"], sides["de"], strict=True))]
    pairs.write_text("\n".join(rows) + "\n", encoding="utf-8")
    own = evaluate(encoder, task="tatoeba", path=pairs, resamples=0)
    document = evaluated(tiny_student, [f"tatoeba={pairs}", "graded-pairs"], vectors=[folder], resamples=0)
    records = {model["label"]: model for model in document["models"]}
    assert records["laser"]["kind"] == "vectors" and records["laser"]["width"] == encoder.width
    scores = {(r["model"], r["name"]): r for r in document["results"]}
    # Turned round, the numbers of a vector have the same cosines.
    assert scores["laser", f"tatoeba={pairs}"]["accuracy"] == pytest.approx(own["accuracy"], abs=1e-9)
    assert own["accuracy"] < 100
    # It holds no vectors of the graded pairs: these are scored for the model alone.
    assert "laser: graded-pairs is not scored" in capsys.readouterr().err
    assert ("laser", "graded-pairs") not in scores and ("tiny-student", "graded-pairs") in scores


def test_a_text_is_found_whatever_the_file(tmp_path):
    folder = write_vectors(tmp_path / "v", {"a": ["one", "two"], "b": ["two ", "three"]}, lambda texts: np.eye(2))
    vectors = VectorFiles(folder)
    assert vectors.encode(["three", "two", "one", "two"]).tolist() == [[0, 1], [0, 1], [1, 0], [0, 1]]
    assert vectors.encode([]).shape == (0, 2) and vectors.missing(["one", "four", "four"]) == ["four"]
    with pytest.raises(MsdcError, match="1 texts have no vector, the first: 'four'"):
        vectors.encode(["one", "four"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "a.npy").unlink(), "no array with the vectors of a.txt"),
        (lambda f: (f / "a.npy").write_bytes(b"no array"), "no array with the vectors of a.txt"),
        (lambda f: np.save(f / "a.npy", np.array([{}, {}])), "no array with the vectors of a.txt"),
        (lambda f: np.save(f / "a.npy", np.eye(3)), r"float64 \(3, 3\), expected floats \(2, 3\) for a.txt"),
        (lambda f: np.save(f / "a.npy", np.ones((2, 2), int)), r"int64 \(2, 2\), expected floats"),
        (lambda f: np.save(f / "b.npy", np.ones((2, 5))), r"\(2, 5\), expected floats \(2, 2\) for b.txt"),
        (lambda f: [p.unlink() for p in f.glob("*.txt")], "no vectors; expected pairs"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, change, message):
    folder = write_vectors(tmp_path / "v", {"a": ["one", "two"], "b": ["x", "y"]}, lambda texts: np.eye(2))
    change(folder)
    with pytest.raises(InputError, match=message):
        VectorFiles(folder)
