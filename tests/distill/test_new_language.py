"""A language that a student does not read: its tokens and rows, what training changes, and what is reported."""

import json
import random

import numpy as np
import pytest
import tiny_models
import torch
from native_core import CoreTokenizer, write_piece_bundle

import msdc
from msdc.compress.student.io import load_student, save_student
from msdc.compress.texts import quickstart_texts
from msdc.compress.vocabulary.extend import inner_ids, token_rows, train_tokens
from msdc.distill import distill
from msdc.distill.added_language import add_language, compare_languages
from msdc.distill.catalog import load_recipe
from msdc.distill.data import Row
from msdc.distill.recipe import AddedVocabulary, Recipe, parse
from msdc.errors import InputError
from msdc.export.golden import golden_texts, tokenizers_agree

# Words of English that the tiny vocabulary may split, and made-up ones in Georgian letters.
WORDS = {"house": "ბალუმი", "water": "რენდოსი", "child": "კიპთა", "red": "ძუვალი", "old": "შომერი", "sees": "ტარფობს",
         "buys": "გლინავს", "street": "ჩაზორი", "train": "წულქენი", "good": "ჟიმარი"}  # fmt: skip


def sentences(count, seed=1):
    chosen = random.Random(seed)
    for _ in range(count):
        words = chosen.sample(sorted(WORDS), 5)
        yield " ".join(words), " ".join(WORDS[word] for word in words)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.en-ka.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in sentences(400)), encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=["dense", "coded"])
def student(request, tmp_path_factory):
    shape = {} if request.param == "dense" else {"base_rows": 60, "nonzeros": 3}
    folder = tmp_path_factory.mktemp(request.param) / "student"
    return save_student(tiny_models.student(**shape), tiny_models.tokenizer().path, folder)


class Text:
    """The rows of a corpus, as `StageText` gives them."""

    def __init__(self, pairs) -> None:
        self.pairs = pairs

    def sample_rows(self, count):
        return [Row(source, target, "ka") for source, target in self.pairs][:count]


@pytest.fixture(scope="module")
def extended(student, tmp_path_factory):
    before = msdc.load_encoder(student)
    added = add_language(before, AddedVocabulary(add=60), Text(list(sentences(300))), tmp_path_factory.mktemp("v"))
    return before, added


def test_the_new_text_is_read_and_other_text_stays(extended):
    before, added = extended
    after, texts = added.encoder, [other for _, other in sentences(40, seed=2)]
    assert all(after.tokenizer.unk_id not in ids for ids in after.tokenize(texts))
    assert all(before.tokenizer.unk_id in ids for ids in before.tokenize(texts))
    assert {len(ids) for ids in inner_ids(after.tokenizer, list(WORDS.values()))} == {1}
    others = quickstart_texts(limit=60)
    assert after.tokenize(others) == before.tokenize(others)
    assert np.abs(after.encode(others) - before.encode(others)).max() < 1e-6


def test_a_word_starts_near_its_translation(extended):
    before, added = extended
    old, new = token_rows(before.module), token_rows(added.student)
    english = torch.stack([old[ids].mean(0) for ids in inner_ids(before.tokenizer, list(WORDS))])
    words = torch.stack([new[ids].mean(0) for ids in inner_ids(added.encoder.tokenizer, list(WORDS.values()))])
    nearest = torch.nn.functional.cosine_similarity(words[:, None], english[None], dim=-1).argmax(1)
    # One in ten by chance; rows of a code are alike.
    assert (nearest == torch.arange(len(WORDS))).float().mean() >= 0.6


def test_every_tokenizer_reads_the_new_vocabulary_alike(extended, core_library, tmp_path):
    tokenizer = extended[1].encoder.tokenizer
    texts = [*golden_texts(), *(other for _, other in sentences(30, seed=3)), *WORDS.values()]
    tokenizers_agree(tokenizer, texts, 1 << 20)
    core = CoreTokenizer(core_library, write_piece_bundle(tmp_path / "core", tokenizer.content))
    assert [core.encode(text) for text in texts] == tokenizer.encode(texts, 1 << 20)


def test_new_letters_get_their_rules(core_library, tmp_path):
    """The map of msdc-mini has rules for the letters of its own languages alone."""
    before = msdc.load_encoder("msdc-mini")
    texts = ["η μικρή γάτα κοιμάται στο σπίτι", "το σπίτι είναι παλιό", "η γάτα πίνει νερό"] * 30
    vocabulary, tokens = train_tokens(before.tokenizer, texts, 60, 152_000, tmp_path)
    file, _, _ = vocabulary.write(range(len(vocabulary.tokens)), tmp_path, tokens)
    tokenizer = type(before.tokenizer)(file)
    small, capitals = inner_ids(tokenizer, ["γάτα", "ΓΆΤΑ"])
    assert small == capitals
    assert tokenizer.unk_id not in small
    # Traditional characters are still read as simplified ones, and other text as before.
    others = [*quickstart_texts(limit=80), "漢語", "汉语", *golden_texts()]
    plain = [text for text in others if not set(text) & set("".join(texts))]
    assert tokenizer.encode(plain, 512) == before.tokenizer.encode(plain, 512)
    tokenizers_agree(tokenizer, [*others, *texts[:3], "ΓΆΤΑ ΝΕΡΌ"], 1 << 20)
    core = CoreTokenizer(core_library, write_piece_bundle(tmp_path / "core", tokenizer.content))
    assert core.encode("ΓΆΤΑ νερό") == tokenizer.encode(["ΓΆΤΑ νερό"], 512)[0]


def overrides(student, teacher, corpus, folder):
    coded = load_student(student).config.coded
    names = ["layers", "embedding.project", "embedding.position", "embedding.norm", *["embedding.code"] * coded]
    changes = {"corpora.text.path": corpus, "corpora.text.languages": "[ka]", "student.model": student,
               "student.vocabulary.add": 60, "teacher": teacher, "stages.table.steps": 6, "stages.table.max_length": 20,
               "stages.table.evaluate_every": 3, "stages.table.freeze": f"[{', '.join(names)}]", "threads": 1,
               "precision": "float32", "cache": folder / "cache", "stock_twin": "false",
               "heldout.share": 0.1}  # fmt: skip
    return [f"{key}={value}" for key, value in changes.items()]


def test_the_shipped_recipe_adds_a_language_and_reports_what_it_cost(student, tiny_teacher, corpus, tmp_path, capsys):
    result = distill("new-language", tmp_path / "run", overrides=overrides(student, tiny_teacher, corpus, tmp_path))
    comparisons = json.loads((tmp_path / "run" / "result.json").read_text())["languages"]
    assert [(comparison["texts"], comparison["language"]) for comparison in comparisons] == [
        ("held-out pairs", "ka"),
        ("embedded corpus", "en"),
    ]
    assert comparisons[1]["cosine"] > 0.99
    assert comparisons[1]["accuracy_before"] == comparisons[1]["accuracy_after"] == 100.0
    assert "## Languages before and after" in (result.student / "README.md").read_text()
    captured = capsys.readouterr()
    assert "| held-out pairs | ka |" in captured.out + captured.err
    # The table alone is trained.
    before, after = (
        load_student(tmp_path / "run" / "student-start").state_dict(),
        load_student(result.student).state_dict(),
    )
    assert {name for name in before if not torch.equal(before[name], after[name])} <= {"embedding.table.weight"}


def test_the_comparison_is_of_the_texts_themselves(extended):
    before, added = extended
    rows = [Row(source, target, "ka") for source, target in sentences(20, seed=5)]
    georgian, english = compare_languages(before, added.encoder, {"ka": rows})
    vectors = [encoder.encode([row.target for row in rows]) for encoder in (before, added.encoder)]
    lengths = [np.linalg.norm(encoded, axis=1) for encoded in vectors]
    assert georgian["cosine"] == pytest.approx(
        ((vectors[0] * vectors[1]).sum(1) / lengths[0] / lengths[1]).mean(), abs=1e-4
    )
    assert (georgian["pairs"], english["language"]) == (20, "en")


def test_mistakes_are_one_line(tiny_teacher, tiny_tree, corpus, tmp_path):
    for role in ("teacher", "assistant"):
        with pytest.raises(InputError, match=f"{role}: only the student's vocabulary can be extended"):
            parse(Recipe, tiny_tree | {role: {"model": "msdc-mini", "vocabulary": {"add": 9}}}, "x")
    with pytest.raises(InputError, match=r"student\.vocabulary\.add: .*greater than 0"):
        parse(Recipe, tiny_tree | {"student": {"model": "msdc-mini", "vocabulary": {"add": 0}}}, "x")
    addition = AddedVocabulary(add=60)
    with pytest.raises(InputError, match="needs a SentencePiece unigram vocabulary"):
        add_language(msdc.load_encoder(tiny_teacher), addition, Text(list(sentences(9))), tmp_path)
    before = msdc.load_encoder(tiny_models.student_folder())
    with pytest.raises(InputError, match="have no pairs"):
        add_language(before, addition, Text([("a house", "")]), tmp_path)


def test_too_little_text_is_a_warning(tmp_path, capsys):
    before = msdc.load_encoder(tiny_models.student_folder())
    added = add_language(before, AddedVocabulary(add=4000), Text(list(sentences(60))), tmp_path)
    assert f"only {len(added.rows) - before.tokenizer.size} of 4,000 new tokens" in capsys.readouterr().err


def test_the_recipe_says_what_to_bring():
    assert load_recipe("new-language", ["corpora.text.languages=[ka]"]).corpora[0].manual_download
