"""Memory goals of the MiniLM-shaped int8 student on an emulated phone with 256 MB. Minutes: `pytest -m slow`."""

from __future__ import annotations

import pytest

from bench.devices.adb import AdbDevice
from bench.devices.base import BenchSettings
from bench.devices.emulator_machine import EmulatorMachine
from bench.devices.host import HostDevice
from tests.native_bundle import train_pieces

pytestmark = pytest.mark.slow
VOCABULARY, HIDDEN, UNIT_LAYERS = 250_002, 384, 3
# Four H x H and two H x 4H matrices a layer, one byte a weight.
UNIT_BYTES = UNIT_LAYERS * 12 * HIDDEN * HIDDEN
MIB = 1024 * 1024


@pytest.fixture(scope="module", params=["multi-method", "forward"])
def student_bundle(request, tmp_path_factory, monkeypatch_module):
    """Random weights, real shape; a vocabulary of 250,002 pieces, most of them made up."""
    import torch
    from sentencepiece import sentencepiece_model_pb2 as pb

    import export.writer as writer
    from compress.student import Student, StudentConfig
    from msdc.text.tokenizer import PieceTokenizer

    folder = tmp_path_factory.mktemp("student")
    proto = pb.ModelProto()
    proto.ParseFromString(train_pieces(folder / "pieces").read_bytes())
    while len(proto.pieces) < VOCABULARY:
        proto.pieces.add(piece=f"▁{len(proto.pieces):x}zq", score=-15.0)
    (folder / "big.model").write_bytes(proto.SerializeToString())
    torch.manual_seed(0)
    config = StudentConfig(
        vocabulary=VOCABULARY, hidden=HIDDEN, heads=12, intermediate=4 * HIDDEN, unit=UNIT_LAYERS, repeats=4,
        bottleneck=128, positions=128,
    )  # fmt: skip
    # The emulator needs minutes for the golden texts of every script; memory needs none of them.
    monkeypatch_module.setattr(writer, "golden_texts", lambda: ["a small dog", "where is the station", ""])
    options = writer.BundleOptions(
        target="linux", runtimes=("executorch",), precision="int8", style=request.param, gates=False
    )
    writer.write_bundle(Student(config), PieceTokenizer(folder / "big.model"), folder / "bundle", options=options)
    return folder / "bundle"


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


SETTINGS = BenchSettings(lengths=(8, 32, 128), runs=2, warmup=0, timeout_s=1800)


def check(run) -> None:
    warm = run.memory.warm
    assert warm.vmhwm_mib <= 40, warm
    assert warm.anon_mib <= (1.2 * UNIT_BYTES + 4 * MIB) / MIB, warm
    assert run.parity.golden.min_cosine >= 0.999
    print(run.title, run.memory)


def test_on_this_machine(student_bundle):
    (run,) = HostDevice().run(student_bundle, SETTINGS)
    check(run)


def test_on_a_phone_of_256_mb(student_bundle, emulator_image):
    with EmulatorMachine(emulator_image, "a76", memory_mib=256, count=False) as machine:
        (run,) = AdbDevice(machine.serial).run(student_bundle, SETTINGS)
    assert run.device.memory_mib < 256
    check(run)
