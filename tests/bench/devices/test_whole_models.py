"""Text in and vector out of whole models: four stages on a stock XLM-R, all-MiniLM-L6-v2; goals of memory. Slow."""

import shutil

import numpy as np
import pytest
import torch
from places import data_folder
from sentencepiece import sentencepiece_model_pb2
from stock_models import write_xlmr
from tiny_models import train_pieces

import msdc
from msdc.bench.devices import open_devices
from msdc.bench.devices.adb import AdbDevice
from msdc.bench.devices.base import run_devices
from msdc.bench.devices.emulator import EmulatorDevice, EmulatorMachine
from msdc.bench.devices.emulator_image import create_image
from msdc.bench.devices.host import HostDevice
from msdc.bench.measure import collect, parity_failures
from msdc.bench.options import BenchSettings
from msdc.compress.student.model import Student, StudentConfig
from msdc.compress.texts import quickstart_texts
from msdc.distill import distill
from msdc.export import export
from msdc.export.bundle import load_bundle
from msdc.export.exporters import write_bundle
from msdc.export.options import ExportSettings
from msdc.scores import cosine_rows
from msdc.text.tokenizer import PieceTokenizer

TEXTS = ["Wo ist der Bahnhof?", "  two  spaces ", "El gato duerme.", "x"]


@pytest.fixture
def xlmr(tmp_path):
    return write_xlmr(tmp_path / "xlm-roberta-mini", quickstart_texts())


@pytest.fixture
def student(tiny_tree, xlmr, tmp_path):
    """The student of the four stages."""
    return distill(tiny_tree | {"assistant": str(xlmr)}, tmp_path / "run").student


@pytest.fixture
def bundle(student, tmp_path):
    return export(str(student), target="android", precision="fp32", output=tmp_path / "bundle")[0]


def test_stock_xlmr_keeps_its_sentencepiece_model_under_its_own_ids(xlmr):
    from sentence_transformers import SentenceTransformer

    encoder, theirs = msdc.load_encoder(xlmr), SentenceTransformer(str(xlmr), device="cpu")
    assert isinstance(encoder.tokenizer, PieceTokenizer)
    assert encoder.max_length == 64
    texts = [*quickstart_texts(limit=300), *TEXTS]
    assert encoder.tokenize(texts) == theirs.tokenizer(texts, truncation=True)["input_ids"]
    assert float(np.abs(encoder.encode(texts) - theirs.encode(texts)).max()) < 1e-5


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed: apt-get install g++")
def test_four_stages_then_a_module_that_takes_text(student, bundle, xlmr):
    teacher_ids = msdc.load_encoder(xlmr)
    encoder, exported = msdc.load_encoder(student), msdc.load_bundle(bundle)
    assert exported.manifest.tokenizer.kind == "sentencepiece"
    assert (bundle / "android/build.gradle.kts").is_file()
    assert encoder.tokenize(TEXTS) == exported.tokenize(TEXTS) == teacher_ids.tokenize(TEXTS)
    assert float(cosine_rows(encoder.encode(TEXTS), exported.encode(TEXTS)).min()) > 0.99999
    # Text in, vector out, on the native runner.
    assert measured(bundle, "host").harness != "python"


def measured(bundle, device):
    settings = BenchSettings(tasks=(), lengths=(8,), runs=2, warmup=1, runtime="executorch")
    (run,), failures = run_devices(open_devices(device), bundle, settings)
    assert failures == []
    assert parity_failures([run]) == []
    assert run.parity.ids_equal
    assert run.parity.min_cosine > 0.9999
    return run


@pytest.mark.slow
def test_text_in_on_the_emulated_phone(bundle, emulator_image):
    assert measured(bundle, "emulator:a76").device.emulated


@pytest.fixture(scope="module")
def minilm(tmp_path_factory):
    out = tmp_path_factory.mktemp("minilm") / "bundle"
    return export("all-MiniLM-L6-v2", target="android", runtime="both", precision="int8", output=out)[0]


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["executorch", "onnx"])
def test_text_to_vector_of_minilm_on_the_phone(minilm, runtime, emulator_image):
    data = data_folder()
    if data is None:
        pytest.skip("STS2017 needs a data folder (MSDC_DATA)")
    settings = BenchSettings(
        runtimes=(runtime,), lengths=(8,), runs=1, warmup=0, tasks=("sts17/en-en",), data=data, timeout_s=7200
    )
    (run,) = EmulatorDevice("a76").run(minilm, settings)
    assert run.harness != "python"
    assert run.device.emulated
    assert parity_failures([run]) == []
    golden = run.parity
    assert golden.texts >= 100
    assert golden.ids_equal
    assert golden.mean_cosine >= 0.999
    (accuracy,), (here,) = run.accuracy, collect(settings).score(load_bundle(minilm, runtime=runtime))
    assert accuracy.pairs == 250
    assert abs(accuracy.spearman - here.spearman) < 0.3
    assert accuracy.spearman > 85


# Memory of the paper's Multilingual-MiniLM student, random weights: 250,002 pieces, bottleneck 128, a unit of three
# layers of 384 applied four times.

SHAPE = {"vocabulary": 250_002, "bottleneck": 128, "hidden": 384, "heads": 12, "intermediate": 1536, "unit": 3}
# Four H x H and two H x 4H matrices per layer, one byte per weight.
UNIT_BYTES = SHAPE["unit"] * 12 * SHAPE["hidden"] ** 2
PEAK_MIB = 40.0
ANON_MIB = 1.2 * UNIT_BYTES / 2**20 + 4.0
PHONE_MIB = 256
MEMORY = BenchSettings(tasks=(), lengths=(8, 32, 128), runs=2, warmup=0, timeout_s=1800, runtime="executorch")


@pytest.fixture(scope="module", params=["multi-method", "forward"])
def mini_shaped(request, tmp_path_factory):
    """Most of its pieces are invented: only their number matters."""
    folder = tmp_path_factory.mktemp("student")
    trained = sentencepiece_model_pb2.ModelProto()
    trained.ParseFromString(train_pieces(folder / "pieces").read_bytes())
    while len(trained.pieces) < SHAPE["vocabulary"]:
        trained.pieces.add(piece=f"▁{len(trained.pieces):x}zq", score=-15.0)
    (folder / "big.model").write_bytes(trained.SerializeToString())
    torch.manual_seed(0)
    student = Student(StudentConfig(**SHAPE, repeats=4, positions=128))
    options = ExportSettings(runtime="executorch", precision="int8", style=request.param, gates=False)
    write_bundle(student, PieceTokenizer(folder / "big.model"), folder / "bundle", options=options)
    return folder / "bundle"


def check(run) -> None:
    warm = run.memory.warm
    assert warm.vmhwm_mib <= PEAK_MIB, warm
    assert warm.anon_mib <= ANON_MIB, warm
    assert run.parity.min_cosine >= 0.999
    assert run.parity.ids_equal
    assert run.harness == "native"


@pytest.mark.slow
def test_memory_goals_on_this_machine(mini_shaped):
    (run,) = HostDevice().run(mini_shaped, MEMORY)
    check(run)


@pytest.mark.slow
def test_memory_goals_on_a_phone_of_256_mb(mini_shaped, emulator_image):
    """In real time: only memory is measured, so instructions are not counted."""
    with EmulatorMachine(create_image(), "a76", memory_mib=PHONE_MIB, count=False) as machine:
        (run,) = AdbDevice(machine.serial).run(mini_shaped, MEMORY)
    assert run.device.memory_mib < PHONE_MIB
    check(run)
