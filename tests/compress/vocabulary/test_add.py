"""Words of a domain as tokens: costs, other texts, the same ids from every tokenizer, training."""

import json

import numpy as np
import pytest
import tiny_models
import torch
from click.testing import CliRunner
from native_core import CoreTokenizer, write_compiled_bundle, write_piece_bundle
from stock_models import write_stock, write_xlmr
from tiny_models import LOOSE
from tokenizers import Tokenizer
from tokenizers.models import BPE
from web_tokenizers import ids_in_node, manifest_of, tokenizer_module

import msdc
from msdc.compress import add_words
from msdc.compress.cli import command
from msdc.compress.student.io import load_student, save_student
from msdc.compress.student.plan import plan_for
from msdc.compress.student.weights import integers
from msdc.compress.texts import quickstart_texts
from msdc.compress.vocabulary.add import in_contexts
from msdc.compress.vocabulary.extend import inner_ids, mean_rows, require_extendable, token_rows, with_new_rows
from msdc.compress.vocabulary.tokens import open_vocabulary
from msdc.distill import distill
from msdc.distill.recipe import Recipe, parse
from msdc.errors import InputError
from msdc.export.exporters import write_bundle
from msdc.export.golden import golden_texts, tokenizers_agree
from msdc.export.options import ExportSettings
from msdc.export.tokenizer.compile import compile_tokenizer
from msdc.text.quickstart import PARALLEL
from msdc.text.tokenizer import FastTokenizer, PieceTokenizer

TERMS = ["crankshaft", "Turbolader", "paracetamol", "hydrochlorothiazide", "potentiometer", "Kolbenring"]


@pytest.fixture(scope="module")
def terms(tmp_path_factory):
    path = tmp_path_factory.mktemp("terms") / "terms.txt"
    path.write_text("\n".join(TERMS), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A dense student, an int8 one with a coded table, a BERT (WordPiece), an XLM-R with a Unigram `tokenizer.json`."""
    folder = tmp_path_factory.mktemp("models")
    pieces = tiny_models.tokenizer().path
    save_student(tiny_models.student(), pieces, folder / "dense")
    coded = tiny_models.student(base_rows=60, nonzeros=3)
    save_student(coded, pieces, folder / "coded", plan=plan_for(coded, "int8"))
    write_stock(folder / "wordpiece", "bert")
    write_xlmr(folder / "unigram", quickstart_texts(), size=900)
    for model in (folder / "unigram").glob("*.model"):
        model.unlink()
    return folder


KINDS = ("dense", "coded", "wordpiece", "unigram")


@pytest.fixture(scope="module")
def extended(models, terms, tmp_path_factory):
    """Report and encoders before and after, by kind of model."""
    folder = tmp_path_factory.mktemp("extended")
    return {
        kind: (add_words(models / kind, output=folder / kind, terms=terms), msdc.load_encoder(models / kind),
               msdc.load_encoder(folder / kind))
        for kind in KINDS
    }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_terms_are_tokens_and_other_texts_stay(extended, kind):
    report, before, after = extended[kind]
    assert (report.terms, report.words, report.added, report.existing) == (6, 6, 6, 0)
    assert report.vocabulary_after == report.vocabulary_before + 6 == after.tokenizer.size
    assert (report.tokens_after, report.tokens_before > 3) == (1.0, True)
    assert [len(ids) for ids in inner_ids(after.tokenizer, TERMS)] == [1] * 6
    assert len({ids[0] for ids in inner_ids(after.tokenizer, TERMS)}) == 6
    assert report.proofs[0].changed_share == 0.0
    texts = quickstart_texts(["de", "en"], limit=80)
    assert np.abs(before.encode(texts) - after.encode(texts)).max() < 1e-6
    if kind != "wordpiece":  # whose table has rows without a token, which are dropped
        assert 0 < report.bytes_added < 2000


def test_a_fitted_row_is_nearer_than_the_mean(terms, tmp_path):
    """In sentences that it was not fitted on, for the model that ships."""
    report = add_words(output=tmp_path / "out", terms=terms)
    before, after = msdc.load_encoder("msdc-mini"), msdc.load_encoder(tmp_path / "out")
    texts = in_contexts(TERMS, [text for text in quickstart_texts(["en"]) if len(text.split()) > 3], 40)
    old_ND, fitted_ND, student = before.encode(texts), after.encode(texts), after.module
    new = [ids[0] for ids in inner_ids(after.tokenizer, TERMS)]
    mean_NE = mean_rows(token_rows(before.module), inner_ids(before.tokenizer, TERMS))
    weight_N1 = student.embedding.code.weight[new, 0].detach()[:, None]
    with torch.no_grad():
        student.embedding.table.weight[student.embedding.code.index[new, 0].long()] = mean_NE / weight_N1
    fitted, mean = (float((old_ND * new_ND).sum(1).mean()) for new_ND in (fitted_ND, after.encode(texts)))
    assert fitted > mean + 0.02
    assert report.with_terms.mean_cosine == pytest.approx(fitted, abs=0.05)


def test_a_quantized_code_keeps_its_integers_and_gains_base_rows(models, extended):
    before, after = load_student(models / "coded"), load_student(extended["coded"][2].folder)
    assert after.config.table_rows == before.config.table_rows + 6
    old, new = (integers(student, student.stored_plan) for student in (before, after))
    for name, part in old.items():
        rows = part.values.shape[0]
        assert np.array_equal(new[name].values[:rows], part.values), name
    # Of a new row one weight counts, as large as the code's scale allows.
    weights = after.embedding.code.weight[-6:]
    assert (weights[:, 1:] == 0).all()
    assert (weights[:, 0] > 0.5).all()


def test_rows_of_a_float_code_are_exact():
    student = tiny_models.student(base_rows=60, nonzeros=3)
    rows_NE = torch.randn(4, 32)
    larger = with_new_rows(student, rows_NE)
    assert torch.equal(token_rows(larger)[-4:], rows_NE)
    assert torch.equal(token_rows(larger)[:-4], token_rows(student))


@pytest.mark.parametrize("kind", KINDS)
def test_every_tokenizer_reads_the_new_vocabulary_alike(extended, kind, core_library, tmp_path):
    """The library, the `tokenizer.json` twin, the native core and the web module."""
    tokenizer = extended[kind][2].tokenizer
    texts = [*golden_texts(), *TERMS, *map(str.upper, TERMS), *in_contexts(TERMS, quickstart_texts(), 3),
             *(f"{term}s ({term}-{term})" for term in TERMS)]  # fmt: skip
    expected_ids = tokenizer.encode(texts, 1 << 20)
    if isinstance(tokenizer, PieceTokenizer):
        tokenizers_agree(tokenizer, texts, 1 << 20)
        bundle = write_piece_bundle(tmp_path / "core", tokenizer.content)
        file, reader = tokenizer.path, "sentencepiece"
    else:
        raw = compile_tokenizer(tokenizer.path)
        bundle = write_compiled_bundle(tmp_path / "core", raw)
        file, reader = tmp_path / "tokenizer.bin", "tokenizer-json"
        file.write_bytes(raw)
    core = CoreTokenizer(core_library, bundle)
    assert [core.encode(text) for text in texts] == expected_ids
    assert ids_in_node(tokenizer_module(tmp_path / "sources"), file, manifest_of(reader), texts) == expected_ids


@pytest.mark.parametrize("kind", ["dense", "coded"])
def test_it_is_exported_through_the_gates(extended, kind, tmp_path):
    after = extended[kind][2]
    options = ExportSettings(runtime="onnx", precision="int8", thresholds=LOOSE)
    write_bundle(load_student(after.folder), after.tokenizer, tmp_path / "bundle", options=options)
    texts = in_contexts(TERMS, quickstart_texts(["en"]), 1)
    vectors_ND, expected_ND = msdc.load_bundle(tmp_path / "bundle").encode(texts), after.encode(texts)
    assert (vectors_ND * expected_ND).sum(1).min() > 0.9


def test_lines_that_do_not_become_a_token_are_counted(models, tmp_path, capsys):
    path = tmp_path / "terms.txt"
    path.write_text("crankshaft\n\nCrankshaft\n  crankshaft \nMax ring-kolben\na\nαβγ\n", encoding="utf-8")
    report = add_words(models / "dense", output=tmp_path / "out", terms=path)
    # "Max ring-kolben": max, ring and so on; "a" is a token, and so may be other words.
    assert (report.terms, report.repeated, report.several) == (5, 1, 1)
    assert report.words - report.existing == report.added
    assert report.unknown == 1
    captured = capsys.readouterr()
    assert "1 more lines repeat one" in captured.out + captured.err
    assert "1 words have characters outside the vocabulary, so" in captured.err
    with pytest.raises(InputError, match="are tokens of out already"):
        add_words(tmp_path / "out", output=tmp_path / "again", terms=path)
    path.write_text("\n \n")
    with pytest.raises(InputError, match="contains no terms"):
        add_words(models / "dense", output=tmp_path / "none", terms=path)


def test_a_word_without_spaces_around_it_is_a_token_inside_a_text(models, tmp_path):
    path = tmp_path / "terms.txt"
    path.write_text("布洛芬\n")
    report = add_words("msdc-mini", output=tmp_path / "out", terms=path)
    assert (report.added, report.words) == (2, 1)
    tokenizer = msdc.load_encoder(tmp_path / "out").tokenizer
    names = [tokenizer.processor.id_to_piece(i) for i in tokenizer.encode(["他每天服用布洛芬。", "布洛芬"], 64)[0]]
    assert "布洛芬" in names


def test_a_bpe_takes_no_words(tmp_path):
    Tokenizer(BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")])).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match="of kind BPE takes no new tokens"):
        require_extendable(open_vocabulary(FastTokenizer(tmp_path / "tokenizer.json")))


def test_command(models, terms, tmp_path):
    arguments = ["vocabulary", str(models / "dense"), "-o", str(tmp_path / "out"), "--add", str(terms)]
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert "6 new tokens of 6 terms" in result.stdout
    assert "> 1.00" in result.stdout
    mixed = CliRunner().invoke(command, [*arguments, "--size", "300"])
    assert mixed.exit_code == 2
    assert "--add cannot be used with --size" in mixed.output
    again = CliRunner().invoke(command, [*arguments, "--force", "--json"], catch_exceptions=False)
    assert json.loads(again.stdout)["added"] == 6


@pytest.mark.parametrize("kind", ["dense", "coded"])
def test_a_recipe_trains_the_table_alone(extended, kind, tiny_teacher, tmp_path):
    """docs/guides/compress.md shows these lines; rows of tokens that the text lacks stay too."""
    mine = extended[kind][2].folder
    text = tmp_path / "text.txt"
    text.write_text("\n".join(in_contexts(TERMS, quickstart_texts(["en"]), 5)), encoding="utf-8")
    code = ["embedding.code"] if kind == "coded" else []
    stage = {"name": "rows", "teacher": "teacher", "objective": "multilingual_mse", "steps": 4, "batch": 8,
             "max_length": 20, "learning_rate": 1e-3, "table_learning_rate": 3e-2,
             "freeze": ["layers", "embedding.project", "embedding.position", "embedding.norm", *code]}  # fmt: skip
    tree = {"name": "rows", "teacher": str(tiny_teacher), "assistant": None, "student": {"model": str(mine)},
            "corpora": [{"path": str(text), "kind": "text"},
                        {"path": str(PARALLEL),
                         "languages": ["de"]}],
            # Without validation the last weights are kept.
            "heldout": {"pairs": 1, "share": 1e-6, "min_pairs_per_language": 0}, "threads": 1, "precision": "float32",
            "cache": str(tmp_path / "c"), "stock_twin": False, "stages": [stage]}  # fmt: skip
    distill(parse(Recipe, tree, "test"), output=tmp_path / "run")
    before, after = load_student(mine).state_dict(), load_student(tmp_path / "run" / "student").state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"embedding.table.weight"}
