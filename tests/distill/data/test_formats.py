"""Which format reads a corpus file, by `kind` and suffix."""

from pathlib import Path

import pytest

from msdc.distill.data.formats import FORMATS, KINDS, find_format, has_target


@pytest.mark.parametrize(
    ("name", "kind", "reader"),
    [
        ("a.en-de.tsv.gz", "auto", "_table"),
        ("a.tsv", "triples", "_table"),
        ("a.txt", "auto", "_text"),
        ("a.txt.gz", "auto", "_text"),
        ("a.txt", "pairs", "_table"),
        ("a.tsv", "text", "_text"),
        ("a.po", "pairs", "_gettext"),
        ("a.mo.txt", "gettext", "_gettext"),
        ("a.parquet", "text", "_parquet"),
        ("a.po", "dictionary", "_dictionary"),
        ("a.parquet", "nli", "read_nli"),
        ("a.tsv", "nli-pairs", "read_nli_pairs"),
        ("a.csv", "scored", "_scored"),
        ("a.csv.gz", "auto", "_table"),
        ("a.csv", "text", "_table"),
        ("a.jsonl", "text", "_json_lines"),
        ("a.tmx.gz", "pairs", "read_tmx"),
        ("a.xlf", "auto", "read_xliff"),
    ],
)
def test_kind_and_suffix_choose_the_format(name, kind, reader):
    assert find_format(Path(name), kind).read.__name__ == reader


def test_kinds_are_those_of_the_records():
    assert {"auto", *(one.kind for one in FORMATS if one.kind)} == set(KINDS)
    assert [kind for kind in KINDS if not has_target(kind)] == ["nli", "nli-pairs", "scored", "text", "triples"]
    named = [one.kind for one in FORMATS if one.kind]
    assert len(set(named)) == len(named)
