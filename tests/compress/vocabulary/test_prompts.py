"""A smaller or larger vocabulary keeps the tokens of every prompt of its model, and proves its vectors with each."""

import json
import shutil

import numpy as np
import pytest
import tiny_models
import torch
from refusals import one_line
from stock_models import write_stock, write_xlmr

import msdc
from msdc.compress.student.io import save_student
from msdc.compress.student.model import Student, StudentConfig
from msdc.compress.texts import quickstart_texts
from msdc.compress.vocabulary.comparison import require_prompts
from msdc.compress.vocabulary.trim import prompt_contexts, trim
from msdc.encoders.folder import DEFAULTS_FILE
from msdc.errors import GateError, InputError

PROMPTS = {"query": "Represent this sentence for searching relevant passages: ", "passage": "Where is the train?",
           "document": ""}  # fmt: skip
GERMAN = quickstart_texts(["de"])


def with_prompts(folder, default=None, prompts=PROMPTS):
    value = {"prompts": prompts, "default_prompt_name": default}
    (folder / DEFAULTS_FILE).write_text(json.dumps(value), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Models with a SentencePiece, a Unigram and a WordPiece vocabulary that spell the prompts in whole words."""
    root = tmp_path_factory.mktemp("prompted")
    tokenizer = tiny_models.tokenizer(3000)
    torch.manual_seed(0)
    student = Student(StudentConfig(vocabulary=tokenizer.size, hidden=32, heads=4, intermediate=48, unit=1, repeats=2,
                                    bottleneck=16, positions=48)).eval()  # fmt: skip
    save_student(student, tokenizer.path, root / "pieces")
    write_xlmr(root / "xlmr", [*quickstart_texts(), *PROMPTS.values()], size=2500)
    write_stock(root / "bert", "bert")
    return root


@pytest.fixture(scope="module")
def german(tmp_path_factory):
    path = tmp_path_factory.mktemp("german") / "de.txt"
    path.write_text("\n".join(GERMAN), encoding="utf-8")
    return path


@pytest.mark.parametrize("default", ["query", None])
@pytest.mark.parametrize("kind", ["pieces", "xlmr"])
def test_the_prompts_of_another_language_than_the_corpus_stay(folders, german, tmp_path, kind, default):
    source = with_prompts(shutil.copytree(folders / kind, tmp_path / "source"), default)
    report = trim(str(source), output=tmp_path / "out", corpus=[german])
    assert report.vocabulary_after < report.vocabulary_before
    before, after = msdc.load_encoder(source), msdc.load_encoder(tmp_path / "out")
    assert dict(after.prompts) == PROMPTS
    for prompt in ("", *PROMPTS.values()):
        assert np.abs(before.encode(GERMAN[:20], prompt=prompt) - after.encode(GERMAN[:20], prompt=prompt)).max() < 1e-4
    sources = [proof.source for proof in report.proofs if proof.source.startswith("de.txt")]
    assert sources == ["de.txt", *(f"de.txt, prompt {name!r}" for name in ("query", "passage"))]
    assert all(proof.changed_share == 0 for proof in report.proofs if proof.source.startswith("de.txt"))


def test_a_size_and_an_alphabet_leave_the_prompts(folders, tmp_path):
    prompt = {"query": "Where is the train? "}
    source = with_prompts(shutil.copytree(folders / "pieces", tmp_path / "source"), "query", prompt)
    trim(str(source), output=tmp_path / "out", languages=["ar"], size=700, least_cosine=0)
    before, after = msdc.load_encoder(source), msdc.load_encoder(tmp_path / "out")
    names = [[encoder.tokenizer.processor.id_to_piece(i) for i in encoder.tokenize([prompt["query"]])[0]]
             for encoder in (before, after)]  # fmt: skip
    assert names[0] == names[1]
    assert max(map(len, names[0])) > 3
    assert "tokens of prompts must be kept" in one_line(
        lambda: trim(str(source), output=tmp_path / "no", languages=["de"], size=30), InputError
    )


def test_a_prompt_that_would_change_is_refused(folders, tmp_path, german):
    """Should the choice of tokens ever miss one: the check is of the written vocabulary, by its rows."""
    plain = trim(str(folders / "pieces"), output=tmp_path / "plain", corpus=[german])
    after = msdc.load_encoder(tmp_path / "plain")
    before = msdc.load_encoder(with_prompts(shutil.copytree(folders / "pieces", tmp_path / "source"), "query"))
    old, new = before.tokenizer.processor, after.tokenizer.processor
    rows = [old.piece_to_id(new.id_to_piece(index)) for index in range(plain.vocabulary_after)]
    assert "prompt 'query' 'Represent this" in one_line(lambda: require_prompts(before, after, rows), GateError)


def test_contexts_are_one_prompt_of_each_ending():
    prompts = ["Instruct: a long task\nQuery: ", "query: ", "passage: ", "Query:", "say Query:", "line\n", ""]
    assert set(prompt_contexts(prompts)) == {"query: ", "Query:", "line\n", ""}


def test_the_first_word_after_a_prompt_without_a_space_stays(folders, tmp_path):
    """After such a prompt a text's first word has no mark of a word's start, so it takes other tokens."""
    source = with_prompts(shutil.copytree(folders / "pieces", tmp_path / "source"), "query", {"query": "train:"})
    corpus = tmp_path / "corpus.txt"
    texts = [text for text in quickstart_texts(["de"]) if text[0] in "WDE"][:30]
    corpus.write_text("\n".join(texts), encoding="utf-8")
    trim(str(source), output=tmp_path / "out", corpus=[corpus])
    before, after = msdc.load_encoder(source), msdc.load_encoder(tmp_path / "out")
    assert np.abs(before.encode(texts) - after.encode(texts)).max() < 1e-4
