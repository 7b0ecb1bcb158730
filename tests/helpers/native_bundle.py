"""A tiny int8 bundle for both runtimes, made once a session whatever tests ask for it."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from msdc.files import PACKAGE

PARALLEL = PACKAGE / "data" / "quickstart" / "parallel.tsv"


def train_pieces(target: Path, **changes) -> Path:
    """A small SentencePiece model on the embedded corpus; ids as our students have them."""
    import sentencepiece

    lines = PARALLEL.read_text(encoding="utf-8").splitlines()
    sentences = [part for line in lines for part in line.split("\t")]
    settings = {"vocab_size": 600, "hard_vocab_limit": False, "character_coverage": 0.99, "num_threads": 1,
                "pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "minloglevel": 2}  # fmt: skip
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_prefix=str(target), **(settings | changes)
    )
    return target.with_suffix(".model")


@functools.cache
def tiny_bundle() -> Path:
    """A student of one layer applied twice on 600 pieces; gates off, because its weights are random."""
    import torch

    from msdc.compress.student.model import Student, StudentConfig
    from msdc.export.writer import BundleOptions, write_bundle
    from msdc.text.tokenizer import PieceTokenizer

    folder = Path(tempfile.mkdtemp(prefix="msdc-test-bundle-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    tokenizer = PieceTokenizer(train_pieces(folder / "pieces"))
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
