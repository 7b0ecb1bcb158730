"""Tiny students, vocabularies and bundles, real in every part. Each is made once per test run and then read-only.

pytest-xdist's workers share what is on disk: `SCRATCH` is set by tests/conftest.py before they start.
"""

import fcntl
import functools
import os
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path

import torch

from msdc.compress.student.io import save_student
from msdc.compress.student.model import Student, StudentConfig
from msdc.compress.student.plan import plan_for
from msdc.compress.student.weights import integers
from msdc.compress.texts import quickstart_texts
from msdc.compress.vocabulary.spelling import marks_apart, one_spelling, write_rules
from msdc.compress.vocabulary.train import train_vocabulary
from msdc.export.exporters import write_bundle
from msdc.export.golden import Thresholds
from msdc.export.options import ExportSettings
from msdc.export.readme import CardFacts
from msdc.text import quickstart
from msdc.text.tokenizer import PieceTokenizer

SCRATCH = "MSDC_TESTS_SCRATCH"
# Rows of 32 random numbers are rounded more coarsely than a trained table's: looser bounds than for real models.
LOOSE = Thresholds(mean_cosine=0.95, min_cosine=0.8)
MAX_LENGTH = 48
SHAPES = {
    "word": {},
    "plain table": {"bottleneck": None},
    "albert": {"place": "embedding", "bottleneck": 16},
    "cls, dense": {"pooling": "cls", "dense": 24, "dense_activation": "tanh"},
    "max, relu": {"pooling": "max", "activation": "relu", "normalize": False},
    "coded": {"base_rows": 60, "nonzeros": 3},
    "static": {"unit": 0, "repeats": 1, "bottleneck": None, "dense": 40, "dense_bias": False},
    "static, coded": {"unit": 0, "repeats": 1, "bottleneck": None, "base_rows": 60, "nonzeros": 3},
    "gelu_new, deep": {"activation": "gelu_new", "unit": 2, "repeats": 3, "dense": 40, "dense_bias": False},
}


@functools.cache
def scratch() -> Path:
    """A folder that lives as long as the test run."""
    if SCRATCH in os.environ:
        return Path(os.environ[SCRATCH])
    keep = tempfile.TemporaryDirectory(prefix="msdc-tests-")
    scratch.keep = keep  # type: ignore[attr-defined]
    return Path(keep.name)


def once(name: str, make: Callable[[Path], object]) -> Path:
    """`scratch() / name`, made by the first process that asks; the others wait for it."""
    target = scratch() / name
    with open(scratch() / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            partial = target.with_name(f"{name}.partial") / target.name
            partial.parent.mkdir(exist_ok=True)
            make(partial)
            partial.replace(target)
    return target


@functools.cache
def tokenizer(size: int = 400) -> PieceTokenizer:
    """At most `size` SentencePiece pieces, trained on the embedded corpus as our students' vocabularies are."""
    train = functools.partial(train_vocabulary, quickstart_texts(), size=size, threads=1)
    return PieceTokenizer(once(f"pieces-{size}.model", train))


def train_pieces(target: Path, **changes) -> Path:
    """A SentencePiece model of any kind on the embedded corpus; ids as our students'.

    Without our normalization, or (`one_spelling`) with its rules for letters of our languages.
    """
    import sentencepiece

    if changes.pop("one_spelling", False):
        letters = [chr(code) for code in range(0x41, 0x700) if code != 0x130]
        lower = {letter: letter.lower() for letter in letters if letter != letter.lower()}
        write_rules(marks_apart(one_spelling(lower)), rules := target.with_suffix(".tsv"))
        changes["normalization_rule_tsv"] = str(rules)

    settings = {"vocab_size": 600, "hard_vocab_limit": False, "character_coverage": 0.99, "num_threads": 1,
                "pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3, "minloglevel": 2}  # fmt: skip
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(quickstart_texts()), model_prefix=str(target), **(settings | changes)
    )
    return target.with_suffix(".model")


def rows(count: int = 12) -> list[list[int]]:
    """Rows of random ids, the first ones of length 1, 2 and MAX_LENGTH."""
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
    model = Student(StudentConfig(**{**common, **changes}))
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.dim() == 2:
                value.normal_(std=0.6 if "embedding" in name else 0.2)
            else:
                value.add_(0.1 * torch.randn_like(value))
        for layer in model.layers:
            layer.output_norm.weight[:2] *= 6
    return model.eval()


def shaken(config: StudentConfig, by: float = 0.05) -> Student:
    """An untrained student whose tensors are all different, as those of a trained one: equal ones are stored once."""
    torch.manual_seed(0)
    model = Student(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * by)
    return model


def student_folder(seed: int = 3) -> Path:
    """`student(seed)` with its tokenizer as a model folder."""
    name = "tiny-student" if seed == 3 else f"tiny-student-{seed}"
    return once(name, lambda folder: save_student(student(seed), tokenizer().path, folder))


def bundle(precision: str = "int8", runtime: str = "both", style: str = "multi-method") -> Path:
    """`student()` as a bundle folder; copy it to change it."""
    options = ExportSettings(
        runtime=runtime, precision=precision, style=style, thresholds=None if precision == "fp32" else LOOSE,
    )  # fmt: skip
    card = CardFacts(("en", "de"), ("CC0",), ("the embedded corpus",))

    def make(folder: Path) -> None:
        write_bundle(student(), tokenizer(), folder, name="tiny", options=options, card=card)

    return once(f"{precision}-{runtime}-{style}", make)


def recipe(teacher: Path, cache: Path, stages: list[dict], limit: int = 60) -> dict:
    """A recipe as a mapping, on a few rows of the embedded corpus.

    The precision is pinned: `auto` would be bfloat16 on some processors, and numbers would differ between machines.
    """
    return {
        "name": "tiny",
        "teacher": str(teacher),
        "assistant": {"vocabulary": {"train": 500, "sentences_per_language": 60}, "rows": "cooccurrence",
                      "max_length": 20},
        "student": {"bottleneck": 8, "unit": 1, "repeats": 2, "max_length": 20, "dropout": 0.1},
        "corpora": [{"path": str(quickstart.PARALLEL), "languages": ["de", "es"], "limit": limit}],
        "heldout": {"pairs": 5, "share": 0.1},
        "threads": 1,
        "precision": "float32",
        "cache": str(cache),
        "stages": stages,
    }  # fmt: skip


def dequantized(student: Student, precision: str, names: Collection[str] | None = None) -> Student:
    """The student with the numbers that its integers of a precision stand for, in the weights named (or all)."""
    with torch.no_grad():
        for name, part in integers(student, plan_for(student, precision)).items():
            if names is None or name in names:
                student.get_parameter(name).copy_(torch.from_numpy(part.dequantize()))
    return student
