"""Every gate of the compress verbs encodes with each prompt, and a prompt that fills the input is refused."""

import json

import numpy as np
import pytest
import torch
from folder_kinds import write_folder
from refusals import one_line
from stock_models import TEXTS, write_stock

import msdc
from msdc.compress import code_table, cut_student, quantize, trim
from msdc.compress.gate import require_same, require_written
from msdc.compress.quantization.search import CALIBRATION_TEXTS, Calibration
from msdc.compress.student.plan import plan_for, read_plan
from msdc.compress.student.stock import to_student
from msdc.compress.texts import quickstart_texts
from msdc.encoders.encoder import Encoder, prompt_room
from msdc.encoders.folder import DEFAULTS_FILE, OTHER_TEXTS, EncodeDefaults, prompted_texts, with_prompt
from msdc.errors import GateError, InputError

LONG = " ".join(["the dog"] * 11)


def prompted(folder, prompts, default=None):
    (folder / DEFAULTS_FILE).write_text(json.dumps({"prompts": prompts, "default_prompt_name": default}))
    return folder


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = write_stock(tmp_path_factory.mktemp("gate") / "model", "bert", normalize=False)
    return msdc.load_encoder(prompted(folder, {"query": "", "rare": "[MASK] "}))


def damaged(source) -> Encoder:
    """The student of `source` with another row for the token of the named prompt, which no other text has."""
    student = to_student(source)
    rows = set(source.tokenize(["[MASK]"])[0]) - {i for ids in source.tokenize(TEXTS) for i in ids}
    assert len(rows) == 1
    with torch.no_grad():
        student.embedding.table.weight[sorted(rows)] *= -9
    return Encoder(student, source.tokenizer, source.max_length, "student", None, source.defaults)


def test_a_named_prompt_alone_fails_the_gates(source):
    student = damaged(source)
    assert np.abs(source.encode(TEXTS[:3]) - student.encode(TEXTS[:3])).max() < 1e-4
    assert " with prompt 'rare' (lowest cosine" in one_line(lambda: require_same(source, student), GateError)
    intact = Encoder(to_student(source), source.tokenizer, source.max_length, "student", None, source.defaults)
    message = one_line(lambda: require_written(source, intact, student, TEXTS[:3]), GateError)
    assert "with prompt 'rare', the student in memory" in message


def test_all_prompts_get_texts():
    defaults = EncodeDefaults({"a": "a: ", "b": "b: ", "again": "a: ", "none": ""}, "b")
    texts = [f"text {number}" for number in range(20)]
    (default, every), *others = prompted_texts(defaults, texts)
    assert (default, every) == ("b: ", texts)
    assert [prompt for prompt, _ in others] == ["a: ", ""]
    assert all(len(few) == OTHER_TEXTS == len(set(few)) for _, few in others)
    assert prompted_texts(EncodeDefaults(), texts) == [("", texts)]
    assert prompted_texts(defaults, texts[:2])[1] == ("a: ", texts[:2])
    assert defaults.label("b: ") == "prompt 'b'"
    assert defaults.label("") == ""


@pytest.mark.parametrize("default", ["long", None])
def test_a_prompt_that_fills_the_input_is_refused(tmp_path, default):
    """A named prompt too: with it every text gets one vector."""
    folder = prompted(write_stock(tmp_path / "model", "bert"), {"long": LONG, "short": "the "}, default)
    encoder = msdc.load_encoder(folder)
    assert len({row.tobytes() for row in encoder.encode(["a", "the house"], prompt=LONG)}) == 1
    for verb in (lambda out: trim(str(folder), output=out, languages=["en"]),
                 lambda out: quantize(str(folder), output=out),
                 lambda out: code_table(str(folder), output=out, base_rows=40),
                 lambda out: cut_student(str(folder), output=out, unit=1)):  # fmt: skip
        message = one_line(lambda verb=verb: verb(tmp_path / "out"), InputError)
        assert "prompt 'long'" in message
        assert "24 tokens with the special ones, and an input 24" in message
        assert not (tmp_path / "out").exists()


def test_a_shorter_input_is_held_to_the_prompts(tmp_path, capsys):
    folder = prompted(write_stock(tmp_path / "model", "bert"), {"query": "the dog the dog "}, "query")
    message = one_line(lambda: cut_student(str(folder), output=tmp_path / "out", max_length=6), InputError)
    assert "prompt 'query'" in message
    assert "a larger `max_length`" in message
    cut_student(str(folder), output=tmp_path / "out", max_length=9)
    assert "prompt 'query' 'the dog the dog ' leaves 3 of 9 tokens for text" in capsys.readouterr().err
    capsys.readouterr()
    cut_student(write_folder(tmp_path / "roomy", "no normalisation"), output=tmp_path / "plain", unit=1)
    assert "tokens for text" not in capsys.readouterr().err


def test_room_is_what_the_longest_text_may_have(source):
    prompt = "the dog "
    room = prompt_room(source.tokenizer, prompt, source.max_length)
    text = " ".join(["house"] * room)
    assert source.count_truncated([text], prompt=prompt) == 0
    assert source.count_truncated([f"{text} house"], prompt=prompt) == 1
    assert prompt_room(source.tokenizer, "", source.max_length) == source.max_length - 2


def test_quantize_measures_every_prompt_and_counts_the_worst(tmp_path):
    prompts = {"wide": "[MASK] " * 14, "short": "the "}
    folder = prompted(write_stock(tmp_path / "model", "bert", hidden_size=32), prompts)
    encoder, student = msdc.load_encoder(folder), to_student(msdc.load_encoder(folder))
    texts = quickstart_texts()
    texts = [texts[int(index)] for index in np.linspace(0, len(texts) - 1, CALIBRATION_TEXTS)]

    def losses(weights):
        return [
            Calibration(student, {"": encoder.tokenizer.encode(with_prompt(prompt, few), 24)}).cost(weights).loss
            for prompt, few in ((p, texts if not p else texts_of_other(texts)) for p in ("", *prompts.values()))
        ]

    def texts_of_other(texts):
        return [texts[int(index)] for index in np.linspace(0, len(texts) - 1, CALIBRATION_TEXTS // len(prompts))]

    report = quantize(str(folder), output=tmp_path / "int4", precision="int8-embed4")
    measured = losses(plan_for(student, "int8-embed4").weights)
    assert report.loss == pytest.approx(max(measured), abs=2e-3)
    # Between the worst prompt and no prompt: the search has to raise a weight for the prompt alone.
    most = (max(measured) + measured[0]) / 2
    assert max(measured) > measured[0]
    report = quantize(str(folder), output=tmp_path / "auto", precision="auto", max_loss=most)
    assert max(losses(read_plan(tmp_path / "auto").weights)) <= most + 1e-3


def test_calibration_texts_that_a_prompt_makes_equal_are_refused(source):
    rows = source.tokenizer.encode(TEXTS[:8] if len(TEXTS) >= 8 else [f"dog {n}" for n in "abcdefgh"], 24)
    line = one_line(lambda: Calibration(to_student(source), {"": rows, " after prompt 'x'": rows[:1] * 8}), InputError)
    assert line == "the calibration texts are all equal after prompt 'x'; use varied sentences"
