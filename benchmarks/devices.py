"""Memory of the MiniLM-shaped int8 student on this machine and on an emulated phone with 256 MB.

    python benchmarks/devices.py --write docs/results/devices.md

The student has the shape of the paper's Multilingual-MiniLM one: 250,002 pieces, bottleneck 128, hidden 384, a unit of
three layers applied four times; random weights. It is exported as a multi-method program and as one `forward` (whose
shared weights XNNPACK's cache keeps once), and run by the native runner: on this machine, and through adb on a machine
of 256 MB that qemu emulates, in which memory is real.

Goals: peak (VmHWM) at most 40 MiB, anonymous memory at most 1.2 x the unit's bytes + 4 MiB, both after warm-up.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from results_page import add_write_option, table, write_page

from msdc.bench.devices.adb import AdbDevice
from msdc.bench.devices.emulator import EmulatorMachine
from msdc.bench.devices.emulator_image import create_image
from msdc.bench.devices.host import HostDevice
from msdc.bench.measure import BenchSettings
from msdc.bench.result import DeviceRun

VOCABULARY, BOTTLENECK, HIDDEN, HEADS, UNIT_LAYERS, REPEATS = 250_002, 128, 384, 12, 3, 4
STYLES = ("multi-method", "forward")
MIB = 1024 * 1024
# Four H x H and two H x 4H matrices per layer, one byte per weight.
UNIT_BYTES = UNIT_LAYERS * 12 * HIDDEN * HIDDEN
PEAK_GOAL_MIB = 40.0
ANON_GOAL_MIB = 1.2 * UNIT_BYTES / MIB + 4.0
PHONE_MIB = 256
SETTINGS = BenchSettings(lengths=(8, 32, 128), runs=2, warmup=0, timeout_s=1800, runtimes=("executorch",))
# The emulator needs minutes for the golden texts of every script; memory needs none of them.
TEXTS = ["a small dog", "where is the station", ""]


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
    """This machine, through the native runner."""
    (run,) = HostDevice().run(bundle, SETTINGS)
    return run


def on_phone(bundle: Path) -> DeviceRun:
    """The emulated phone in real time: only its memory is measured, so instructions are not counted."""
    with EmulatorMachine(create_image(), "a76", memory_mib=PHONE_MIB, count=False) as machine:
        (run,) = AdbDevice(machine.serial).run(bundle, SETTINGS)
    return run


def figures(style: str, where: str, run: DeviceRun) -> dict[str, Any]:
    """The figures that have a goal, with their goals."""
    assert run.memory is not None and run.parity is not None
    phases = {name: getattr(run.memory, name) for name in ("start", "loaded", "warm")}
    return {
        "style": style,
        "where": where,
        "harness": run.harness,
        "device_memory_mib": run.device.memory_mib,
        "program_bytes": run.artifact.bytes,
        "unit_bytes": UNIT_BYTES,
        "min_cosine": run.parity.min_cosine,
        "anon_mib": {name: phase.anon_mib for name, phase in phases.items()},
        "file_mib": {name: phase.file_mib for name, phase in phases.items()},
        "peak_mib": phases["warm"].vmhwm_mib,
        "peak_goal_mib": PEAK_GOAL_MIB,
        "anon_goal_mib": round(ANON_GOAL_MIB, 3),
    }


def page_body(rows: list[dict[str, Any]]) -> str:
    """Goals and the table of the results page."""
    header = ("program", "device", "bytes", "start anon", "loaded anon", "warm anon", "warm file-backed", "peak")
    cells = [
        (row["style"], row["where"], f"{row['program_bytes']:,}",
         *(f"{row['anon_mib'][phase]:.2f}" for phase in ("start", "loaded", "warm")),
         f"{row['file_mib']['warm']:.2f}", f"{row['peak_mib']:.1f}")
        for row in rows
    ]  # fmt: skip
    return (
        f"Goals, MiB: peak at most {PEAK_GOAL_MIB:.0f}; anonymous memory after warm-up at most 1.2 x the unit's bytes "
        f"({UNIT_BYTES:,}) + 4 MiB = {ANON_GOAL_MIB:.2f}. Texts of up to 128 tokens, one thread, native runner. "
        "Memory in MiB of the whole process:\n\n" + table(header, cells)
    )


def measured() -> Iterator[dict[str, Any]]:
    """One row per program style and device."""
    with tempfile.TemporaryDirectory(prefix="msdc-devices-") as folder:
        for style in STYLES:
            bundle = student_bundle(Path(folder), style)
            yield figures(style, "this machine", on_host(bundle))
            yield figures(style, f"emulated phone, {PHONE_MIB} MB", on_phone(bundle))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    add_write_option(parser, "devices")
    arguments = parser.parse_args()
    rows = []
    for row in measured():
        rows.append(row)
        print(json.dumps(row), flush=True)
    if arguments.output:
        arguments.output.write_text(json.dumps(rows, indent=2) + "\n")
    if arguments.write:
        write_page(arguments.write, "Memory of the paper's student on a phone with 256 MB",
                   f"random weights; {VOCABULARY:,} pieces x {BOTTLENECK}, unit of {UNIT_LAYERS} layers of {HIDDEN} "
                   f"applied {REPEATS} times, int8", page_body(rows), libraries=("torch", "executorch"))  # fmt: skip


if __name__ == "__main__":
    main()
