"""Bare folders whose sentence vector is an MLP over [CLS], as SimCSE's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from stock_models import TEXTS, stock_model, write_wordpiece

import msdc
from msdc.distill import distill
from msdc.errors import InputError


def write_bare(folder, family="roberta", names=("pooler.dense",)):
    """A folder as SimCSE publishes it: config, safetensors, tokenizer; no modules.json."""
    folder.mkdir(parents=True)
    model = stock_model(family)
    model.save_pretrained(folder)
    write_wordpiece(folder, roberta=family == "roberta")
    state = {k: v for k, v in load_file(folder / "model.safetensors").items() if not k.startswith("pooler.")}
    generator = torch.Generator().manual_seed(4)
    for name in names:
        state |= {f"{name}.weight": torch.randn(32, 32, generator=generator) * 0.2,
                  f"{name}.bias": torch.randn(32, generator=generator)}  # fmt: skip
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("names", [("pooler.dense",), ("mlp.dense",), ("pooler.dense", "mlp.dense")])
def test_cls_and_mlp_equal_simcse(tmp_path, names):
    from transformers import AutoModel

    folder = write_bare(tmp_path / "simcse", names=names)
    encoder = msdc.load_encoder(folder, pooling="cls", head="mlp")
    model = AutoModel.from_pretrained(folder).eval()
    state = load_file(folder / "model.safetensors")
    name = names[-1]  # the training name goes first
    expected = []
    for ids in encoder.tokenize(TEXTS):
        with torch.no_grad():
            first = model(torch.tensor([ids])).last_hidden_state[0, 0]
            expected.append(torch.tanh(state[f"{name}.weight"] @ first + state[f"{name}.bias"]).numpy())
    np.testing.assert_allclose(encoder.encode(TEXTS), np.stack(expected), atol=1e-5)
    plain = msdc.load_encoder(folder)
    assert plain.fingerprint() != encoder.fingerprint()
    assert np.abs(plain.encode(TEXTS) - encoder.encode(TEXTS)).max() > 0.1


def test_what_a_folder_says_itself_is_not_overruled(tiny_teacher, tiny_student, tmp_path):
    for folder in (tiny_teacher, tiny_student):
        with pytest.raises(InputError, match=r"folders without modules\.json"):
            msdc.load_encoder(folder, pooling="cls")
    with pytest.raises(InputError, match="its weights hold no"):
        msdc.load_encoder(write_bare(tmp_path / "none", names=()), pooling="cls", head="mlp")


def test_a_recipe_teaches_a_cls_and_mlp_student_from_such_a_teacher(tiny_recipe_tree, tmp_path):
    teacher, student = write_bare(tmp_path / "teacher"), write_bare(tmp_path / "student", "bert", names=())
    stage = {"name": "distil", "objective": "contrastive_distillation", "steps": 3, "batch": 8, "max_length": 20}
    named = {"pooling": "cls", "head": "mlp"}
    tree = tiny_recipe_tree | {"teacher": {"model": str(teacher)} | named, "assistant": None, "stages": [stage],
                               "student": {"model": str(student)} | named}  # fmt: skip
    done = distill(tree, tmp_path / "run")
    trained = msdc.load_encoder(done.student)
    config = trained.module.config
    assert (config.pooling, config.dense, config.dense_activation, config.normalize) == ("cls", 32, "tanh", False)
    start = msdc.load_encoder(tmp_path / "run" / "student-start")
    assert not np.allclose(start.encode(TEXTS), trained.encode(TEXTS))
    # The random head follows from the seed.
    distill(tree, tmp_path / "again")
    same = msdc.load_encoder(tmp_path / "again" / "student-start")
    np.testing.assert_array_equal(start.encode(TEXTS), same.encode(TEXTS))
