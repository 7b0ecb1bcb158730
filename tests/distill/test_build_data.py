"""`msdc build-data`: the list of sources, every way of reading, local copies, downloads, and what could not be had."""

import functools
import gzip
import hashlib
import io
import json
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from msdc.bench.accuracy.search import read_collection
from msdc.cli import msdc
from msdc.distill.build_data import build_data, wanted_files
from msdc.distill.catalog import load_recipe
from msdc.distill.data.sources import SourceSet, read_sources, squad_lines
from msdc.errors import InputError

COMMIT = "0123456789" * 4
RECIPE = """
name: small
teacher: all-MiniLM-L6-v2
student: {bottleneck: 8, layers: [0], repeats: 1, max_length: 16}
corpora:
  - {path: "{data}/fairy/*.tsv.gz", languages: [de]}
  - {path: "{data}/english/words.txt.gz", kind: text}
exclude: ["{data}/tests/test.tsv", "{data}/nobody/knows.tsv"]
stages:
  - {name: train, train: student, teacher: teacher, objective: multilingual_mse, steps: 1}
"""
SETS = f"""
fairy:
  about: Tales
  license: CC0
  origins: {{tales: {{github: grimm/tales, commit: "{COMMIT}", folder: text, sha256: fairy}}}}
  make:
    - file: "fairy/fairy.en-{{language}}.tsv.gz"
      languages: {{de: deu, fr: fra}}
      read: [{{files: [eng.txt, "{{code}}.txt"]}}]
words:
  about: Words
  license: CC0
  origins: {{zip: {{github: grimm/words, commit: "{COMMIT}", sha256: words}}}}
  make:
    - {{file: english/words.txt.gz, read: [{{files: ["all.zip!in/a.txt"]}}, {{files: ["all.zip!in/b.txt"]}}]}}
tests:
  about: A test set
  license: CC0
  test: true
  origins: {{gold: {{github: grimm/test, commit: "{COMMIT}", sha256: tests}}}}
  make: [{{file: tests/test.tsv, read: [{{paste: true, files: [gs.txt, "in.txt#1", "in.txt#2"]}}]}}]
"""
FILES = {
    "fairy": {"text/deu.txt": "Es war einmal.\nEin\tFrosch.\nEin Frosch.\nLeer.\n", "text/fra.txt": "Il était.\n"},
    "words": {"all.zip": ""},
    "tests": {"gs.txt": "5.0\n\n1.0\n", "in.txt": "a  b\tc\nd\te\nf\tg\n"},
}
FILES["fairy"]["text/eng.txt"] = "Once upon a time.\nA  frog.\nA  frog.\n\n"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def digest(files: dict[str, bytes]) -> str:
    """As `sha256sum FILES | sha256sum` prints it."""
    listed = "".join(f"{hashlib.sha256(raw).hexdigest()}  {name}\n" for name, raw in sorted(files.items()))
    return hashlib.sha256(listed.encode()).hexdigest()


@pytest.fixture
def copies(tmp_path):
    """Copies of three sources, and their list."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as content:
        for name, text in (("in/a.txt", "first\n"), ("in/b.txt", "second\n"), ("out/c.txt", "third\n")):
            content.writestr(name, text)
    listed = SETS
    for (name, files), folder in zip(FILES.items(), ("tales", "words", "test"), strict=True):
        raw = {path: text.encode() or packed.getvalue() for path, text in files.items()}
        listed = listed.replace(f"sha256: {name}", f"sha256: {digest(raw)}")
        for path, content in raw.items():
            target = tmp_path / "copies" / f"grimm+{folder}" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    (tmp_path / "list.yaml").write_text(listed, encoding="utf-8")
    (tmp_path / "small.yaml").write_text(RECIPE, encoding="utf-8")
    return tmp_path / "copies"


def built(folder: Path, data: Path, **options) -> dict:
    """What `build` says of each file that the small recipe reads."""
    recipe = load_recipe(str(folder.parent / "small.yaml"), data=data)
    return {
        entry.file: entry for entry in build_data(recipe, data, read_sources(folder.parent / "list.yaml"), **options)
    }


def lines(file: Path) -> list[str]:
    return gzip.decompress(file.read_bytes()).decode().splitlines()


def test_builds_what_a_recipe_reads(tmp_path, copies):
    entries, _ = (built(copies, tmp_path / name, copies=copies) for name in ("one", "two"))
    assert {name: (entry.state, entry.rows) for name, entry in entries.items()} == {
        "fairy/fairy.en-de.tsv.gz": ("built", 2),
        "english/words.txt.gz": ("built", 2),
        "tests/test.tsv": ("built", 2),
        "nobody/knows.tsv": ("missing", None),
    }
    # White space is collapsed, the duplicate and the empty row are gone; a test set stays as it is, but for the row
    # without a score.
    pairs = tmp_path / "one" / "fairy" / "fairy.en-de.tsv.gz"
    assert lines(pairs) == ["Once upon a time.\tEs war einmal.", "A frog.\tEin Frosch."]
    assert lines(tmp_path / "one" / "english" / "words.txt.gz") == ["first", "second"]
    assert (tmp_path / "one" / "tests" / "test.tsv").read_text() == "5.0\ta  b\tc\n1.0\tf\tg\n"
    assert pairs.read_bytes() == (tmp_path / "two" / "fairy" / "fairy.en-de.tsv.gz").read_bytes()


def test_keeps_what_is_there_and_leaves_nothing_half_made(tmp_path, copies):
    data = tmp_path / "data"
    (data / "english").mkdir(parents=True)
    (data / "english" / "words.txt.gz").write_bytes(b"mine")
    (tmp_path / "small.yaml").write_text(RECIPE.replace("[de]", "[de, fr]"), encoding="utf-8")
    entries = built(copies, data, copies=copies)
    assert entries["english/words.txt.gz"].state == "present"
    assert (data / "english" / "words.txt.gz").read_bytes() == b"mine"
    # French has fewer lines than English: its file is missing, and the reason says why; German is made all the same.
    assert entries["fairy/fairy.en-fr.tsv.gz"].state == "missing"
    assert "not line-aligned" in entries["fairy/fairy.en-fr.tsv.gz"].why
    assert sorted(path.name for path in (data / "fairy").iterdir()) == ["fairy.en-de.tsv.gz"]
    assert built(copies, data, copies=copies)["fairy/fairy.en-de.tsv.gz"].state == "present"
    with pytest.raises(InputError, match="`only` nothing: small reads fairy"):
        built(copies, data, only=["nothing"])


def test_other_files_than_pinned_are_refused_and_not_kept(tmp_path, copies):
    (copies / "grimm+tales" / "text" / "deu.txt").write_text("Anders.\n")
    shutil.rmtree(copies / "grimm+words")
    entries = built(copies, tmp_path / "data", copies=copies)
    assert "other files than expected" in entries["fairy/fairy.en-de.tsv.gz"].why
    assert "grimm%2Bwords/all.zip: cannot be fetched" in entries["english/words.txt.gz"].why
    (copies / "grimm+tales" / "text" / "deu.txt").write_text(FILES["fairy"]["text/deu.txt"])
    assert built(copies, tmp_path / "data", copies=copies)["fairy/fairy.en-de.tsv.gz"].state == "built"


def rows_of(tmp_path, contents: dict[str, bytes | str], /, language: str = "de", **part) -> list[tuple[str, ...]]:
    """What one part of a set reads from these files of a repository, in the order of `contents`."""
    folder = tmp_path / "copies" / "a+b"
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    raw = {name: text.encode() if isinstance(text, str) else text for name, text in contents.items()}
    for name, content in raw.items():
        (folder / name).write_bytes(content)
    origins = {"o": {"github": "a/b", "commit": COMMIT, "sha256": digest(raw)}}
    make = [{"file": "x", "languages": [language] if language else [], "read": [{"files": list(contents)} | part]}]
    return list(SourceSet(about="a", license="b", origins=origins, make=make).rows("x", tmp_path / "copies"))


def test_ways_of_reading(tmp_path):
    rows = functools.partial(rows_of, tmp_path)
    trees = {"en.conllu": "# text = Bee\n1\tBee\n\n# text = Ay\n", "de.conllu": "# text = Beh\n\n# text = Ah\n"}
    assert rows(trees, pattern="^# text = ([^\n]*)") == [("Bee", "Beh"), ("Ay", "Ah")]
    with pytest.raises(InputError, match="not the same number of texts"):
        rows(trees | {"de.conllu": "# text = Beh\n"}, pattern="^# text = ([^\n]*)")
    keyed = {"en.ftl": "# c\na = One\n    two\nb = Three\n", "de.ftl": "b = Drei\na = Eins zwei\nc = Vier\n"}
    messages = "^(?P<key>\\w+) =\\s+(?P<text>\\S[^\n]*(?:\n +[^\n]+)*)"
    assert rows(keyed, pattern=messages) == [("One\n    two", "Eins zwei"), ("Three", "Drei")]
    article = {"a.xml": "<j>Hai &amp; iie</j><e>Yes &amp; no.</e>\n<j>Nani</j><e>What</e>"}
    couples = "<j>(?P<target>[^<]+)</j><e>(?P<source>[^<]+)</e>"
    assert rows(article, pattern=couples) == [("Yes & no.", "Hai & iie"), ("What", "Nani")]
    assert rows(article, pattern=couples, keep="[A-Z].*[.]") == [("Yes & no.", "Hai & iie")]
    both = {
        "en.jsonl": '{"a": "one", "b": "two"}\n{"a": "three"}\n',
        "de.jsonl": '{"a": "eins", "b": "zwei"}\n{"a": "drei"}',
    }
    assert rows(both, texts=["a", "b"]) == [("one", "eins"), ("three", "drei"), ("two", "zwei")]
    assert rows({"en.json": '{"k": [{"t": "cat"}, {"u": 1}]}'}, "", texts=["k.t"]) == [("cat",)]
    with pytest.raises(InputError, match="not JSON"):
        rows({"en.json": "{"}, "", texts=["a"])
    unit = '<tu><tuv xml:lang="en"><seg>Yes</seg></tuv><tuv xml:lang="de"><seg>Ja</seg></tuv></tu>'
    assert rows({"a.tmx": f'<tmx version="1.4"><body>{unit}</body></tmx>'}) == [("Yes", "Ja")]
    table = {"deu.txt": "Hi , you .\tHallo , du !\tCC-BY\n"}
    assert rows(table, kind="pairs", columns=[1, 2], tokenized=True) == [("Hi, you.", "Hallo, du!")]
    assert rows({"c.tsv": "a cat , here\tu\n"}, "", kind="text", columns=[1], tokenized=True) == [("a cat, here",)]
    pasted = {"paste": True, "files": ["gs.csv#2", "gs.csv#1", "in.txt#2"], "header": ["s", "a", "b"]}
    records = rows({"gs.csv": '"a, b",5.0\n', "in.txt": "x\ty\n"}, **pasted)
    assert records == [("s", "a", "b"), ("5.0", "a, b", "y")]


def test_archives(tmp_path):
    """JSON with any keys in tar archives."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as content:
        for name, raw in (("en.json", b'{"b": {"t": "two", "u": "x"}, "a": {"t": "one"}}'),
                          ("de.json", b'{"a": {"t": "eins"}, "b": {"t": "zwei"}}')):  # fmt: skip
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            content.addfile(info, io.BytesIO(raw))
    packs = {"files": ["p!en.json", "p!de.json"], "texts": ["*.t"]}
    assert rows_of(tmp_path, {"p": data.getvalue()}, **packs) == [("one", "eins"), ("two", "zwei")]
    with pytest.raises(InputError, match="p: no it in it"):
        rows_of(tmp_path, {"p": data.getvalue()}, **packs | {"files": ["p!it", "p!de.json"]})
    with pytest.raises(InputError, match="not an archive"):
        rows_of(tmp_path, {"q": data.getvalue()[:100]}, **packs | {"files": ["q!en.json", "q!de.json"]})


def test_the_shipped_list_makes_every_file_of_the_recipe(tmp_path):
    sets = read_sources()
    required_files, unknown, elsewhere = wanted_files(load_recipe("msdc-mini", data=tmp_path), tmp_path, sets)
    eight, missing, _ = wanted_files(load_recipe("msdc-mini:eight", data=tmp_path), tmp_path, sets)
    assert not missing
    assert "tatoeba/tatoeba.en-ja.tsv.gz" in required_files
    assert {file for file in required_files if file not in eight and "en-" in file} == {
        file
        for file in required_files
        if file.partition(".en-")[2].partition(".")[0] in ("ja", "ko", "pl", "pt", "ru", "zh")
    }
    assert not unknown
    assert not elsewhere
    asked = {name for name, entry in sets.items() if all(file.startswith("retrieval/") for file in entry.targets)}
    assert set(required_files.values()) == set(sets) - asked  # questions are neither trained on nor excluded
    assert sum(not entry.test for entry in sets.values()) <= 20
    files = [file for entry in sets.values() for file in entry.targets]
    assert len(files) == len(set(files))
    paths = [
        (entry, path)
        for entry in sets.values()
        for _, parts in entry.targets.values()
        for part in parts
        for path in part.paths()
    ]
    assert all(entry.locate(path) for entry, path in paths)


def test_dry_run_says_what_would_be_made(tmp_path):
    arguments = ["build-data", "msdc-mini", "-o", str(tmp_path / "data"), "--dry-run", "--only", "ntrex"]
    result = CliRunner().invoke(msdc, arguments)
    assert result.exit_code == 0
    assert "github MicrosoftTranslator/NTREX @ 8561f6a622" in result.output
    assert not (tmp_path / "data").exists()
    for key, change, message in (("commit", "0123", "commit"), ("comit", COMMIT, "unknown key 'comit'")):
        listed = yaml.safe_load(SETS)
        listed["fairy"]["origins"]["tales"] |= {"sha256": "0" * 64, key: change}
        (tmp_path / "list.yaml").write_text(yaml.safe_dump({"fairy": listed["fairy"]}))
        with pytest.raises(InputError, match=rf"list\.yaml: fairy: origins\.tales.*{message}"):
            read_sources(tmp_path / "list.yaml")


SQUAD = {"data": [
    {"title": "Red_things", "paragraphs": [
        {"context": " The rose is  red. ", "qas": [{"question": "What is red?"}, {"question": " And what else? "}]},
        {"context": "Blood is red.", "qas": [{"question": "Is blood red?"}]}]},
    {"title": "Again", "paragraphs": [{"context": "The rose is  red.", "qas": [{"question": "Once more?"}]}]},
]}  # fmt: skip


@pytest.fixture
def retrieval(tmp_path):
    """Copies of a source of SQuAD's kind, plain and packed, and its list; a training set that is not built."""
    raw = {"en.json": json.dumps(SQUAD).encode(), "it.json.gz": gzip.compress(json.dumps(SQUAD).encode(), mtime=0)}
    folder = tmp_path / "copies" / "asker+questions"
    folder.mkdir(parents=True)
    for name, content in raw.items():
        (folder / name).write_bytes(content)
    entries = [
        {"file": f"retrieval/{code}/{target}", "read": [{"files": [file], "squad": part}]}
        for code, file in (("en", "en.json"), ("it", "it.json.gz"))
        for part, target in (("corpus", "corpus.jsonl.gz"), ("queries", "queries.jsonl.gz"), ("qrels", "qrels/dev.tsv"))
    ]
    origin = {"github": "asker/questions", "commit": COMMIT, "sha256": digest(raw)}
    common = {"about": "Questions", "license": "CC0", "origins": {"it": origin}}
    text = [{"file": "text.tsv", "read": [{"files": ["en.json"]}]}]
    sets = {"questions": {**common, "test": True, "make": entries}, "text": {**common, "make": text}}
    (tmp_path / "list.yaml").write_text(yaml.safe_dump(sets), encoding="utf-8")
    return tmp_path


def test_sets_of_questions_are_built_without_a_recipe(retrieval):
    """In BEIR's layout, as `msdc evaluate` reads it: a paragraph that occurs twice is one document."""
    sets, data = read_sources(retrieval / "list.yaml"), retrieval / "data"
    outcomes = build_data(None, data, sets, copies=retrieval / "copies", evaluation=True)
    assert {outcome.state for outcome in outcomes} == {"built"}
    assert len(outcomes) == 6
    for code in ("en", "it"):
        collection = read_collection(data / "retrieval" / code).content
        assert collection.documents == {
            "p0": ("Red things", "The rose is  red."),
            "p1": ("Red things", "Blood is red."),
        }
        assert list(collection.queries.values()) == ["What is red?", "And what else?", "Is blood red?", "Once more?"]
        assert collection.grades == {"q0": {"p0": 1}, "q1": {"p0": 1}, "q2": {"p1": 1}, "q3": {"p0": 1}}
    with pytest.raises(InputError, match="the evaluation reads questions"):
        build_data(None, data, sets, copies=retrieval / "copies", evaluation=True, only=["text"])


def test_parts_of_a_set_in_several_files_are_one_set(tmp_path):
    paths = [tmp_path / "dev_0.json", tmp_path / "dev_1.json"]
    for path, context in zip(paths, ("Snow is white.", "Coal is black."), strict=True):
        article = {"paragraphs": [{"context": context, "qas": [{"question": f"Which colour? {context[:4]}"}]}]}
        path.write_text(json.dumps({"data": [article]}), encoding="utf-8")
    rows = [json.loads(line) for (line,) in squad_lines(paths, "corpus")]
    assert [(row["_id"], row["text"]) for row in rows] == [("p0", "Snow is white."), ("p1", "Coal is black.")]
    assert [row[:2] for row in list(squad_lines(paths, "qrels"))[1:]] == [("q0", "p0"), ("q1", "p1")]


@pytest.mark.parametrize("raw", [b"[]", b'{"data": [{"paragraphs": [{"qas": []}]}]}', b"\xff", b'{"data": 3}'])
def test_what_is_not_squads_json_is_one_line(retrieval, raw):
    for name in ("en.json", "it.json.gz"):
        (retrieval / name).write_bytes(raw)
        with pytest.raises(InputError, match="not SQuAD's JSON"):
            list(squad_lines([retrieval / name], "corpus"))


def test_neither_a_recipe_nor_evaluation_is_a_usage_error(tmp_path):
    done = CliRunner().invoke(msdc, ["build-data", "-o", str(tmp_path)])
    assert done.exit_code == 2
    assert "--evaluation" in done.output


def test_the_shipped_list_has_the_sets_of_the_search_page():
    tests = {file for entry in read_sources().values() if entry.test for file in entry.targets}
    for name in (
        "squad-it",
        "squad-es",
        "jaquad",
        "cmrc2018",
        "korquad",
        "faquad",
        *(f"xquad-{code}" for code in ("ar", "de", "en", "es", "tr")),
    ):
        assert {
            f"retrieval/{name}/{part}" for part in ("corpus.jsonl.gz", "queries.jsonl.gz", "qrels/dev.tsv")
        } <= tests
