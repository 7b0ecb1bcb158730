"""Trimmed vocabularies: what stays, which ids, and that unchanged text keeps its vector, for every tokenizer kind."""

import json
import re
import shutil

import numpy as np
import pytest
import tiny_models
import torch
from click.testing import CliRunner
from stock_models import TEXTS, write_stock, write_xlmr

import msdc
from msdc.compress.cli import command
from msdc.compress.student.io import load_student, save_student
from msdc.compress.student.model import Student, StudentConfig
from msdc.compress.student.plan import plan_for
from msdc.compress.student.weights import integers
from msdc.compress.texts import quickstart_texts, read_texts
from msdc.compress.vocabulary.comparison import prove, read_languages
from msdc.compress.vocabulary.tokens import open_vocabulary
from msdc.compress.vocabulary.trim import LANGUAGES, Alphabet, choose_tokens, trim
from msdc.errors import GateError, InputError
from msdc.text.quickstart import parallel_table
from msdc.text.tokenizer import PieceTokenizer

SENTENCES = quickstart_texts()


def trimmed(model, out, **wish):
    report = trim(str(model), output=out, **wish)
    return report, msdc.load_encoder(out)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "de.txt"
    path.write_text("\n".join(quickstart_texts(["de"])), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def piece_student(tmp_path_factory):
    """A tiny student with a SentencePiece vocabulary of 3,000 pieces over eight languages."""
    tokenizer = tiny_models.tokenizer(3000)
    torch.manual_seed(0)
    student = Student(StudentConfig(vocabulary=tokenizer.size, hidden=32, heads=4, intermediate=48, unit=1, repeats=2,
                                    bottleneck=16, positions=48)).eval()  # fmt: skip
    return save_student(student, tokenizer.path, tmp_path_factory.mktemp("pieces") / "student")


@pytest.fixture(scope="module")
def xlmr(tmp_path_factory):
    return write_xlmr(tmp_path_factory.mktemp("xlmr") / "model", SENTENCES, size=2500)


def test_pieces_by_language_keep_their_rows(piece_student, tmp_path):
    report, after = trimmed(piece_student, tmp_path / "out", languages=("de", "en"))
    names = [after.tokenizer.processor.id_to_piece(i) for i in range(after.tokenizer.size)]
    assert names[:4] == ["<pad>", "<unk>", "<s>", "</s>"]
    assert not any("\u0600" <= letter <= "\u06ff" for name in names for letter in name)
    assert "ß" in "".join(names)
    assert report.vocabulary_after == len(names) < report.vocabulary_before
    assert after.module.config.vocabulary == len(names)
    proof = report.proofs[0]
    assert proof.unchanged_max_abs == 0.0
    assert proof.changed_share < 0.05
    old, new = PieceTokenizer(piece_student / "tokenizer.model").processor, after.tokenizer.processor
    rows = [old.piece_to_id(name) for name in names]
    tables = [encoder.module.embedding.table.weight for encoder in (msdc.load_encoder(piece_student), after)]
    assert torch.equal(tables[0][rows], tables[1])
    assert [old.get_score(row) for row in rows] == [new.get_score(index) for index in range(len(names))]


def test_pieces_by_corpus_leave_the_corpus_unchanged(piece_student, tmp_path, corpus):
    report, after = trimmed(piece_student, tmp_path / "out", corpus=(corpus,), languages=("de",))
    assert report.proofs[1].changed_share == 0.0
    assert report.proofs[1].unchanged_max_abs == 0.0
    texts = read_texts(corpus)[:50]
    before = msdc.load_encoder(piece_student)
    assert np.array_equal(before.encode(texts), after.encode(texts))
    # Nothing in the corpus became unknown.
    assert not any(after.tokenizer.unk_id in row for row in after.tokenize(texts))


def test_a_size_is_met_and_the_frequent_pieces_win(piece_student, tmp_path, corpus):
    report, after = trimmed(piece_student, tmp_path / "out", corpus=(corpus,), languages=("de",), size=600)
    assert 595 < report.vocabulary_after == after.tokenizer.size <= 600
    with pytest.raises(InputError, match="is too small: "):
        trim(str(piece_student), output=tmp_path / "no", languages=("ar",), size=20)
    assert not (tmp_path / "no").exists()


def test_a_size_keeps_the_tokens_that_the_corpus_uses_most():
    """Counted again by hand, for a corpus whose frequent tokens are rare in the vocabulary's own training text."""
    vocabulary = open_vocabulary(tiny_models.tokenizer(3000))
    scored = [index for index, token in enumerate(vocabulary.tokens) if token.text and len(token.text) > 2]
    counts = {vocabulary.tokens[index].row: 1000 - rank for rank, index in enumerate(reversed(scored))}
    chosen_indices = set(choose_tokens(vocabulary, counts=counts, size=1000))
    by_count = sorted(scored, key=lambda index: -counts[vocabulary.tokens[index].row])
    chosen = [index in chosen_indices for index in by_count]
    assert 0 < sum(chosen) < len(chosen)
    # Below the last one that found room, only the token of the lowest score is kept for its score.
    last = sum(chosen) - 1
    assert all(chosen[:last])
    assert sum(chosen[last:]) <= 2


def test_of_tokens_that_are_used_equally_often_the_likeliest_stay():
    vocabulary = open_vocabulary(tiny_models.tokenizer(3000))
    scored = [index for index, token in enumerate(vocabulary.tokens) if token.text and len(token.text) > 2]
    chosen_indices = set(
        choose_tokens(vocabulary, counts={vocabulary.tokens[index].row: 1 for index in scored}, size=1000)
    )
    chosen = [index in chosen_indices for index in sorted(scored, key=lambda index: -vocabulary.tokens[index].score)]
    last = sum(chosen) - 1
    assert 0 < last < len(chosen) - 1
    assert all(chosen[:last])
    assert sum(chosen[last:]) <= 2


def test_the_proof_counts_what_changed(piece_student, tmp_path, corpus):
    """Each figure from the ids and vectors of both encoders: the cosine is of the texts that changed alone."""
    _, after = trimmed(piece_student, tmp_path / "out", corpus=(corpus,), languages=("de",), size=600)
    before, texts = msdc.load_encoder(piece_student), read_texts(corpus)[:60]
    names = [after.tokenizer.processor.id_to_piece(index) for index in range(after.tokenizer.size)]
    rows = [before.tokenizer.processor.piece_to_id(name) for name in names]
    proof = prove(before, after, rows, texts, "x")
    old, new = before.tokenize(texts), after.tokenize(texts)
    changed = [
        text for text, old_row, new_row in zip(texts, old, new, strict=True) if old_row != [rows[i] for i in new_row]
    ]
    assert 0 < len(changed) < len(texts) == proof.texts
    assert proof.changed_share == pytest.approx(len(changed) / 60)
    first_ND, second_ND = before.encode(changed), after.encode(changed)
    cosine_N = (first_ND * second_ND).sum(1) / np.linalg.norm(first_ND, axis=1) / np.linalg.norm(second_ND, axis=1)
    assert proof.changed_mean_cosine == pytest.approx(cosine_N.mean(), abs=1e-6)
    assert cosine_N.mean() < 0.9999
    assert proof.unchanged_max_abs < 1e-6
    assert (proof.tokens_before, proof.tokens_after) == tuple(np.mean([len(row) for row in ids]) for ids in (old, new))


def test_a_quantized_student_keeps_its_integers(piece_student, tmp_path):
    student = load_student(piece_student)
    plan = plan_for(student, "int8")
    save_student(student, piece_student / "tokenizer.model", tmp_path / "q", plan=plan)
    _, after = trimmed(tmp_path / "q", tmp_path / "out", languages=("en",))
    old, new = PieceTokenizer(piece_student / "tokenizer.model").processor, after.tokenizer.processor
    rows = [old.piece_to_id(new.id_to_piece(index)) for index in range(new.get_piece_size())]
    name = "embedding.table.weight"
    full, part = integers(student, plan)[name], integers(after.module, plan_for(after.module, "int8"))[name]
    assert np.array_equal(part.values, full.values[rows])
    assert np.array_equal(part.scale, full.scale[rows])


def test_xlmr_loses_fairseqs_offset(xlmr, tmp_path):
    from sentence_transformers import SentenceTransformer

    report, after = trimmed(xlmr, tmp_path / "out", languages=("de", "fr", "en"))
    assert report.tokenizer == "tokenizer.model"
    assert report.vocabulary_after < report.vocabulary_before
    pieces = after.tokenizer.processor
    # The id of a piece is its row: the old row was the `.model`'s id + 1.
    old = PieceTokenizer(xlmr / "sentencepiece.bpe.model").processor
    table = load_student(xlmr).embedding.table.weight
    small = load_student(tmp_path / "out")
    for index in range(4, pieces.get_piece_size()):
        row = table[old.piece_to_id(pieces.id_to_piece(index)) + 1]
        assert torch.equal(small.embedding.table.weight[index], row)
    assert [pieces.id_to_piece(i) for i in range(4)] == ["<pad>", "<unk>", "<s>", "</s>"]
    assert torch.equal(small.embedding.table.weight[:4], table[[1, 3, 0, 2]])
    # A stock model stays one that plain sentence-transformers loads, with the vectors it had.
    texts = quickstart_texts(["de", "fr"], limit=60)
    oracle = SentenceTransformer(str(xlmr), device="cpu").encode(texts)
    stock = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(texts)
    same = np.abs(stock - oracle).max(1) < 1e-5
    assert same.mean() > 0.9
    assert np.abs(after.encode(texts) - stock).max() < 1e-5


def test_xlmr_with_a_step_outside_its_model_keeps_its_tokenizer_json(xlmr, tmp_path):
    folder = tmp_path / "lower"
    shutil.copytree(xlmr, folder)
    raw = json.loads((folder / "tokenizer.json").read_text())
    raw["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, raw["normalizer"]]}
    (folder / "tokenizer.json").write_text(json.dumps(raw))
    # The class of its own would build its own normalizer.
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"tokenizer_class": "PreTrainedTokenizerFast"}))
    report, after = trimmed(folder, tmp_path / "out", languages=("de",))
    assert report.tokenizer == "tokenizer.json"
    assert report.proofs[0].changed_share < 0.02
    assert report.proofs[0].unchanged_max_abs < 1e-6
    assert after.tokenizer.encode(["HAUS"], 9) == after.tokenizer.encode(["haus"], 9)


def test_word_pieces(tiny_teacher, tmp_path):
    from sentence_transformers import SentenceTransformer

    text = tmp_path / "texts.txt"
    text.write_text("\n".join(TEXTS[:4]))
    report, after = trimmed(tiny_teacher, tmp_path / "out", corpus=(text,))
    assert report.proofs[1].changed_share == 0.0
    oracle = SentenceTransformer(str(tiny_teacher), device="cpu").encode(TEXTS[:4])
    stock = SentenceTransformer(str(tmp_path / "out"), device="cpu").encode(TEXTS[:4])
    assert np.abs(stock - oracle).max() < 1e-6
    assert np.abs(after.encode(TEXTS[:4]) - oracle).max() < 1e-5
    raw = json.loads((tmp_path / "out/tokenizer.json").read_text())
    vocabulary = raw["model"]["vocab"]
    assert sorted(vocabulary.values()) == list(range(len(vocabulary)))
    assert len(vocabulary) == report.vocabulary_after
    for token in raw["added_tokens"]:
        assert vocabulary[token["content"]] == token["id"]


def byte_level(folder, texts):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    backend.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=900, special_tokens=special, show_progress=False,
                                initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))  # fmt: skip
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True)
    backend.save(str(folder / "tokenizer.json"))
    return backend.get_vocab_size()


def test_byte_level_bpe(tmp_path, corpus):
    import transformers

    folder = write_stock(tmp_path / "roberta", "roberta", max_seq_length=None)
    size = byte_level(folder, SENTENCES)
    config = transformers.RobertaConfig(vocab_size=size, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
                                        intermediate_size=48, max_position_embeddings=66, pad_token_id=1)  # fmt: skip
    transformers.RobertaModel(config).save_pretrained(folder)
    report, after = trimmed(folder, tmp_path / "out", corpus=(corpus,))
    assert report.vocabulary_after < size
    assert report.proofs[1].changed_share < 0.05
    assert report.proofs[1].unchanged_max_abs < 1e-6
    texts = read_texts(corpus)[:40]
    assert [after.tokenizer.backend.decode(row) for row in after.tokenize(texts)] == texts


def test_a_wrong_vector_fails_the_proof(piece_student, tmp_path):
    before, after = msdc.load_encoder(piece_student), msdc.load_encoder(piece_student)
    with torch.no_grad():
        after.module.embedding.table.weight[2] += 1
    with pytest.raises(GateError, match="vectors of unchanged texts differ"):
        prove(before, after, range(before.tokenizer.size), SENTENCES[:8], "x")


@pytest.mark.parametrize("limit", [1, 7, 100, 10**6])
def test_a_limit_spreads_the_sentences_over_the_corpus(limit):
    """Evenly, so that no meaning is repeated in all languages while another is left out."""
    every = quickstart_texts(["de", "tr"])
    sample, count = quickstart_texts(["de", "tr"], limit), min(limit, len(every))
    assert sample == [every[number * len(every) // count] for number in range(count)]


def test_alphabets():
    german = Alphabet(["de"])
    assert german.writes("Straße")
    assert german.writes("2,5€")
    assert german.writes("é")
    assert not german.writes("été")
    assert not german.writes("дом")
    assert german.writes("🙂")
    assert Alphabet(["ar"]).writes("السلام؟")
    assert not Alphabet(["ar"]).writes("hello")
    assert Alphabet(["tr"]).writes("İstanbul")
    assert Alphabet(["ja"]).writes("東京タワー")
    assert Alphabet(["en", "ru"]).writes("Москва")
    assert {"en", "de", "es", "fr", "it", "nl", "tr", "ar"} <= set(LANGUAGES)
    with pytest.raises(InputError, match="language 'xx' is unknown; known: af, am"):
        Alphabet(["xx"])


def test_command(piece_student, tmp_path):
    run = CliRunner().invoke
    arguments = ["vocabulary", str(piece_student), "-o", str(tmp_path / "out"), "--languages", "nl, it"]
    result = run(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "tokens" in result.stdout
    assert "embedded corpus" in result.stdout
    again = run(command, arguments)
    assert isinstance(again.exception, InputError)
    assert "exists already" in str(again.exception)
    forced = run(command, [*arguments, "--force", "--json"], catch_exceptions=False)
    assert json.loads(forced.stdout)["vocabulary_after"] == msdc.load_encoder(tmp_path / "out").tokenizer.size
    nothing = run(command, ["vocabulary", str(piece_student), "-o", str(tmp_path / "x")])
    assert "state what to keep" in str(nothing.exception)


def test_a_vocabulary_that_loses_too_much_is_refused_with_a_size_that_passes(piece_student, tmp_path, capsys):
    with pytest.raises(
        GateError, match=r"\(en\): \d+\.\d% of the texts.*below `least_cosine`.*`size` \d+ reaches it"
    ) as error:
        trim(piece_student, output=tmp_path / "out", size=300)
    assert not (tmp_path / "out").exists()
    size = int(re.search(r"`size` (\d+)", str(error.value))[1])
    capsys.readouterr()
    report = trim(piece_student, output=tmp_path / "out", size=size)
    (proof,) = report.proofs
    assert proof.mean_cosine >= 0.98
    assert proof.mean_cosine == pytest.approx(1 - proof.changed_share * (1 - proof.changed_mean_cosine))
    # What is allowed and yet noticeable is a warning with the same figures.
    assert f"{proof.changed_share:.1%} of the texts" in capsys.readouterr().err


@pytest.mark.parametrize("least", [-0.1, 1.1])
def test_a_limit_that_is_no_cosine(piece_student, tmp_path, least):
    with pytest.raises(InputError, match="`least_cosine` "):
        trim(piece_student, output=tmp_path / "out", size=600, least_cosine=least)


def test_without_a_limit_any_vocabulary_is_written(piece_student, tmp_path, capsys):
    with pytest.raises(GateError, match="nothing was written"):
        trim(piece_student, output=tmp_path / "out", size=300)
    trim(piece_student, output=tmp_path / "out", size=300, least_cosine=0)
    assert "have a mean cosine of" in capsys.readouterr().err


def test_a_model_is_compared_on_the_languages_that_it_reads():
    assert read_languages(msdc.load_encoder("all-MiniLM-L6-v2")) == ["en"]
    assert read_languages(msdc.load_encoder("msdc-mini")) == parallel_table()[0]


def test_a_corpus_alone_decides(piece_student, tmp_path, corpus, capsys):
    """Text outside the corpus may change, which is a warning; files of one name are two sets of texts."""
    (tmp_path / "other").mkdir()
    twin = tmp_path / "other" / corpus.name
    twin.write_text("\n".join(quickstart_texts(["tr"])), encoding="utf-8")
    report = trim(piece_student, output=tmp_path / "out", corpus=(corpus,))
    assert [proof.source for proof in report.proofs] == ["embedded corpus (en)", corpus.name]
    assert report.proofs[0].mean_cosine < 0.98 <= report.proofs[1].mean_cosine
    assert "embedded corpus (en): " in capsys.readouterr().err
    with pytest.raises(GateError, match=f"^{corpus.name}: "):
        trim(piece_student, output=tmp_path / "no", corpus=(corpus,), check=(twin,))


def test_what_is_not_measured_or_not_removed_is_a_warning(piece_student, tmp_path, capsys):
    trim(piece_student, output=tmp_path / "out", languages=("pl",))
    assert "has no text in pl: nothing is measured" in capsys.readouterr().err
    trim(piece_student, output=tmp_path / "all", size=50_000)
    assert "nothing is removed" in capsys.readouterr().err


def test_a_file_without_text(tmp_path):
    (tmp_path / "empty.txt").write_bytes(b"\n\n")
    with pytest.raises(InputError, match="no text"):
        read_texts(tmp_path / "empty.txt")
