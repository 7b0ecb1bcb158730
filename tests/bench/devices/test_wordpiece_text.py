"""all-MiniLM-L6-v2 on the emulated phone: WordPiece in C++, both engines, STS2017 on the device's vectors."""

from __future__ import annotations

import pytest
from places import data_folder

from msdc.bench.devices.emulator import EmulatorDevice
from msdc.bench.measure import BenchSettings, collect, parity_failures
from msdc.export import export
from msdc.export.bundle import load_bundle

MODEL = "all-MiniLM-L6-v2"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    out = tmp_path_factory.mktemp("minilm") / "bundle"
    return export(MODEL, target="android", runtime="both", precision="int8", out=out)[0]


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["executorch", "onnx"])
def test_text_to_vector_on_the_phone(bundle, runtime, emulator_image):
    data = data_folder()
    if data is None:
        pytest.skip("STS2017 needs a data folder (MSDC_DATA)")
    settings = BenchSettings(
        runtimes=(runtime,), lengths=(8,), runs=1, warmup=0, tasks=("sts17/en-en",), data=data, timeout_s=7200
    )
    (run,) = EmulatorDevice("a76").run(bundle, settings)
    assert run.harness != "python" and run.device.emulated and parity_failures([run]) == []
    golden = run.parity
    assert golden.texts >= 100 and golden.ids_equal and golden.mean_cosine >= 0.999
    (found,), (here,) = run.accuracy, collect(settings).score(load_bundle(bundle, runtime=runtime))
    assert found.pairs == 250 and abs(found.spearman - here.spearman) < 0.3 and found.spearman > 85
