"""A tiny exported bundle, real in every part, shared by the tests of bench."""

from pathlib import Path

import pytest

TINY_MAX_LENGTH = 32


@pytest.fixture(scope="session")
def tiny_student(tmp_path_factory, parallel_tsv) -> tuple:
    """(student, tokenizer): one layer of width 32 applied twice, bottleneck 16, 400 SentencePiece pieces."""
    import torch

    from msdc.compress.student.model import Student, StudentConfig
    from msdc.compress.vocabulary.sentencepiece import train_vocabulary
    from msdc.text.tokenizer import PieceTokenizer

    rows = parallel_tsv.read_text(encoding="utf-8").splitlines()[1:]
    texts = [cell for row in rows for cell in row.split("\t")[:3]]
    model = train_vocabulary(texts, tmp_path_factory.mktemp("vocabulary") / "tokenizer.model", 400, threads=1)
    tokenizer = PieceTokenizer(model)
    torch.manual_seed(5)
    config = StudentConfig(
        vocabulary=tokenizer.size, hidden=32, heads=2, intermediate=64, unit=1, repeats=2, bottleneck=16,
        positions=TINY_MAX_LENGTH, pad_id=tokenizer.pad_id,
    )  # fmt: skip
    student = Student(config)
    # Random weights of std 0.02 map every text to nearly one vector; spread them so that scores mean something.
    with torch.no_grad():
        student.embedding.table.weight.normal_(std=1.0)
    return student.eval(), tokenizer


@pytest.fixture(scope="session")
def tiny_bundle(tiny_student, tmp_path_factory) -> Path:
    """A float bundle with both runtimes."""
    from msdc.export.writer import BundleOptions, write_bundle

    student, tokenizer = tiny_student
    folder = tmp_path_factory.mktemp("bundle") / "tiny"
    write_bundle(student, tokenizer, folder, name="tiny", options=BundleOptions(runtimes=("executorch", "onnx")))
    return folder
