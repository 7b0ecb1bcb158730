"""The finished student opens in plain sentence-transformers, and its card says what hubs read."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import yaml

import msdc
from msdc.bench.quickstart import weight_bytes
from msdc.distill import distill
from msdc.distill.catalog import parse_recipe
from msdc.distill.model_card import license_of

TEXTS = ["A cat sleeps.", "Wo ist der Bahnhof?", ""]


@pytest.fixture
def finished(tiny_tree, tmp_path):
    graded = tmp_path / "small-sts.tsv"
    graded.write_text("4.0\tA cat.\tA pet.\n1.0\tA cat.\tThe sky is blue today.\n2.5\tTea.\tCoffee.\n")
    stage = tiny_tree["stages"][3] | {"steps": 4}
    tree = {**tiny_tree, "stages": [stage], "report": [str(graded)], "licenses": ["CC-BY-4.0: sentences"]}
    return distill(tree, tmp_path / "run").student


def test_plain_sentence_transformers_gives_the_same_vectors(finished, tmp_path):
    """In a process where this package cannot be imported."""
    code = (
        "import sys\nsys.modules['msdc'] = None\nimport numpy as np\n"
        "from sentence_transformers import SentenceTransformer\n"
        f"model = SentenceTransformer({str(finished)!r}, device='cpu')\n"
        f"np.save({str(tmp_path / 'v.npy')!r}, model.encode({TEXTS!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-800:]
    encoder = msdc.load_encoder(finished)
    assert np.abs(np.load(tmp_path / "v.npy") - encoder.encode(TEXTS)).max() < 1e-5
    # Reports state the student's bytes, without those of its twin.
    assert weight_bytes(finished) == (finished / "model.safetensors").stat().st_size
    # This package reads the student itself: its bottleneck and its recurring unit.
    assert encoder.module.config.repeats == 2 and encoder.module.config.bottleneck == 8


def test_the_card_has_what_hubs_read(finished):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    card = huggingface_hub.ModelCard.load(finished / "README.md")
    data = card.data
    assert data.language == ["en", "de", "es"] and data.license == "cc-by-4.0"
    assert data.library_name == "sentence-transformers" and data.pipeline_tag == "sentence-similarity"
    results = {(one.dataset_name, one.dataset_config): one.metric_value for one in data.eval_results}
    numbers = yaml.safe_load((finished.parent / "result.json").read_text())
    assert results["small-sts", None] == round(numbers["report"]["small-sts"], 2)
    for code in ("de", "es"):
        accuracy = numbers["stages"]["four"][f"accuracy_{code}"]
        assert results["held-out pairs of the training text", code] == round(accuracy, 2)
    assert "| four | student | teacher | multilingual_contrastive + multilingual_mse | 4 steps | 8 | 0.001" in card.text
    assert "parallel.tsv (de, es)" in card.text and str(finished.parent) not in card.content


def test_licenses_that_agree_are_named():
    tree = {"name": "r", "corpora": [{"path": "x"}], "stages": [{"name": "a", "objective": "kd"}]}
    for lines, expected in (
        (["CC-BY-4.0", "text B: cc-by-4.0"], "cc-by-4.0"),
        (["CC-BY-4.0", "Apache-2.0"], "other"),
        (["unknown"], "other"),
        ([], "other"),
    ):
        assert license_of(parse_recipe({**tree, "licenses": lines}, "r")) == expected


def test_without_a_twin_only_this_package_opens_it(tiny_tree, tmp_path):
    stage = tiny_tree["stages"][3] | {"steps": 2}
    student = distill({**tiny_tree, "stages": [stage], "stock_twin": False}, tmp_path / "run").student
    assert not (student / "stock").exists() and "SentenceTransformer" not in (student / "README.md").read_text()
    assert msdc.load_encoder(student).encode(["x"]).shape[0] == 1
