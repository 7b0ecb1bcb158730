"""Memory of the MiniLM-shaped int8 student on this machine and on an emulated phone with 256 MB.

    python benchmarks/devices.py --write docs/results/devices.md

The student has the shape of the paper's Multilingual-MiniLM one: 250,002 pieces, bottleneck 128, hidden 384, a unit of
three layers applied four times; random weights. It is exported as a multi-method program and as one `forward` (whose
shared weights XNNPACK's cache keeps once), and run by the native runner: on this machine, and through adb on a machine
of 256 MB that qemu emulates, in which memory is real.

Goals: peak (VmHWM) at most 40 MiB, anonymous memory at most 1.2 x the unit's bytes + 4 MiB, both after warm-up.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from results_page import options_for, table, write_page

from msdc.bench.devices.adb import AdbDevice
from msdc.bench.devices.emulator import EmulatorMachine
from msdc.bench.devices.emulator_image import create_image
from msdc.bench.devices.host import HostDevice
from msdc.bench.measure import BenchSettings
from msdc.bench.result import DeviceRun

VOCABULARY, BOTTLENECK, HIDDEN, HEADS, UNIT_LAYERS, REPEATS = 250_002, 128, 384, 12, 3, 4
STYLES = ("multi-method", "forward")
# Four H x H and two H x 4H matrices per layer, one byte per weight.
UNIT_BYTES = UNIT_LAYERS * 12 * HIDDEN * HIDDEN
PEAK_GOAL_MIB = 40.0
ANON_GOAL_MIB = 1.2 * UNIT_BYTES / 2**20 + 4.0
PHONE_MIB = 256
SETTINGS = BenchSettings(lengths=(8, 32, 128), runs=2, warmup=0, timeout_s=1800, runtimes=("executorch",))
# The emulator needs minutes for the golden texts of every script; memory needs none of them.
TEXTS = ["a small dog", "where is the station", ""]
LEGEND = (
    f"Goals, MiB: peak at most {PEAK_GOAL_MIB:.0f}; anonymous memory after warm-up at most 1.2 x the unit's bytes "
    f"({UNIT_BYTES:,}) + 4 MiB = {ANON_GOAL_MIB:.2f}. Texts of up to 128 tokens, one thread, native runner. "
    "Memory in MiB of the whole process:\n\n"
)


def student_bundle(folder: Path, style: str) -> Path:
    """Export the student into `folder`/bundle-STYLE. Most of its pieces are invented: only their number matters."""
    import sentencepiece
    import torch
    from sentencepiece import sentencepiece_model_pb2 as pb

    import msdc.export.exporters as writer
    from msdc.compress.student.model import Student, StudentConfig
    from msdc.text.tokenizer import PieceTokenizer

    words = [" ".join(chr(97 + (i * j) % 26) * (1 + j % 4) for j in range(1, 9)) for i in range(400)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(words + TEXTS), model_prefix=str(folder / "pieces"), vocab_size=120,
        hard_vocab_limit=False, pad_id=0, unk_id=1, bos_id=2, eos_id=3, minloglevel=2, num_threads=1,
    )  # fmt: skip
    proto = pb.ModelProto()
    proto.ParseFromString((folder / "pieces.model").read_bytes())
    while len(proto.pieces) < VOCABULARY:
        proto.pieces.add(piece=f"▁{len(proto.pieces):x}zq", score=-15.0)
    (folder / "big.model").write_bytes(proto.SerializeToString())
    torch.manual_seed(0)
    config = StudentConfig(
        vocabulary=VOCABULARY, hidden=HIDDEN, heads=HEADS, intermediate=4 * HIDDEN, unit=UNIT_LAYERS, repeats=REPEATS,
        bottleneck=BOTTLENECK, positions=128,
    )  # fmt: skip
    options = writer.BundleOptions(target="linux", runtimes=("executorch",), precision="int8", style=style, gates=False)
    everything, writer.golden_texts = writer.golden_texts, lambda: TEXTS
    try:
        out = folder / f"bundle-{style}"
        writer.write_bundle(Student(config), PieceTokenizer(folder / "big.model"), out, options=options)
    finally:
        writer.golden_texts = everything
    return out


def on_host(bundle: Path) -> DeviceRun:
    (run,) = HostDevice().run(bundle, SETTINGS)
    return run


def on_phone(bundle: Path) -> DeviceRun:
    """The emulated phone in real time: only its memory is measured, so instructions are not counted."""
    with EmulatorMachine(create_image(), "a76", memory_mib=PHONE_MIB, count=False) as machine:
        (run,) = AdbDevice(machine.serial).run(bundle, SETTINGS)
    return run


def row_of(style: str, where: str, run: DeviceRun) -> dict[str, Any]:
    assert run.memory is not None
    phases = {name: getattr(run.memory, name) for name in ("start", "loaded", "warm")}
    row = {"program": style, "device": where, "bytes": run.artifact.bytes}
    row |= {f"{name} anon": round(phase.anon_mib, 2) for name, phase in phases.items()}
    return row | {"warm file-backed": round(phases["warm"].file_mib, 2), "peak": round(phases["warm"].vmhwm_mib, 1)}


def main() -> None:
    options = options_for(__doc__, "devices").parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="msdc-devices-") as folder:
        for style in STYLES:
            bundle = student_bundle(Path(folder), style)
            rows.append(row_of(style, "this machine", on_host(bundle)))
            rows.append(row_of(style, f"emulated phone, {PHONE_MIB} MB", on_phone(bundle)))
    print(json.dumps(rows))
    write_page(options.write, "Memory of the paper's student on a phone with 256 MB",
               f"random weights; {VOCABULARY:,} pieces x {BOTTLENECK}, unit of {UNIT_LAYERS} layers of {HIDDEN} "
               f"applied {REPEATS} times, int8", LEGEND + table(list(rows[0]), [list(row.values()) for row in rows]),
               "torch executorch")  # fmt: skip


if __name__ == "__main__":
    main()
