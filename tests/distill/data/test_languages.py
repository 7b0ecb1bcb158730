"""Which language a text is in: what the user gives wins over names, a name must contain the source language, and codes
are compared as BCP 47 tags."""

import json
import re

import pytest

from msdc.distill.corpus import describe_corpus
from msdc.distill.data.columns import code_of, fits, is_language
from msdc.distill.data.corpora import TEST_SET_IN_NAME, open_corpus
from msdc.distill.recipe import Corpus
from msdc.errors import InputError

PAIRS = "This is a sentence.\tDas ist ein Satz.\nA second one.\tNoch einer.\n"


@pytest.mark.parametrize(
    ("have", "asked", "expected"),
    [
        ("de", "de", True), ("de-AT", "de", True), ("de", "de-AT", True), ("de-AT", "de-DE", False),
        ("deu", "de", True), ("zh_CN", "zh-Hans", True), ("zh-TW", "zh-Hant", True), ("zh-Hans", "zh-Hant", False),
        ("zh-Hant", "zh", True), ("sr", "sr-Latn", False), ("sr-Latn", "sr-Latn", True), ("sr-Cyrl", "sr-Latn", False),
        ("pt-PT", "pt-BR", False), ("pt", "pt-BR", True), ("en-US", "en", True), ("en", "en-US", True),
        ("nl", "de", False), ("no code", "de", False), ("x1", "x1", True),
    ],
)  # fmt: skip
def test_codes_fit_as_language_tags(have, asked, expected):
    assert fits(have, asked) == expected


def test_what_is_a_code():
    codes = {
        name: code_of(name) for name in ("de", "zh_CN", "translation.de", "German", "Hi", "hej", "src", "pos", "text")
    }
    assert codes == {"de": "de", "zh_CN": "zh-CN", "translation.de": "de", "German": "de"} | dict.fromkeys(
        ("Hi", "hej", "src", "pos", "text")
    )
    assert is_language("zh-Hant")
    assert not is_language("hej")
    assert not is_language("")


@pytest.mark.parametrize("name", ["my-set.tsv", "is-it.tsv", "to-do.tsv", "no-or.txt.tsv", "notes.tsv", "x.fr-es.tsv"])
def test_a_name_without_the_source_language_decides_nothing(tmp_path, name):
    path = tmp_path / name
    path.write_text(PAIRS)
    with pytest.raises(InputError, match="the language of its translations is unknown"):
        open_corpus(Corpus(path=str(path)))
    (source,) = open_corpus(Corpus(path=str(path), languages=("de",)))
    assert (source.language, source.why, len(list(source.read()))) == ("de", "as given", 2)


def test_the_user_wins_over_a_name_and_files_of_a_folder_are_chosen_by_name(tmp_path):
    for name in ("a.en-fr.tsv", "b.en-de.tsv", "c.en-zh_TW.tsv", "picture.png"):
        (tmp_path / name).write_text(PAIRS)
    (source,) = open_corpus(Corpus(path=str(tmp_path / "a.en-fr.tsv"), languages=("de",)))
    assert (source.language, source.why) == ("de", "as given, not fr as in its name")
    parts = describe_corpus(str(tmp_path), {"languages": ("de", "zh-Hant", "nl")})
    read, errors = [part for part in parts if not part.error], [part.error for part in parts if part.error]
    assert [(part.language, part.why, part.rows) for part in read] == [
        ("de", "by its name", 2),
        ("zh-Hant", "by its name", 2),
    ]
    assert [error.rpartition("/")[2] for error in errors] == [
        "picture.png: no file of text, by its name", "a.en-fr.tsv: in another language",
        f"{tmp_path.name}: no text in nl",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("extra_columns", "message"), [({}, r"no column 'en' \(have de, fr\)"), ({"note": "My own words."}, None)]
)
def test_columns_of_languages_without_the_source_are_an_error_of_that_name(tmp_path, extra_columns, message):
    """Only where all columns are languages: `de` and `fr` next to others may be anything."""
    path = tmp_path / "rows.jsonl"
    path.write_text((json.dumps({"de": "Hallo Welt.", "fr": "Bonjour le monde.", **extra_columns}) + "\n") * 3)
    with pytest.raises(InputError) as caught:
        open_corpus(Corpus(path=str(path)))
    assert re.search(message, str(caught.value)) if message else "no column 'en'" not in str(caught.value)


def units(*rows):
    variants = ("".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in row) for row in rows)
    return "<tmx><body>" + "".join(f"<tu>{unit}</tu>" for unit in variants) + "</body></tmx>"


def test_variants_of_a_language_in_a_translation_memory(tmp_path):
    path = tmp_path / "memory.tmx"
    path.write_text(units(
        [("en-US", "One."), ("de-AT", "Eins."), ("pt-PT", "Um PT."), ("pt-BR", "Um BR."), ("de-AT", "Eine.")],
        [("en", "Two."), ("de", "Zwei."), ("pt-BR", "Dois.")],
    ))  # fmt: skip

    def read(**options):
        sources = open_corpus(Corpus(path=str(path), **options))
        return {source.language: [(row.source, row.target) for row in source.read()] for source in sources}

    german = [("One.", "Eins."), ("One.", "Eine."), ("Two.", "Zwei.")]
    brazil = [("One.", "Um BR."), ("Two.", "Dois.")]
    assert read(languages=("de",)) == read(languages=("de",), source="en-US") == {"de": german}
    assert read(languages=("pt-BR",)) == {"pt-BR": brazil}
    assert set(read()) == {"de", "pt-PT", "pt-BR"}
    assert read()["de"] == german
    with pytest.raises(InputError, match=r"nothing in the wanted languages \(fr\)"):
        read(languages=("fr",))


@pytest.mark.parametrize(
    ("name", "is_test"),
    [(name, False) for name in ("latest-scores", "contest", "greatest_hits", "attested", "xtest", "dev")]
    + [(name, True) for name in ("test", "sts-test", "stsb_test_set", "testset", "devtest.en", "STS2017.en", "sts14")],
)  # fmt: skip
def test_names_of_test_sets(name, is_test):
    assert bool(TEST_SET_IN_NAME.search(f"{name}.tsv".lower())) == bool(is_test)


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("a.csv", "Hello,Hallo\nThis is one.,Das ist eins.\n", 2),
        ("b.tsv", "Hi\tHej\nA text.\tEn text.\n", 2),
        ("c.tsv", "so\tda\nA text.\tEn text.\n", 2),
        ("d.csv", "en,de\nA text.,Ein Text.\n", 1),
        ("e.csv", "id,frage,antwort\n1,A text.,Ein Text.\n2,B text.,Zwei Text.\n", 2),
        ("f.csv", "NA,A text.,Ein Text.\n2,B text.,Zwei Text.\n", 2),
        ("g.csv", "question,answer\nA text.,Ein Text.\n", 2),
    ],
)
def test_a_first_row_is_a_header_only_if_it_must_be(tmp_path, name, content, rows):
    (tmp_path / name).write_text(content, encoding="utf-8")
    (part,) = describe_corpus(str(tmp_path / name), {"languages": ("de",)})
    assert part.rows == rows
    for header, count in ((True, content.count("\n") - 1), (False, content.count("\n"))):
        (part,) = describe_corpus(str(tmp_path / name), {"languages": ("de",), "header": header, "columns": ()})
        assert part.rows == count or part.error, (header, part)
    guessed = "(a guess)" in describe_corpus(str(tmp_path / name), {"languages": ("de",)})[0].form
    assert guessed == (name[0] in "abcg")


def test_half_of_a_surrogate_pair_is_counted_and_refused(tmp_path):
    from msdc.text.tabular import iterate_texts

    path = tmp_path / "cut.en-de.jsonl"
    lines = [json.dumps({"en": f"Bus {n}.", "de": f"Der Bus {n}."}) for n in range(4)]
    path.write_text("\n".join([*lines[:2], '{"en": "A \\ud83d here.", "de": "Ein Lächeln."}', *lines[2:]]) + "\n")
    (part,) = describe_corpus(str(path), {})
    assert part.rows == 4
    assert part.dropped == [{"why": "half of a surrogate pair", "rows": 1, "lines": [3]}]
    with pytest.raises(InputError, match=r"cut\.en-de\.jsonl line 3: column 'en' has half of a surrogate pair"):
        list(iterate_texts(path, "en"))
