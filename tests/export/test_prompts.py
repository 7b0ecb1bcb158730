"""Gates of an export encode with every prompt of the model; a prompt that fills the input is refused."""

import json

import numpy as np
import pytest
import tiny_models as tiny
from refusals import one_line
from stock_models import write_stock

import msdc
from msdc.compress.student.io import save_student
from msdc.encoders.folder import DEFAULTS_FILE, EncodeDefaults
from msdc.errors import GateError, InputError
from msdc.export import export
from msdc.export.exporters import export_sentence_transformers
from msdc.export.golden import golden_texts, read_golden
from msdc.export.runtimes import OnnxRuntime

PROMPTS = {"query": "the dog: ", "rare": "[MASK] "}


def model(folder, prompts=PROMPTS, default="query"):
    write_stock(folder, "bert")
    (folder / DEFAULTS_FILE).write_text(json.dumps({"prompts": prompts, "default_prompt_name": default}))
    return str(folder)


@pytest.mark.parametrize("exporter", ["canonical", "generic"])
def test_golden_vectors_are_of_the_default_prompt_and_parity_of_all(tmp_path, exporter):
    manifest = export(model(tmp_path / "model"), target="linux", runtime="onnx", precision="fp32", exporter=exporter,
                      output=tmp_path / "out").manifest  # fmt: skip
    golden = read_golden(tmp_path / "out")
    assert golden["texts"] == [f"the dog: {text}" for text in golden_texts()]
    # After the other prompt, and after none, six texts each.
    assert manifest.parity["onnx"].texts == len(golden["texts"]) + 12
    bundle, encoder = msdc.load_bundle(tmp_path / "out"), msdc.load_encoder(tmp_path / "model")
    for prompt in ("", *PROMPTS.values()):
        expected_D = encoder.encode("a dog", prompt=prompt)
        np.testing.assert_allclose(bundle.encode("a dog", prompt=prompt), expected_D, atol=1e-4)


def test_a_program_that_is_wrong_after_a_named_prompt_alone_is_refused(tmp_path, monkeypatch):
    """The mean over all texts would hide it."""
    folder = model(tmp_path / "model")
    encoder = msdc.load_encoder(folder)
    rare = set(encoder.tokenize(["[MASK] "])[0]) - set(encoder.tokenize(["the dog: a house"])[0])
    write = OnnxRuntime.write

    def written(*arguments):
        program = write(*arguments)
        run = program.runner.run

        def wrong(rows, skip=0):
            vectors_ND = run(rows, skip)
            changed = [rare < set(row[:2]) or rare == set(row[1:2]) for row in rows]
            vectors_ND[changed] = np.roll(vectors_ND[changed], 1, axis=1)
            return vectors_ND

        program.runner.run = wrong
        return program

    monkeypatch.setattr(OnnxRuntime, "write", written)
    message = one_line(lambda: export(folder, target="linux", runtime="onnx", output=tmp_path / "out"), GateError)
    assert "prompt 'rare': mean cosine" in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("default", ["query", None])
def test_a_prompt_that_fills_the_input_is_refused(tmp_path, default):
    folder = model(tmp_path / "model", default=default)
    message = one_line(
        lambda: export(folder, target="linux", runtime="onnx", max_length=4, output=tmp_path / "out"), InputError
    )
    assert "prompt 'query' 'the dog: ' has 5 tokens with the special ones, and an input 4" in message
    assert not (tmp_path / "out").exists()


def test_little_room_is_a_warning(tmp_path, capsys):
    export(model(tmp_path / "model"), target="linux", runtime="onnx", max_length=12, output=tmp_path / "out")
    assert "prompt 'query' 'the dog: ' leaves 7 of 12 tokens for text" in capsys.readouterr().err


def test_a_folder_of_standard_classes_is_compared_after_every_prompt(tmp_path):
    defaults = EncodeDefaults({"query": "Where? ", "filled": "Where is the train? " * 30}, None)
    folder = save_student(tiny.student(), tiny.tokenizer().path, tmp_path / "student", defaults=defaults)
    assert "prompt 'filled'" in one_line(lambda: export_sentence_transformers(folder, tmp_path / "out"), InputError)
