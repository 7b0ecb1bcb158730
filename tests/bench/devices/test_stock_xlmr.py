"""The paper's student: all four stages on a stock XLM-R, then text in and vector out of the exported bundle."""

from __future__ import annotations

import numpy as np
import pytest
from xlmr_folder import write_xlmr

import msdc
from msdc.bench.devices import open_devices
from msdc.bench.devices.base import run_devices
from msdc.bench.measure import BenchSettings, parity_failures
from msdc.compress.texts import quickstart_texts
from msdc.distill import distill
from msdc.export import export
from msdc.scores import cosine_rows
from msdc.text.tokenizer import PieceTokenizer

TEXTS = ["Wo ist der Bahnhof?", "  two  spaces ", "El gato duerme.", "x"]


@pytest.fixture
def xlmr(tmp_path):
    return write_xlmr(tmp_path / "xlm-roberta-mini", quickstart_texts())


@pytest.fixture
def student(tiny_recipe_tree, xlmr, tmp_path):
    """The student of the four stages."""
    return distill(tiny_recipe_tree | {"assistant": str(xlmr)}, tmp_path / "run").student


@pytest.fixture
def bundle(student, tmp_path):
    return export(str(student), target="android", precision="fp32", out=tmp_path / "bundle")[0]


def test_stock_xlmr_keeps_its_sentencepiece_model_under_its_own_ids(xlmr):
    from sentence_transformers import SentenceTransformer

    encoder, theirs = msdc.load_encoder(xlmr), SentenceTransformer(str(xlmr), device="cpu")
    assert isinstance(encoder.tokenizer, PieceTokenizer) and encoder.max_length == 64
    texts = [*quickstart_texts(limit=300), *TEXTS]
    assert encoder.tokenize(texts) == theirs.tokenizer(texts, truncation=True)["input_ids"]
    assert float(np.abs(encoder.encode(texts) - theirs.encode(texts)).max()) < 1e-5


def test_four_stages_then_a_module_that_takes_text(student, bundle, xlmr):
    teacher_ids = msdc.load_encoder(xlmr)
    encoder, exported = msdc.load_encoder(student), msdc.load_bundle(bundle)
    assert exported.manifest.tokenizer.kind == "sentencepiece" and (bundle / "android/build.gradle.kts").is_file()
    assert encoder.tokenize(TEXTS) == exported.tokenize(TEXTS) == teacher_ids.tokenize(TEXTS)
    assert float(cosine_rows(encoder.encode(TEXTS), exported.encode(TEXTS)).min()) > 0.99999
    # Text in, vector out, on the native runner.
    assert measured(bundle, "host").harness != "python"


def measured(bundle, device):
    settings = BenchSettings(lengths=(8,), runs=2, warmup=1, runtimes=("executorch",))
    (found,), failures = run_devices(open_devices(device), bundle, settings)
    assert failures == [] and parity_failures([found]) == []
    assert found.parity.ids_equal and found.parity.min_cosine > 0.9999
    return found


@pytest.mark.slow
def test_text_in_on_the_emulated_phone(bundle, emulator_image):
    assert measured(bundle, "emulator:a76").device.emulated
