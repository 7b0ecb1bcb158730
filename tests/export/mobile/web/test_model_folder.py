"""A student's folder in transformers.js: its own pipeline gives the vectors of the student."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny_models as tiny
from transformers_node import run_script

import msdc
from msdc.cli import main
from msdc.errors import GateError, InputError
from msdc.export.golden import golden_texts
from msdc.export.mobile.web import transformers_js
from msdc.export.mobile.web.transformers_js import TITLE, about_folder, add_transformers_js, spelled
from msdc.scores import cosine_rows
from msdc.text.tokenizer import FastTokenizer

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def student(library, tmp_path_factory) -> Path:
    """A trained tokenizer's folder; SentencePiece's rules are in its map."""
    folder = tmp_path_factory.mktemp("student") / "tiny"
    shutil.copytree(tiny.student_folder(), folder)
    (folder / "tokenizer.json").unlink()  # made again from the `.model`
    add_transformers_js(folder)
    return folder


def run_pipeline(folder: Path, batches: list[list[str]], work: Path) -> dict[str, np.ndarray]:
    options = {"pooling": "mean", "normalize": True}
    found = run_script(HERE / "transformers_pipeline.mjs", folder, work, batches=batches, options=options)
    return {name: np.asarray(rows, dtype=np.float32) for name, rows in found.items()}


def test_its_pipeline_gives_the_students_vectors(student, tmp_path):
    encoder = msdc.load_encoder(student)
    texts = [text for text in golden_texts() if text.strip()]
    texts = [text for text, row in zip(texts, encoder.tokenize(texts), strict=True) if len(row) < encoder.max_length]
    batches = [texts[start : start + 8] for start in range(0, len(texts), 8)]  # padded
    found = run_pipeline(student, batches, tmp_path)
    wanted = encoder.encode(texts)
    assert len(wanted) > 60
    np.testing.assert_allclose(found["fp32"], wanted, atol=2e-5)
    assert cosine_rows(wanted, found["q8"]).min() > 0.98


def test_the_folder_stays_what_it_was(student):
    before = tiny.student_folder()
    texts = golden_texts()
    assert np.array_equal(msdc.load_encoder(student).encode(texts), msdc.load_encoder(before).encode(texts))
    own = FastTokenizer(before / "tokenizer.json").encode(texts, 32)
    assert FastTokenizer(student / "tokenizer.json").encode(texts, 32) == own
    card = (student / "README.md").read_text()
    assert card.count(TITLE) == 1 and '"feature-extraction"' in card and 'pooling: "mean", normalize: true' in card


def test_again_it_changes_nothing_and_keeps_later_sections(student):
    card = student / "README.md"
    card.write_text(card.read_text() + "\n## Data\n\n* mine\n")
    files = {path: path.read_bytes() for path in student.rglob("*") if path.is_file()}
    add_transformers_js(student)
    assert {path: path.read_bytes() for path in student.rglob("*") if path.is_file()} == files


def test_a_tokenizer_with_other_ids_changes_nothing(library, tmp_path, monkeypatch):
    folder = tmp_path / "tiny"
    shutil.copytree(tiny.student_folder(), folder)
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    monkeypatch.setattr(transformers_js, "spelled", lambda tokenizer: None)
    with pytest.raises(GateError, match=r"other ids on \d+ of \d+ golden texts"):
        add_transformers_js(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == files


def test_what_it_does_not_take_is_one_line(tmp_path, capsys):
    folder = tmp_path / "tiny"
    shutil.copytree(tiny.student_folder(), folder)
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(InputError, match=r"it lacks tokenizer_config.json"):
        add_transformers_js(folder)
    with pytest.raises(SystemExit) as ended:
        main(["push", str(folder), "me/tiny", "--transformers-js", "--dry-run"])
    assert ended.value.code == 2 and "choose one" in capsys.readouterr().err


def test_the_card_of_a_student_that_no_pipeline_pools():
    config = tiny.student(dense=8).config
    assert "AutoModel" in about_folder(config, "", "me/x") and "pipeline(" not in about_folder(config, "", "me/x")
    assert "begins with the prompt `query: `" in about_folder(tiny.student().config, "query: ", "me/x")


def test_only_maps_of_sentencepiece_are_spelled_out():
    for normalizer in (None, {"type": "NFC"}, {"type": "Precompiled", "precompiled_charsmap": ""}):
        assert spelled({"normalizer": normalizer, "model": {}}) is None
