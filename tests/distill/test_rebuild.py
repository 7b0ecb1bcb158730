"""`msdc build-data`: the list of sources, every form, local copies, downloads, and what could not be had."""

import functools
import gzip
import hashlib
import http.server
import io
import os
import shutil
import subprocess
import tarfile
import threading
import zipfile
from pathlib import Path
from typing import ClassVar

import pytest
import yaml
from click.testing import CliRunner
from pydantic import TypeAdapter

from msdc.cli import msdc
from msdc.distill.catalog import load_recipe
from msdc.distill.rebuild.build import build, choose, wanted_of
from msdc.distill.rebuild.clean import cleaned
from msdc.distill.rebuild.forms import Reader
from msdc.distill.rebuild.json_text import split_sentences
from msdc.distill.rebuild.origins import take_files
from msdc.distill.rebuild.source_list import Origin, read_sources
from msdc.distill.rebuild.transfer import download
from msdc.errors import InputError

COMMIT = "0123456789" * 4
RECIPE = """
name: small
teacher: all-MiniLM-L6-v2
student: {bottleneck: 8, layers: [0], repeats: 1, max_length: 16}
corpora:
  - {path: "{data}/fairy/*.tsv.gz", languages: [de]}
  - {path: "{data}/english/words.txt.gz", kind: text}
exclude: ["{data}/tests/test.tsv"]
stages:
  - {name: teach, train: student, guide: teacher, objective: multilingual_mse, steps: 1}
"""

SETS = f"""
fairy:
  license: CC0
  origins: {{tales: {{github: grimm/tales, commit: "{COMMIT}"}}}}
  make:
    - file: "fairy/fairy.en-{{language}}.tsv.gz"
      languages: {{de: deu, fr: fra}}
      read: [{{form: aligned, source: text/eng.txt, target: "text/{{code}}.txt"}}]
words:
  license: CC0
  origins: {{zip: {{github: grimm/words, commit: "{COMMIT}"}}}}
  make:
    - file: english/words.txt.gz
      read: [{{form: table, path: "all.zip!in/*.txt", columns: [1], separator: ""}}]
tests: {{license: CC0, cannot: it is a secret, make: [{{file: tests/test.tsv, read: []}}]}}
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def listing(folder: Path, **more) -> dict:
    """A list of sources with one set of pairs, one of text and one test set."""
    sets = yaml.safe_load(SETS)
    sets["fairy"]["origins"]["tales"] |= more
    folder.mkdir(exist_ok=True)
    (folder / "list.yaml").write_text(yaml.safe_dump(sets), encoding="utf-8")
    read_sources.cache_clear()
    return read_sources(folder)


@pytest.fixture
def copies(tmp_path):
    folder = tmp_path / "copies"
    (folder / "grimm+tales" / "text").mkdir(parents=True)
    (folder / "grimm+words").mkdir()
    for code, text in (
        ("eng", "Once upon a time.\nA  frog.\nA  frog.\n\n"),
        ("deu", "Es war einmal.\nEin\tFrosch.\nEin Frosch.\nLeer.\n"),
        ("fra", "Il était une fois.\n"),
    ):
        (folder / "grimm+tales" / "text" / f"{code}.txt").write_text(text, encoding="utf-8")
    with zipfile.ZipFile(folder / "grimm+words" / "all.zip", "w") as content:
        content.writestr("in/b.txt", "second\n")
        content.writestr("in/a.txt", "first\n")
        content.writestr("out/c.txt", "third\n")
    return folder


def built(folder: Path, data: Path, copies: Path | None, recipe: str = RECIPE, **options) -> dict:
    """What `build` says of each file that a recipe reads."""
    (folder / "small.yaml").write_text(recipe, encoding="utf-8")
    loaded = load_recipe(str(folder / "small.yaml"), data=data)
    found = build(loaded, data, listing(folder / "list"), sources=copies, **options)
    return {one.file: one for one in found}


def lines(file: Path) -> list[str]:
    return gzip.decompress(file.read_bytes()).decode().splitlines()


def test_builds_what_a_recipe_reads(tmp_path, copies):
    one, _ = (built(tmp_path, tmp_path / name, copies) for name in ("one", "two"))
    assert {name: entry.state for name, entry in one.items()} == {
        "fairy/fairy.en-de.tsv.gz": "made",
        "english/words.txt.gz": "made",
        "tests/test.tsv": "missing",
    }
    assert one["tests/test.tsv"].why == "it is a secret"
    # White space is collapsed, the duplicate and the empty row are gone.
    pairs = tmp_path / "one" / "fairy" / "fairy.en-de.tsv.gz"
    assert lines(pairs) == ["Once upon a time.\tEs war einmal.", "A frog.\tEin Frosch."]
    assert one["fairy/fairy.en-de.tsv.gz"].rows == 2
    assert lines(tmp_path / "one" / "english" / "words.txt.gz") == ["first", "second"]
    # The same bytes every time
    assert pairs.read_bytes() == (tmp_path / "two" / "fairy" / "fairy.en-de.tsv.gz").read_bytes()


def test_keeps_what_is_there_and_leaves_nothing_half_made(tmp_path, copies):
    recipe, data = RECIPE.replace("[de]", "[de, fr]"), tmp_path / "data"
    (data / "english").mkdir(parents=True)
    (data / "english" / "words.txt.gz").write_bytes(b"mine")
    found = built(tmp_path, data, copies, recipe)
    assert found["english/words.txt.gz"].state == "there"
    assert (data / "english" / "words.txt.gz").read_bytes() == b"mine"
    # French has fewer lines than English: its file is missing, and the reason says why; German is made all the same.
    assert found["fairy/fairy.en-fr.tsv.gz"].state == "missing"
    assert "lines" in found["fairy/fairy.en-fr.tsv.gz"].why
    assert sorted(path.name for path in (data / "fairy").iterdir()) == ["fairy.en-de.tsv.gz"]
    assert built(tmp_path, data, copies, recipe)["fairy/fairy.en-de.tsv.gz"].state == "there"
    with pytest.raises(InputError, match="reads no such set"):
        built(tmp_path, data, None, recipe, only=["nothing"])


def test_a_copy_that_is_not_there_is_said(tmp_path, copies):
    shutil.rmtree(copies / "grimm+tales")
    found = built(tmp_path, tmp_path / "data", copies)
    assert found["fairy/fairy.en-de.tsv.gz"].why.startswith("github grimm/tales @ 0123456789: no copy in")


def test_a_git_clone_is_read_at_the_commit(tmp_path):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    clone = tmp_path / "copies" / "grimm+tales"
    clone.mkdir(parents=True)

    def git(*arguments: str) -> str:
        settings = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]
        return subprocess.run(
            ["git", "-C", clone, *settings, *arguments], check=True, capture_output=True, text=True
        ).stdout

    git("init")
    (clone / "a.txt").write_text("old\n")
    git("add", ".")
    git("commit", "-m", "one")
    commit = git("rev-parse", "HEAD").strip()
    (clone / "a.txt").write_text("new\n")
    git("commit", "-am", "two")
    old = take_files(Origin(github="grimm/tales", commit=commit), ["a.txt"], tmp_path / "copies")
    assert (old / "a.txt").read_text() == "old\n"
    # A copy without the commit: its newest one
    new = take_files(Origin(github="grimm/tales", commit=COMMIT), ["a.txt"], tmp_path / "copies")
    assert (new / "a.txt").read_text() == "new\n"


def test_archives_and_packages_are_local_copies(tmp_path):
    copies = tmp_path / "copies"
    copies.mkdir()

    def tar(names: dict[str, bytes]) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:xz") as content:
            for name, raw in names.items():
                info = tarfile.TarInfo(name)
                info.size = len(raw)
                content.addfile(info, io.BytesIO(raw))
        return out.getvalue()

    data = tar({"./usr/share/words.txt": b"a word\n"})
    parts = [(b"debian-binary", b"2.0\n"), (b"data.tar.xz", data)]
    deb = b"!<arch>\n"
    for name, raw in parts:
        deb += name.ljust(16) + b"0".ljust(12) + b"0".ljust(6) * 2 + b"644".ljust(8) + str(len(raw)).encode().ljust(10)
        deb += b"`\n" + raw + b"\n" * (len(raw) % 2)
    (copies / "words_1%3a2-3_all.deb").write_bytes(deb)
    folder = take_files(Origin(debian="words", version="1:2-3"), ["usr/share/*.txt"], copies)
    assert (folder / "usr/share/words.txt").read_bytes() == b"a word\n"

    (copies / "words-2.tgz").write_bytes(tar({"package/en.json": b"{}"}))
    folder = take_files(Origin(npm="words", version="2"), ["en.json"], copies)
    assert (folder / "en.json").read_bytes() == b"{}"
    with pytest.raises(InputError, match=r"without de\.json"):
        take_files(Origin(npm="words", version="2"), ["de.json"], copies)

    (copies / "evil-1.tgz").write_bytes(tar({"package/../../evil.txt": b"x"}))
    with pytest.raises(InputError, match="leads out of its archive"):
        take_files(Origin(npm="evil", version="1"), ["*"], copies)
    assert not list(tmp_path.rglob("evil.txt"))


class Server(http.server.SimpleHTTPRequestHandler):
    """Sends files, and parts of them; keeps what was asked for."""

    asked: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        raw = (Path(self.directory) / self.path.lstrip("/")).read_bytes()
        wanted = self.headers.get("Range")
        self.asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(raw) - start))
        self.end_headers()
        self.wfile.write(raw[start:])

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    Server.asked.clear()
    one = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Server, directory=str(folder)))
    threading.Thread(target=one.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{one.server_port}"
    one.shutdown()
    one.server_close()


def test_a_download_goes_on_where_it_stopped_and_is_checked(tmp_path, server):
    folder, address = server
    (folder / "text.txt").write_bytes(b"0123456789")
    target = tmp_path / "down" / "text.txt"
    target.parent.mkdir()
    target.with_name(".text.txt.part").write_bytes(b"01234")
    assert download(f"{address}/text.txt", target).read_bytes() == b"0123456789"
    assert Server.asked == ["bytes=5-"]
    download(f"{address}/text.txt", target)
    assert len(Server.asked) == 1  # it is there

    url = f"{address}/text.txt"
    wrong = Origin(url=url, sha256="0" * 64)
    with pytest.raises(InputError, match="other files than expected") as caught:
        take_files(wrong, ["text.txt"], None)
    # As `sha256sum text.txt | sha256sum` prints it
    listed = f"{hashlib.sha256(b'0123456789').hexdigest()}  text.txt\n"
    right = hashlib.sha256(listed.encode()).hexdigest()
    assert right[:16] in str(caught.value)
    assert (take_files(Origin(url=url, sha256=right), ["text.txt"], None) / "text.txt").is_file()


def test_the_shipped_list_names_every_file_of_the_recipe(tmp_path):
    read_sources.cache_clear()
    sets = read_sources()
    wanted, elsewhere = wanted_of(load_recipe("msdc-mini", data=tmp_path), tmp_path)
    chosen, unknown = choose(wanted, sets)
    assert not unknown and not elsewhere
    assert {"tatoeba", "ntrex", "snli", "sts2017", "flores200"} <= set(chosen)
    # What is tested on has no reason to be missing.
    assert not [name for name, entry in sets.items() if entry.cannot and any("sts" in t.file for t in entry.targets)]


def test_dry_run_says_what_is_missing_and_makes_nothing(tmp_path):
    arguments = ["build-data", "msdc-mini", "-o", str(tmp_path / "data"), "--dry-run"]
    result = CliRunner().invoke(msdc, arguments)
    assert result.exit_code == 1
    assert "github MicrosoftTranslator/NTREX @ 8561f6a622" in result.output
    assert "could not be had" in result.output
    assert not (tmp_path / "data").exists()
    assert CliRunner().invoke(msdc, [*arguments, "--allow-missing"]).exit_code == 0
    assert CliRunner().invoke(msdc, [*arguments, "--only", "ntrex"]).exit_code == 0


def test_a_wrong_list_is_refused(tmp_path):
    with pytest.raises(InputError, match="40 digits"):
        listing(tmp_path / "list", commit="012345")
    with pytest.raises(InputError, match=r"list\.yaml: fairy: origins\.tales"):
        listing(tmp_path / "list", comit="x")


def test_real_copies_give_the_rows_of_real_data(tmp_path):
    """With MSDC_SOURCES (a folder for --sources) and MSDC_DATA: every row of the data is made again."""
    sources, data = os.environ.get("MSDC_SOURCES"), os.environ.get("MSDC_DATA")
    if not sources or not data:
        pytest.skip("set MSDC_SOURCES to copies of the sources and MSDC_DATA to the data of the recipe")
    read_sources.cache_clear()
    recipe = load_recipe("msdc-mini", data=tmp_path)
    only = ["ntrex", "pud", "xquad", "tico19", "marvl", "qald"]
    made = [one for one in build(recipe, tmp_path, read_sources(), only, Path(sources)) if one.state == "made"]
    assert made
    for one in made:
        there = Path(data) / one.file
        if there.is_file():
            ours, theirs = set(lines(tmp_path / one.file)), set(lines(there))
            assert len(ours & theirs) >= 0.99 * len(theirs), one.file


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
