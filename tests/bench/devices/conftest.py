"""A tiny bundle, a private adb server, and one emulated phone for all tests that need a device."""

from __future__ import annotations

import os
import random
import socket
import subprocess
from pathlib import Path

import pytest

from bench.devices.emulator_image import PROGRAMS, create_image
from bench.devices.emulator_machine import EmulatorMachine, free_port
from bench.devices.tools import PACKAGES, missing
from msdc.errors import MsdcError

CROSS = "aarch64-linux-gnu-g++"


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory, parallel_tsv) -> Path:
    """An int8 student of 6,000 parameters a layer on a vocabulary of 600 pieces, for both runtimes, gates off."""
    import sentencepiece
    import torch

    from compress.student import Student, StudentConfig
    from export.writer import BundleOptions, write_bundle
    from msdc.text.tokenizer import PieceTokenizer

    folder = tmp_path_factory.mktemp("tiny-bundle")
    sentences = [part for line in parallel_tsv.read_text(encoding="utf-8").splitlines() for part in line.split("\t")]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_prefix=str(folder / "pieces"), vocab_size=600, minloglevel=2,
        num_threads=1, hard_vocab_limit=False, character_coverage=0.99, pad_id=0, unk_id=1, bos_id=2, eos_id=3,
    )  # fmt: skip
    tokenizer = PieceTokenizer(folder / "pieces.model")
    torch.manual_seed(5)
    config = StudentConfig(
        vocabulary=tokenizer.size, hidden=32, heads=4, intermediate=64, unit=1, repeats=2, bottleneck=16, positions=48
    )
    student = Student(config)
    for parameter in student.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    options = BundleOptions(target="linux", precision="int8", gates=False)
    write_bundle(student, tokenizer, folder / "bundle", name="tiny", options=options)
    return folder / "bundle"


@pytest.fixture(scope="session", autouse=True)
def adb_server():
    """A server of our own: the user's phones and server stay out of the tests."""
    if missing(["adb"]):
        yield None
        return
    before = os.environ.get("ANDROID_ADB_SERVER_PORT")
    os.environ["ANDROID_ADB_SERVER_PORT"] = str(free_port())
    yield os.environ["ANDROID_ADB_SERVER_PORT"]
    subprocess.run(["adb", "kill-server"], capture_output=True, check=False, timeout=30)
    if before is None:
        del os.environ["ANDROID_ADB_SERVER_PORT"]
    else:
        os.environ["ANDROID_ADB_SERVER_PORT"] = before


@pytest.fixture(scope="session")
def emulator_image():
    """The disk image; skips where it cannot be made."""
    absent = missing([*PROGRAMS, CROSS])
    if absent:
        packages = " ".join(PACKAGES[name] for name in absent)
        pytest.skip(f"the emulated phone needs {', '.join(absent)}: apt-get install {packages}")
    try:
        return create_image()
    except MsdcError as error:
        pytest.skip(f"the emulated phone's image cannot be made here: {error}")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def twin_ports() -> tuple[int, int]:
    """Two free ports, the first of which is a prefix of the second as text."""
    chosen = random.Random(os.getpid())
    while True:
        short = chosen.randrange(2000, 6500)
        long = short * 10 + chosen.randrange(10)
        if _free(short) and _free(long):
            return short, long


@pytest.fixture(scope="session")
def phone(emulator_image):
    """A machine in real time (no counting), reachable under two serials of which one is a prefix of the other."""
    with EmulatorMachine(emulator_image, "a76", count=False, disk_mib=128, ports=twin_ports()) as machine:
        yield machine
