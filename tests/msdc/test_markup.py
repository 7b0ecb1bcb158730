"""Text of Markdown, HTML and Org as a reader sees it, and what is bounded on damaged or hostile sources."""

from __future__ import annotations

from datetime import date, datetime
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msdc import InputError, markup_document
from msdc.progress import warnings_to
from msdc.text import markup
from msdc.text.markup import Kind

KINDS = get_args(Kind)


def text(source: str, kind: Kind = "markdown") -> str:
    return markup_document(source, kind)["text"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Grind **the** _beans_, ~~not~~ ==now==.", "Grind the beans, not now."),
        ("See [March](https://example.com/a?b=c) and [[Projects/House|the house]].", "See March and the house."),
        ("[[Boiler]] [[House#Heat]] [[House#^b1]] ![[photo.png]]", "Boiler House > Heat House photo.png"),
        ("![meter](data:image/png;base64,QUJD) ![a *b*](c.png)", "meter a b"),
        ("![m](data:image/svg+xml;utf8,%3Csvg) data:image/png;base64,QUJD end", "m end"),
        ("[a] here\n\n[a]: data:image/png;base64,QUJD", "a here"),
        ("# One\nTwo\n===\n### Three ###\ntext", "One\n\nTwo\n\nThree\n\ntext"),
        ("a\n\n```py\ndef f():\n\n    return '*x*'\n```\nb", "a\n\ndef f():\n\n    return '*x*'\n\nb"),
        ("a hard\nwrapped line  \nand a break", "a hard wrapped line\nand a break"),
        ("北京\n欢迎你\nand more", "北京欢迎你 and more"),
        ("한국어\n문장", "한국어 문장"),
        ("- milk\n- [ ] eggs\n- [x] *tea*\n  1. hot", "milk\n☐ eggs\n☑ tea\n\n1. hot"),
        ("| a | b |\n|---|:-:|\n| 1 | **2** |\n| [[x\\|y]] | |", "a | b\n1 | 2\ny |"),
        ("Energy \\(E = m*c*^2\\), $a_1*b*c$ for $5 and $6", "Energy \\(E = m*c*^2\\), $a_1*b*c$ for $5 and $6"),
        ("$$\na\n- b\n$$\nend", "$$\na\n- b\n$$\n\nend"),
        ("The capital is {{c1::*Paris*::city}}.", "The capital is {{c1::Paris::city}}."),
        ("caf&eacute; foot<b>ball</b> Kinder<wbr>garten<br>5&nbsp;000", "café football Kindergarten\n5 000"),
        ("a<!-- no --> b <script>bad()</script> c", "a b c"),
        ("<div>\n<h2>Hi <i>you</i></h2>\n<script>bad()</script>ok</div>\n\nend", "Hi you\n\nok\n\nend"),
        ("A <script> tag in `<b>`\n\nis *text*", "A <script> tag in <b>\n\nis text"),
        ("<script> tags\n\nare text", "<script> tags\n\nare text"),
        ("word[^1] and [^b]\n\n[^1]: A note.\n[^x]: http", "word and [^b]\n\nA note.\nhttp"),
        ("> quoted\n> twice\n\n---\nend", "quoted twice\n\nend"),
        ("snake_case_name 2 * 3 * 4 a < b > c #tag C# x\\*y", "snake_case_name 2 * 3 * 4 a < b > c #tag C# x*y"),
    ],
)
def test_markdown(source, expected):
    assert text(source) == text(source.replace("\n", "\r\n")) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<p>The caf&eacute;</p><p>a\n b</p>", "The café\n\na b"),
        ("foot<b>ball</b> Kinder<wbr>garten H<sub>2</sub>O so&shy;", "football Kindergarten H2O so\xad"),
        ("<table><tr><td>a</td>\n<td>b</td></tr><tr><th>c<th>d</table>", "a | b\nc | d"),
        ("<ul><li>a<li>b</ul><div>c</div>d", "a\nb\n\nc\nd"),
        ("<pre>a\n   <b>b</b>\n</pre>c", "a\n   b\n\nc"),
        ("a<style>p{}</style><script>'<p>'</script><template><p>x</p></template>b", "ab"),
        ("<img src='data:image/png;base64,QUJD' alt='cat'> sits", "cat sits"),
        ("<ruby>漢<rp>(</rp><rt>かん<rp>)</rp></ruby>字", "漢字"),
        ("<svg><title>no</title><text>yes</text></svg>", "yes"),
        ("<!DOCTYPE html><!-- x --><![if IE]>a<![CDATA[b]]>c<?php x ?>d", "acd"),
        ("1 < 2 & 3 > 2 &lt;b&gt; &#128512;", "1 < 2 & 3 > 2 <b> 😀"),
        ("kept <a href='x", "kept <a href='x"),
        ("{{c1::Paris::city}} \\(E = mc^2\\)", "{{c1::Paris::city}} \\(E = mc^2\\)"),
    ],
)
def test_html(source, expected):
    assert text(source, "html") == expected


def test_org():
    source = (
        "#+TITLE: My notes\n#+filetags: :a:b:\n\n* TODO Head\n:PROPERTIES:\n:ID: 5\n:END:\nSome *bold* /it/ "
        "[[http://x][words]] =a*b*c=\ngoes on\n# comment\n- item\n  more\n- two\n#+begin_src py\nx = *y*\n\n\n"
        "#+end_src\n#+begin_quote\nquoted\n#+end_quote\n| a | b |\n|---+---|\n| 1 | 2 |\n** Sub\n2 * 3\n"
    )
    document = markup_document(source, "org")
    assert document == {
        "title": "My notes",
        "filetags": ["a", "b"],
        "text": "TODO Head\n"
        "Some bold it words a*b*c goes on\nitem more\ntwo\nx = *y*\n\n\nquoted\na | b\n1 | 2\n\nSub\n2 * 3",
    }


def test_front_matter_is_fields_and_titles_have_an_order():
    source = (
        "\ufeff---\ntitle: Tax 2030\ntags: [a, b]\ncreated: 2030-01-02\nat: 2030-01-02T10:00:00Z\nid: 7\npublish: no\n"
        "---\n# Heading\nBody"
    )
    document = markup_document(source, "markdown")
    assert document["created"] == date(2030, 1, 2) and isinstance(document["at"], datetime)
    del document["created"], document["at"]
    assert document == {
        "title": "Tax 2030", "text": "Heading\n\nBody", "tags": ["a", "b"], "front_matter_id": 7, "publish": False
    }  # fmt: skip
    titles = {
        "## a\n# *b*\n# c": "b", "<h1>a<br>b</h1>\n\n# c": "a b", "---\ntitle: 2030-01-01\n---\n": "2030-01-01",
        "---\ntitle:\n---\n# a": "a", "---\n---\nb\n=": "b", "text": "", "# ": "",
    }  # fmt: skip
    assert {source: markup_document(source, "markdown")["title"] for source in titles} == titles
    page = "<title>A &amp; B</title><svg><title>no</title></svg><h1>c</h1>"
    assert markup_document(page, "html") == {"title": "A & B", "text": "c"}
    assert markup_document("<h1>c</h1>d", "html") == {"title": "c", "text": "c\n\nd"}
    assert "text" in text("<title>never closed<p>text", "html")


@pytest.mark.parametrize(
    "head",
    ["a: b: c", "a: 2030-13-45", "a: &b [c]\nd: [*b, *b]", "a: !!python/name:os.system", "a: " + "[" * 5000,
     "a: !!timestamp x", "x: y\n" * 20_000],
)  # fmt: skip
def test_broken_front_matter_is_text_with_a_warning(head):
    messages: list[str] = []
    with warnings_to(messages.append):
        document = markup_document(f"---\n{head}\n---\n\nBody", "markdown")
    assert len(messages) == 1 and "front matter" in messages[0]
    assert document["text"].endswith("Body") and head.split()[-1].replace("\\", "")[-50:] in document["text"]
    assert set(document) == {"title", "text"}


@pytest.mark.parametrize("source", ["---\njust text\n---\nmore", "---\nno end", "--- \n", "a\n---\nb: c\n---\n"])
def test_lines_are_no_front_matter(source):
    document = markup_document(source, "markdown")
    assert set(document) == {"title", "text"} and set(document["text"].split()) == set(source.split()) - {"---"}


def test_a_long_paragraph_keeps_its_words():
    words = [f"word{number}" for number in range(5000)]
    assert text(" *x* ".join(words)) == " x ".join(words)
    assert text("x" * (3 * markup.PIECE)) == "x" * (3 * markup.PIECE)


UNITS = [
    "[", "![", "*a ", "**a", "*_", "`a", "<", "<a ", "<!--", "<![x[", "</", "<?", "<a b=\"", "<a b='x\">", "&", "> ",
    "- ", "|", "|a\n|-\n", "$", "$$", "$$\n", "\\(", "\\[", "](", "[a](<", "==a", "[^1]", "[^1]: a\n", "[a]: b\n",
    "[a\n", "```\n", "<div>\n\n", "<template>", "<title>", "<td> ", "<rt>", "<svg>", "<h1>", "<pre>", "<script>",
    "data:a/b;a", "\0", "#+begin_src\n", ":properties:\n", "[[a][", "/a ", "*a* ", "#+a: b\n", "  - a\n", "![[", "[[a|",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_repeated_marks_and_deep_nesting_end(kind):
    for unit in UNITS:
        assert isinstance(text(unit * 2000, kind), str), unit
    assert "deepest" in text("".join("  " * level + "- a\n" for level in range(200)) + "\ndeepest", kind)


pieces = st.lists(st.one_of(st.sampled_from(UNITS), st.text(max_size=5), st.sampled_from("\n \t")), max_size=12)


@settings(max_examples=150, deadline=None)
@given(pieces.map("".join), st.sampled_from(KINDS))
def test_no_source_raises(source, kind):
    document = markup_document(source, kind)
    assert isinstance(document["text"], str) and isinstance(document["title"], str)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(categories=["Lu", "Ll", "Lo", "Nd"]), min_size=1), min_size=1))
def test_words_without_markup_are_unchanged(words):
    source = "A " + " ".join(words)  # a line of digits and a point would be an item of a list
    assert {text(source, kind) for kind in KINDS} == {source}


def test_wrong_arguments_are_errors():
    with pytest.raises(InputError, match="kind"):
        markup_document("a", "rtf")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="source"):
        markup_document(b"a", "html")  # type: ignore[arg-type]
