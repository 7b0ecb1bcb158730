"""Weights that `torch.save` wrote, in folders without safetensors: the same vectors, and nothing of a pickle is run."""

import json
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch
from hub import hub
from refusals import one_line
from safetensors.torch import load_file
from stock_models import TEXTS, write_stock

import msdc
from msdc.encoders import stock as stock_encoders
from msdc.encoders.source import ModelSource
from msdc.errors import InputError
from msdc.export import export


def pickled(folder, *, parts=1, write=torch.save):
    """The folder's weights, those of its dense layer too, as files of `torch.save`."""
    for file in folder.rglob("model.safetensors"):
        tensors = load_file(file)
        if parts == 1 or file.parent != folder:
            write(tensors, file.parent / "pytorch_model.bin")
        else:
            names = {name: f"pytorch_model-0000{1 + n % 2}-of-00002.bin" for n, name in enumerate(sorted(tensors))}
            for part in set(names.values()):
                write({name: value for name, value in tensors.items() if names[name] == part}, folder / part)
            (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": names}))
        file.unlink()
    return folder


def model(folder):
    return write_stock(folder, "bert", dense=(24, True, "activation.Tanh"))


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("zipped", [True, False])
def test_the_vectors_are_those_of_safetensors(tmp_path, parts, zipped):
    expected = msdc.load_encoder(model(tmp_path / "safe")).encode(TEXTS)

    def write(state, file):
        torch.save(state, file, _use_new_zipfile_serialization=zipped)

    folder = pickled(model(tmp_path / "pickled"), parts=parts, write=write)
    encoder = msdc.load_encoder(folder)
    assert np.array_equal(encoder.encode(TEXTS), expected)
    # The identity is of the bytes that were read.
    state = torch.load(folder / "2_Dense/pytorch_model.bin", weights_only=True)
    torch.save({name: value + 0.1 for name, value in state.items()}, folder / "2_Dense/pytorch_model.bin")
    assert msdc.load_encoder(folder).fingerprint() != encoder.fingerprint()


def test_safetensors_come_first(tmp_path):
    folder = model(tmp_path / "model")
    encoder = msdc.load_encoder(folder)
    (folder / "pytorch_model.bin").write_bytes(b"not read")
    again = msdc.load_encoder(folder)
    assert (again.fingerprint(), again.encode(TEXTS).tolist()) == (
        encoder.fingerprint(),
        encoder.encode(TEXTS).tolist(),
    )


def test_it_is_exported(tmp_path):
    folder = pickled(model(tmp_path / "model"))
    export(folder, target="linux", out=tmp_path / "bundle", runtime="onnx", precision="fp32")
    vectors = msdc.load_bundle(tmp_path / "bundle").encode(TEXTS)
    assert (vectors * msdc.load_encoder(folder).encode(TEXTS)).sum(1).min() > 0.9999


def test_from_the_hub(tmp_path):
    folder = pickled(model(tmp_path / "model"))
    (folder / "training_args.bin").write_bytes(b"x")
    code = "import sys, json, msdc; print(json.dumps(msdc.load_encoder('someone/old').encode(['a cat']).tolist()))"
    environment = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}
    with hub("someone/old", folder) as (address, asked):
        env = os.environ | environment | {"HF_ENDPOINT": address}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert np.allclose(json.loads(done.stdout), msdc.load_encoder(folder).encode(["a cat"]), atol=1e-6)
    assert not any("training_args" in path for path in asked)


class Touch:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_code_in_a_pickle_is_not_run(tmp_path):
    folder = pickled(model(tmp_path / "model"))
    torch.save({"x": Touch(tmp_path / "ran")}, folder / "pytorch_model.bin")
    line = one_line(lambda: msdc.load_encoder(folder), InputError)
    assert "pytorch_model.bin: its pickle needs more than weights (posix.system): load the model where" in line
    assert "weights_only" not in line
    assert not (tmp_path / "ran").exists()


CONTENTS = {
    "no pickle": (lambda state: b"x" * 500, "save_pretrained"),
    "nothing": (lambda state: b"", "damaged or not a file of `torch.save`"),
    "a list": (lambda state: [1, 2], "has a list, not a state dict"),
    "a training state": (lambda state: {"state_dict": state, "epoch": 3}, "state_dict is no plain tensor"),
    "a sparse tensor": (lambda state: {"x": torch.eye(3).to_sparse()}, "x is no plain tensor"),
    "few bytes for many": (lambda state: {"x": torch.zeros(1).expand(10**12)}, "x is no plain tensor"),
    "too few tensors": (lambda state: dict(list(state.items())[1:]), "missing tensors: 1"),
}


@pytest.mark.parametrize("content", CONTENTS)
def test_what_is_no_state_dict_is_one_line(tmp_path, content):
    make, words = CONTENTS[content]
    state = load_file(model(tmp_path / "model") / "model.safetensors")
    folder = pickled(tmp_path / "model")
    value = make(state)
    if isinstance(value, bytes):
        (folder / "pytorch_model.bin").write_bytes(value)
    else:
        torch.save(value, folder / "pytorch_model.bin")
    assert words in one_line(lambda: msdc.load_encoder(folder), InputError)


def test_a_packed_file_is_measured_before_it_is_unpacked(tmp_path, monkeypatch):
    folder = pickled(model(tmp_path / "model"))
    file = folder / "pytorch_model.bin"
    torch.save({"x": torch.zeros(5_000_000)}, file)
    with zipfile.ZipFile(file) as stored, zipfile.ZipFile(tmp_path / "packed", "w", zipfile.ZIP_DEFLATED) as packed:
        for member in stored.infolist():
            packed.writestr(member.filename, stored.read(member))
    (tmp_path / "packed").rename(file)
    monkeypatch.setattr(stock_encoders, "memory_mib", lambda: 1.0)
    assert file.stat().st_size < 1_000_000
    line = one_line(lambda: stock_encoders.read_tensors(ModelSource(folder), folder), InputError)
    assert "bytes when unpacked, larger than the memory" in line
