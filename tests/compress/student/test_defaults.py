"""What a folder says of encoding stays with what is made of it: prompts, default prompt, width, lower-casing."""

from __future__ import annotations

import json

import numpy as np
import pytest
from folder_kinds import PROMPTS, write_folder
from stock_models import TEXTS

import msdc
from msdc.compress import cut_student, quantize, trim
from msdc.scores import cosine_rows

SAMPLE = [*TEXTS, "The BIG Dog"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A BERT with a default prompt, vectors cut to 20 of 32 numbers."""
    made = write_folder(tmp_path_factory.mktemp("prompted"), "default prompt")
    path = made / "config_sentence_transformers.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "truncate_dim": 20}))
    return made


@pytest.mark.parametrize(
    ("work", "closest"),
    [
        ([(cut_student, {"bottleneck": 32})], 0.9999),
        ([(cut_student, {"materialise": True})], 0.9999),
        ([(trim, {"size": 60})], 0.9),
        ([(quantize, {}), (trim, {"size": 60})], 0.9),
    ],
)
def test_compressed_folders_encode_with_the_prompts(folder, tmp_path, work, closest):
    before, out = msdc.load_encoder(folder), folder
    for number, (verb, options) in enumerate(work):
        source, out = out, tmp_path / str(number)
        verb(str(source), output=out, **options)
    after = msdc.load_encoder(out)
    assert after.defaults == before.defaults and {**PROMPTS, **before.defaults.prompts} == before.defaults.prompts
    # Words that trimming dropped are tokenized differently; what is left of the vocabulary is not.
    rows = before.tokenize(["the dog: " + text for text in SAMPLE]), after.tokenize(["the dog: " + t for t in SAMPLE])
    same = [text for text, old, new in zip(SAMPLE, *rows, strict=True) if len(old) == len(new)]
    assert len(same) > 2
    for settings in ({}, {"prompt_name": "passage"}, {"prompt": ""}, {"truncate_dim": 9}):
        old_ND, new_ND = before.encode(same, **settings), after.encode(same, **settings)
        assert old_ND.shape == new_ND.shape
        assert cosine_rows(old_ND, new_ND).mean() > closest, settings
    assert np.abs(after.encode(SAMPLE) - after.encode(SAMPLE, prompt="")).max() > 1e-3


def test_a_materialised_folder_has_its_prompts_in_sentence_transformers(folder, tmp_path):
    from sentence_transformers import SentenceTransformer

    cut_student(str(folder), output=tmp_path / "out", materialise=True)
    ours, theirs = msdc.load_encoder(tmp_path / "out"), SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert np.abs(ours.encode(SAMPLE) - theirs.encode(SAMPLE)).max() < 1e-5


def test_trimming_keeps_the_lower_casing_that_only_the_settings_state(tmp_path):
    folder = write_folder(tmp_path / "cased", "do_lower_case")
    trim(str(folder), output=tmp_path / "out", size=60)
    after = msdc.load_encoder(tmp_path / "out")
    assert np.abs(after.encode(["The BIG Dog"]) - after.encode(["the big dog"])).max() == 0.0
    assert after.tokenize(["The BIG Dog"]) == after.tokenize(["the big dog"])
