"""Ids and positions are checked against the model's tables when it is loaded."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from folder_kinds import write_folder
from refusals import one_line
from stock_models import TEXTS, WORDS, write_stock
from tokenizers import Tokenizer

import msdc
from msdc.encoders.stock import positions_of
from msdc.errors import InputError
from msdc.export import export


def test_an_added_token_without_a_row_is_refused(tmp_path):
    folder = write_stock(tmp_path / "model", "bert")
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.add_tokens([f"Impfpass{number}" for number in range(121 - backend.get_vocab_size())])
    backend.save(str(folder / "tokenizer.json"))
    message = one_line(lambda: msdc.load_encoder(folder), InputError)
    assert "the tokenizer has 121 ids" in message
    assert "120 rows" in message
    assert "resize_token_embeddings" in message


@pytest.mark.parametrize("name", ["Roberta", "Luke", "Data2VecText", "MPNet", "Bart", "OPT", "GPT2"])
def test_positions_are_those_of_the_table(name):
    """A text of as many tokens as are counted runs; one of more tokens fails in torch, or is past the table."""
    import transformers as T

    shape = {"vocab_size": 50, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4,
             "intermediate_size": 48, "max_position_embeddings": 34, "pad_token_id": 1, "bos_token_id": 0,
             "eos_token_id": 2}  # fmt: skip
    specific = {"Luke": {"entity_vocab_size": 4, "entity_emb_size": 8},
           "Bart": {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
                    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48},
           "OPT": {"ffn_dim": 48, "word_embed_proj_dim": 32}, "GPT2": {"n_positions": 34}}.get(name, {})  # fmt: skip
    if name == "GPT2":
        shape.pop("max_position_embeddings")
    model = getattr(T, f"{name}Model")(getattr(T, f"{name}Config")(**shape, **specific)).eval()
    first = torch.nn.Module()
    first.model = model
    most = positions_of(first)
    assert most == (32 if name in ("Roberta", "Luke", "Data2VecText", "MPNet") else 34)
    ids = torch.randint(3, 50, (1, most + 1))
    with torch.no_grad():
        model(input_ids=ids[:, :most])
        with pytest.raises((IndexError, RuntimeError, ValueError)):
            model(input_ids=ids)


def test_a_longest_input_beyond_the_positions_is_refused(tmp_path):
    folder = write_stock(tmp_path / "model", "roberta")
    for exporter in ("canonical", "generic"):
        message = one_line(
            lambda exporter=exporter: export(
                str(folder), target="linux", runtime="onnx", exporter=exporter, max_length=99, output=tmp_path / "out"
            ),
            InputError,
        )
        assert "`max_length` 99, but the model has" in message


def _without_special_ids(folder) -> None:
    value = json.loads((folder / "tokenizer.json").read_text())
    value["post_processor"] = None
    (folder / "tokenizer.json").write_text(json.dumps(value))


def test_an_empty_text_without_special_ids_is_zero_alone_and_in_a_list(tmp_path):
    folder = write_stock(tmp_path / "model", "bert", normalize=False)
    _without_special_ids(folder)
    encoder = msdc.load_encoder(folder)
    inside, alone = encoder.encode([TEXTS[0], ""]), encoder.encode([""])
    assert inside[0].any()
    assert not inside[1].any()
    assert not alone.any()
    export(str(folder), target="linux", runtime="onnx", precision="fp32", output=tmp_path / "out", exporter="generic")
    np.testing.assert_allclose(msdc.load_bundle(tmp_path / "out").encode([TEXTS[0], ""]), inside, atol=1e-4)


def test_a_tokenizer_without_a_pad_token_is_exported(tmp_path):
    folder = write_stock(tmp_path / "model", "bert")
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    settings.pop("pad_token")
    file.write_text(json.dumps(settings))
    expected = msdc.load_encoder(folder).encode(TEXTS)
    export(str(folder), target="linux", runtime="onnx", precision="fp32", output=tmp_path / "out", exporter="generic")
    np.testing.assert_allclose(msdc.load_bundle(tmp_path / "out").encode(TEXTS), expected, atol=1e-4)


def test_a_static_table_in_half_precision_is_exported_in_float(tmp_path):
    from safetensors.torch import load_file, save_file

    folder = write_folder(tmp_path, "model2vec")
    tensors = {name: value.half() for name, value in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors")
    export(str(folder), target="linux", runtime="onnx", precision="fp32", output=tmp_path / "out")
    rows = tensors["embeddings"].float()
    ids = [WORDS.index("the") + 5, WORDS.index("dog") + 5]
    expected = torch.nn.functional.normalize(rows[ids].mean(0), dim=0).numpy()
    np.testing.assert_allclose(msdc.load_bundle(tmp_path / "out").encode("the dog"), expected, atol=1e-5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_encodes(tmp_path):
    """PyTorch's pool of threads exists in the parent alone: gunicorn --preload, multiprocessing's Pool."""
    folder = write_stock(tmp_path / "model", "bert")
    code = (
        "import os, sys, torch, numpy as np, msdc\n"
        "torch.set_num_threads(4)\n"
        "encoder = msdc.load_encoder(sys.argv[1])\n"
        "texts = ['der Hund lief zum Haus', 'a dog ran'] * 400\n"
        "torch.randn(512, 512) @ torch.randn(512, 512)\n"
        "expected = encoder.encode(texts)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os._exit(0 if np.allclose(encoder.encode(texts), expected, atol=1e-5) else 1)\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "4"}
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-500:]
