"""`msdc export --sentence-transformers`: a student as a folder of sentence-transformers' own classes."""

import json
import re

import numpy as np
import pytest
import tiny_models
from sentence_transformers import SentenceTransformer
from stock_models import write_stock

import msdc
from msdc import cli
from msdc.compress.student.io import save_student
from msdc.encoders.folder import EncodeDefaults
from msdc.errors import GateError, InputError
from msdc.export.exporters import export_sentence_transformers
from msdc.export.golden import golden_texts


def command(capsys, *arguments) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        cli.main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


@pytest.mark.parametrize("shape", ["word", "coded", "cls, dense"])
def test_the_folder_opens_without_msdc_and_gives_the_same_vectors(shape, tmp_path):
    student = tiny_models.student(**tiny_models.SHAPES[shape])
    defaults = EncodeDefaults(prompts={"query": "Where? "}, default_prompt="query", truncate_dim=12)
    source = save_student(student, tiny_models.tokenizer().path, tmp_path / "own", defaults=defaults)
    folder = export_sentence_transformers(source, tmp_path / "standard")
    modules = json.loads((folder / "modules.json").read_text("utf-8"))
    assert all(module["type"].startswith("sentence_transformers.") for module in modules)
    model, encoder = SentenceTransformer(str(folder)), msdc.load_encoder(source)
    assert np.allclose(model.encode(golden_texts()), encoder.encode(golden_texts()), atol=2e-6)
    assert model.prompts["query"] == "Where? "
    assert model.get_sentence_embedding_dimension() == 12
    assert np.allclose(msdc.load_encoder(folder).encode(["a text"]), encoder.encode(["a text"]), atol=2e-6)


def test_the_command_states_the_size_and_keeps_what_is_there(capsys, tmp_path):
    out = tmp_path / "standard"
    arguments = ["export", tiny_models.student_folder(), "--sentence-transformers", "-o", out]
    code, printed, _ = command(capsys, *arguments)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    assert code == 0
    assert re.match(rf"{size:,} bytes, of which weights [\d,]+\n{out}\n", printed)
    assert command(capsys, *arguments)[0] == 2
    code, printed, _ = command(capsys, *arguments, "--force", "--json")
    assert code == 0
    assert json.loads(printed)["bytes"] == size


def test_what_cannot_be_such_a_folder_is_one_line(capsys, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="a bundle holds programs, not weights"):
        export_sentence_transformers(tiny_models.bundle(), tmp_path / "out")
    stock = write_stock(tmp_path / "stock", "bert")
    with pytest.raises(InputError, match="its classes are sentence-transformers' own"):
        export_sentence_transformers(stock, tmp_path / "out")
    words = ["export", tiny_models.student_folder(), "--sentence-transformers", "--target=web", "--precision=int8"]
    code, _, error = command(capsys, *words)
    assert code == 2
    assert "writes no bundle: omit --target, --precision" in error
    code, _, error = command(capsys, "export", tiny_models.student_folder())
    assert code == 2
    assert "Missing option '--target'" in error
    # Other weights than the student's, as a fault in writing them would leave.
    another = tiny_models.student(seed=9, bottleneck=None, repeats=1)
    monkeypatch.setattr("msdc.compress.student.stock.materialise", lambda student: another)
    with pytest.raises(GateError, match="computes other vectors from standard classes"):
        export_sentence_transformers(tiny_models.student_folder(), tmp_path / "out")
    assert not (tmp_path / "out").exists()
