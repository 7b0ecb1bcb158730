"""Tiny students and bundles, real in every part, shared by the tests of export and the attacks (made once a run)."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import torch

from msdc.compress.student.model import Student, StudentConfig
from msdc.compress.vocabulary.sentencepiece import train_vocabulary
from msdc.export.gates import Thresholds
from msdc.export.writer import BundleOptions, write_bundle
from msdc.files import PACKAGE
from msdc.text.tokenizer import PieceTokenizer

CORPUS = PACKAGE / "data" / "quickstart" / "parallel.tsv"
# 32 random numbers a row are rounded more coarsely than a trained table's: looser bounds than for real models.
LOOSE = Thresholds(mean_cosine=0.95, min_cosine=0.8)
MAX_LENGTH = 24


@functools.cache
def scratch() -> Path:
    """A folder that lives as long as the test run."""
    keep = tempfile.TemporaryDirectory(prefix="msdc-tests-")
    scratch.keep = keep  # type: ignore[attr-defined]
    return Path(keep.name)


SHAPES = {
    "word": {},
    "plain table": {"bottleneck": None},
    "albert": {"place": "embedding", "bottleneck": 16},
    "cls, dense": {"pooling": "cls", "dense": 24, "dense_activation": "tanh"},
    "max, relu": {"pooling": "max", "activation": "relu", "normalize": False},
    "gelu_new, deep": {"activation": "gelu_new", "unit": 2, "repeats": 3, "dense": 40, "dense_bias": False},
}


@functools.cache
def tokenizer() -> PieceTokenizer:
    """400 SentencePiece pieces of the embedded corpus."""
    rows = CORPUS.read_text(encoding="utf-8").splitlines()[1:]
    texts = [cell for row in rows for cell in row.split("\t")]
    return PieceTokenizer(train_vocabulary(texts, scratch() / "tokenizer.model", 400, threads=1))


def rows(count: int = 12) -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    size = tokenizer().size
    lengths = [1, 2, MAX_LENGTH, *torch.randint(1, MAX_LENGTH, (count - 3,), generator=generator).tolist()]
    return [torch.randint(0, size, (n,), generator=generator).tolist() for n in lengths]


def student(seed: int = 3, **changes) -> Student:
    """A student whose every tensor matters: wide tables, random biases and norms, a few outlier channels."""
    common = {
        "vocabulary": tokenizer().size, "hidden": 32, "heads": 4, "intermediate": 64, "unit": 1, "repeats": 2,
        "bottleneck": 32, "positions": MAX_LENGTH, "pad_id": tokenizer().pad_id,
    }  # fmt: skip
    torch.manual_seed(seed)
    made = Student(StudentConfig(**{**common, **changes}))
    with torch.no_grad():
        for name, value in made.named_parameters():
            if value.dim() == 2:
                value.normal_(std=0.6 if "embedding" in name else 0.2)
            else:
                value.add_(0.1 * torch.randn_like(value))
        for layer in made.layers:
            layer.output_norm.weight[:2] *= 6
    return made.eval()


@functools.cache
def bundle(precision: str = "int8", runtimes: tuple = ("executorch", "onnx"), style: str = "multi-method") -> Path:
    """A bundle folder; read-only for tests, copy it to change it."""
    folder = scratch() / f"{precision}-{'-'.join(runtimes)}-{style}"
    options = BundleOptions(
        runtimes=runtimes, precision=precision, style=style, thresholds=None if precision == "fp32" else LOOSE,
        languages=("en", "de"), licenses=("CC0",), data_sources=("the embedded corpus",),
    )  # fmt: skip
    write_bundle(student(), tokenizer(), folder, name="tiny", options=options)
    return folder
