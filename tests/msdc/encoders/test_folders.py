"""What a model folder says counts: our vectors are those of `SentenceTransformer(path).encode(texts)`."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from folder_kinds import KINDS, MODES, PROMPTS, write_folder
from stock_models import TEXTS

import msdc
from msdc.errors import InputError

SAMPLE = [*TEXTS, "", "  spaces  and\ttabs ", "The BIG Dog", "der Hund " * 9]


@pytest.fixture(scope="module")
def folder(request, tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("folder"), request.param)


def oracle(folder):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


def difference(ours, theirs) -> float:
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max())


@pytest.mark.parametrize("folder", KINDS, indirect=True)
def test_vectors_equal_sentence_transformers(folder):
    ours, theirs = msdc.load_encoder(folder), oracle(folder)
    expected = theirs.encode(SAMPLE)
    # Not a model that gives everything the same vector.
    assert np.abs(expected - expected[0]).max() > 1e-3
    assert difference(ours.encode(SAMPLE), expected) < 1e-5 and ours.width == expected.shape[1]
    for settings in ({"prompt": "the cat: "}, {"prompt": ""}, {"truncate_dim": 7}):
        assert difference(ours.encode(SAMPLE, **settings), theirs.encode(SAMPLE, **settings)) < 1e-5, settings
    for name in theirs.prompts if "plain" in theirs.prompts else ():
        assert difference(ours.encode(SAMPLE, prompt_name=name), theirs.encode(SAMPLE, prompt_name=name)) < 1e-5, name


@pytest.mark.parametrize("folder", ["default prompt", "prompt not pooled, mean"], indirect=True)
def test_prompts_change_the_vector(folder):
    encoder = msdc.load_encoder(folder)
    assert encoder.defaults.prompts == {**encoder.defaults.prompts, **PROMPTS}
    default, named = encoder.encode(SAMPLE), encoder.encode(SAMPLE, prompt_name="query")
    assert np.array_equal(default, named)
    assert difference(default, encoder.encode(SAMPLE, prompt="")) > 1e-3
    with pytest.raises(InputError, match=r"no prompt 'qery'; its prompts: .*passage"):
        encoder.encode(SAMPLE, prompt_name="qery")
    with pytest.raises(InputError, match="not both"):
        encoder.encode(SAMPLE, prompt_name="query", prompt="a")
    with pytest.raises(InputError, match="truncate_dim 64"):
        encoder.encode(SAMPLE, truncate_dim=64)
    with pytest.raises(TypeError, match="normalise"):
        encoder.encode(SAMPLE, normalise=True)


def test_every_pooling_mode_is_covered():
    from sentence_transformers.sentence_transformer.modules import Pooling

    assert set(MODES) == set(Pooling.POOLING_MODES)


def _damage(folder, tmp_path, change):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    change(copy)
    with pytest.raises(InputError) as refused:
        msdc.load_encoder(copy)
    message = str(refused.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("folder", ["two dense"], indirect=True)
def test_what_is_not_supported_is_refused_in_one_line(folder, tmp_path):
    def edit(name, **changes):
        def work(copy):
            value = json.loads((copy / name).read_text())
            (copy / name).write_text(json.dumps({**value, **changes}))

        return work

    def module(position, kind):
        def work(copy):
            value = json.loads((copy / "modules.json").read_text())
            value[position]["type"] = kind
            (copy / "modules.json").write_text(json.dumps(value))

        return work

    cases = {
        "not supported": module(1, "sentence_transformers.models.LSTM"),
        "module 'evil.Pooling'": module(1, "evil.Pooling"),
        "takes no text": module(0, "sentence_transformers.models.Normalize"),
        "os.system": edit("2_Dense/config.json", activation_function="os.system"),
        "no model.safetensors": lambda copy: (copy / "2_Dense/model.safetensors").unlink(),
        "damaged": lambda copy: (copy / "2_Dense/model.safetensors").write_bytes(b"\x80\x04"),
        "tokenizer_name_or_path": edit("sentence_bert_config.json", tokenizer_name_or_path="/elsewhere"),
        "Invalid pooling mode": edit("1_Pooling/config.json", pooling_mode="median"),
        "default_prompt_name 'absent'": edit("config_sentence_transformers.json", default_prompt_name="absent"),
    }
    for number, (expected, change) in enumerate(cases.items()):
        assert expected in _damage(folder, tmp_path / str(number), change)
