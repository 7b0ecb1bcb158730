"""How build-data reads each form of source, and what it drops from catalogues."""

from pathlib import Path

import pytest
from pydantic import TypeAdapter

from msdc.distill.rebuild.clean import cleaned
from msdc.distill.rebuild.forms import Reader
from msdc.distill.rebuild.json_text import split_sentences
from msdc.errors import InputError


def read(form: str, folder: Path, **settings) -> list[tuple[str, ...]]:
    reader = TypeAdapter(Reader).validate_python({"form": form, **settings})
    return list(reader.rows(lambda path: sorted(folder.glob(path))))


def test_forms_of_pairs(tmp_path):
    write = lambda name, text: (tmp_path / name).write_text(text, encoding="utf-8")  # noqa: E731
    write("e.tsv", "One. Two.\t1\nOne costs $5. Two.\t2\n")
    write("d.tsv", "Eins. Zwei.\t1\nEins am 5. Mai.\t2\n")
    assert read("tables", tmp_path, source="e.tsv", target="d.tsv") == [
        ("One.", "Eins."),
        ("Two.", "Zwei."),
        ("One costs $5. Two.", "Eins am 5. Mai."),
    ]
    write("en.conllu", "# sent_id = b\n# text = Bee\n1\tBee\n\n# sent_id = a\n# text = Ay\n")
    write("de.conllu", "# sent_id = a\n# text = Ah\n\n# sent_id = b\n# text = Beh\n")
    assert read("conllu", tmp_path, source="en.conllu", target="de.conllu") == [("Bee", "Beh"), ("Ay", "Ah")]
    write("x.conll", "# text-en: Bee\n# text: Beh\n")
    assert read("conllu", tmp_path, source="x.conll") == [("Bee", "Beh")]
    write("gs.txt", "5.0\n\n1.0\n")
    write("in.txt", "a\tb\nc\td\ne\tf\n")
    assert read("joined", tmp_path, files=["gs.txt", "in.txt#1", "in.txt#2"]) == [("5.0", "a", "b"), ("1.0", "e", "f")]
    write(
        "a.po", 'msgid ""\nmsgstr "Language: de\\n"\n\nmsgid "Yes"\nmsgstr "Ja"\n\n#, fuzzy\nmsgid "No"\nmsgstr "Nee"\n'
    )
    assert read("corpus", tmp_path, path="a.po", language="de") == [("Yes", "Ja")]
    write("r.po", 'msgid "See :func:`~os.open` and ``x``."\nmsgstr "Siehe *hier* `da <u>`_."\n\n')
    assert read("corpus", tmp_path, path="r.po", language="de", rst=True) == [("See os.open and x.", "Siehe hier da.")]
    unit = "<trans-unit><source>{}</source>{}</trans-unit>"
    units = unit.format('Open <g id="1">file</g><ph id="2">{0}</ph>', '<target state="translated">Datei auf</target>')
    units += unit.format("New", '<target state="needs-translation">New</target>') + unit.format("Old", "")
    write("a.xliff", f'<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2"><file><body>{units}</body></file></xliff>')
    assert read("xliff", tmp_path, path="a.xliff") == [("Open file", "Datei auf")]
    write("t.csv", 'a,"b, c"\n')
    assert read("table", tmp_path, path="t.csv", separator=",", quoted=True) == [("a", "b, c")]
    write("data.noun", '  1 license\n0 n | a kind of tree; "the oak of the king"; "oak"\n')
    assert read("wordnet", tmp_path, path="data.*") == [("a kind of tree",), ("the oak of the king",)]


def test_forms_of_json(tmp_path):
    write = lambda name, text: (tmp_path / name).write_text(text, encoding="utf-8")  # noqa: E731
    write("en.json", '{"data": [{"q": [{"id": 1, "t": "one"}, {"id": 2, "t": "two"}]}]}')
    write("de.json", '{"data": [{"q": [{"id": 2, "t": "zwei"}, {"id": 1, "t": "eins"}]}]}')
    settings = {"source": "en.json", "target": "de.json", "items": "data[].q[]", "texts": ["t"]}
    assert read("json", tmp_path, **settings, key="id") == [("one", "eins"), ("two", "zwei")]
    assert read("json", tmp_path, **settings) == [("one", "zwei"), ("two", "eins")]
    write("m.jsonl", '{"x": {"k": {"t": "a . b"}}}\n')
    assert read("json", tmp_path, source="m.jsonl", items="x{}", key="@", texts=["t"], tokenized=True) == [("a. b",)]
    write("s.json", '[{"c": "Ab Cd", "b": [[0, 2], [3, 5]]}]')
    assert read("json", tmp_path, source="s.json", items="[]", texts=["c"], spans="b") == [("Ab",), ("Cd",)]
    write(
        "v.json", '[[{"language": "en", "string": "Who?"}, {"language": "de", "string": "Wer?"}], [{"language": "en"}]]'
    )
    assert read("json-variants", tmp_path, path="v.json", items="[]", language="de") == [("Who?", "Wer?")]
    write("k.json", '{"a": {"tts": ["cat"], "d": ["x"]}, "b": "dog"}')
    write("l.json", '{"a": {"tts": ["Katze"]}, "b": "Hund"}')
    assert read("json-keys", tmp_path, source="k.json", target="l.json") == [("cat", "Katze"), ("dog", "Hund")]
    assert read("json-keys", tmp_path, source="k.json", target="l.json", leaf=["tts"]) == [("cat", "Katze")]
    write("bad.json", "{")
    with pytest.raises(InputError, match="not JSON"):
        read("json", tmp_path, source="bad.json", texts=["t"])


def test_forms_of_programs(tmp_path):
    for code in ("values", "values-de"):
        (tmp_path / code).mkdir()
    xml = "<resources><string name='a'>%s</string><string name='b' translatable='false'>x</string></resources>"
    (tmp_path / "values" / "s.xml").write_text(xml % "It\\'s &lt;b&gt; <i>here</i>")
    (tmp_path / "values-de" / "s.xml").write_text(xml % '"Hier"')
    parts = ["/values/", "/values-de/"]
    settings = {"source": "values/*.xml", "target": "values-de/*.xml", "parts": parts}
    assert read("android", tmp_path, **settings) == [("It's <b> here", "Hier")]
    (tmp_path / "values" / "s.xml").write_text('<!DOCTYPE a [<!ENTITY b "c">]><resources/>')
    with pytest.raises(InputError, match="not well-formed"):
        read("android", tmp_path, **settings)
    (tmp_path / "values" / "f.ftl").write_text(
        "# c\nhead = One\n  two\n    .label = Three\nsel = { $n ->\n  [one] x\n}\n"
    )
    (tmp_path / "values-de" / "f.ftl").write_text("head = Eins zwei\n    .label = Drei\n")
    settings = {"source": "values/*.ftl", "target": "values-de/*.ftl", "parts": parts}
    assert read("fluent", tmp_path, **settings) == [("One two", "Eins zwei"), ("Three", "Drei")]
    (tmp_path / "values" / "p.md").write_text("# tool\n\n- List all:\n\n`ls {{path}}`\n")
    (tmp_path / "values-de" / "p.md").write_text("# tool\n\n- Liste:\n\n`ls {{Pfad}}`\n")
    settings = {"source": "values/*.md", "target": "values-de/*.md", "parts": parts}
    assert read("tldr", tmp_path, **settings) == [("List all", "Liste")]
    (tmp_path / "a.lang").write_text(";One\nEins {ok}\n\n;Two\n;Three\nDrei\n")
    assert read("lang", tmp_path, path="a.lang") == [("One", "Eins"), ("Three", "Drei")]
    (tmp_path / "a.rpy").write_text('    # e "Hi {b}you{/b}."\n    e "Hallo du."\n    old "Yes"\n    new "Ja"\n')
    assert read("renpy", tmp_path, path="a.rpy") == [("Hi you.", "Hallo du."), ("Yes", "Ja")]
    (tmp_path / "e.txt").write_text("KEY_A\nOne\n\nKEY_B\n'''Two\nThree'''\n")
    (tmp_path / "g.txt").write_text("KEY_A\nEins\n\nKEY_B\n'''Zwei\nDrei'''\n")
    assert read("stringtable", tmp_path, source="e.txt", target="g.txt") == [
        ("One", "Eins"), ("Two", "Zwei"), ("Three", "Drei"),
    ]  # fmt: skip
    (tmp_path / "e.yml").write_text("en: {a: 'One <b>two</b>', c: x}")
    (tmp_path / "g.yml").write_text("de: {a: 'Eins zwei'}")
    settings = {"source": "e.yml", "target": "g.yml", "below": ["en", "de"], "tags": True}
    assert read("yaml-keys", tmp_path, **settings) == [("One two", "Eins zwei")]


def test_a_compiled_catalogue(tmp_path):
    import struct

    texts = [(b"", b"head"), (b"ctx\4Yes", b"Ja")]
    at = 28 + 16 * len(texts)
    tables: list[bytes] = [b"", b""]
    strings = b""
    for side in (0, 1):
        for pair in texts:
            tables[side] += struct.pack("<2I", len(pair[side]), at + len(strings))
            strings += pair[side] + b"\0"
    header = struct.pack("<7I", 0x950412DE, 0, len(texts), 28, 28 + 8 * len(texts), 0, 0)
    (tmp_path / "a.mo").write_bytes(header + tables[0] + tables[1] + strings)
    assert read("mo", tmp_path, path="a.mo") == [("Yes", "Ja")]
    (tmp_path / "b.mo").write_bytes(header[:24] + b"\0" * 4)
    with pytest.raises(InputError, match="damaged gettext"):
        read("mo", tmp_path, path="b.mo")


def test_the_filter_of_catalogues():
    keep = ("Open the file that you saved.", "Öffnen Sie die gespeicherte Datei.")
    rows = [
        keep,
        ("Save", "Speichern"),  # a word
        ("Open %s in the editor now.", "Öffne %s jetzt im Editor."),
        ("See https://example.org for more text.", "Siehe https://example.org für mehr Text."),
        ("Open the file that you saved.", "Open the file that you saved."),  # not translated
        ("Open the file that you saved.", "Datei"),  # too short
    ]
    assert list(cleaned(rows, "interface")) == [keep]
    assert list(cleaned([("Save", "Speichern")], "names")) == [("Save", "Speichern")]
    assert list(cleaned([("a\u200eb", "c")], "marks")) == [("ab", "c")]


def test_sentences_do_not_end_at_abbreviations_and_ordinals():
    assert split_sentences("Mr. Smith came. He left.") == ["Mr. Smith came.", "He left."]
    assert split_sentences("Am 5. Mai kam er. Er ging.") == ["Am 5. Mai kam er.", "Er ging."]
