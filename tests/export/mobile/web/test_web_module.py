"""The web module in a real Chromium: ids, vectors, downloads, cancellation, refusals, the search page."""

import base64
import contextlib
import gzip
import hashlib
import json
import re
import shutil
import sqlite3
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import tiny_models as tiny
from browser import chromium_or_skip
from folder_kinds import UNPOOLED, kind_bundle
from hostile_inputs import DOCUMENTS as DOCUMENTS_OF_ALL_KINDS
from hostile_inputs import HALVES, NUL, TEXTS, damaged_bundles, damaged_indexes, utf16
from phone_search import DOCUMENTS, QUERIES, filter_of, options_of
from programs import node, run
from refusals import spoil
from small_tokenizers import fuzz_texts
from stock_models import write_stock
from web_pages import answer_of_engine, site

import msdc
from msdc.encoders.folder import with_prompt
from msdc.errors import MsdcError
from msdc.export import export
from msdc.export.bundle import load_bundle
from msdc.export.golden import golden_texts
from msdc.export.manifest import check_files, read_manifest
from msdc.export.mobile.module import write_native_module
from msdc.export.mobile.sizes import measured
from msdc.export.mobile.web import npm
from msdc.export.mobile.web.write import module_source
from msdc.export.options import ExportSettings
from msdc.scores import cosine_rows
from msdc.search.index import Index

HERE = Path(__file__).parent
PROMPTS = {"query": "query: "}


@pytest.fixture(scope="module")
def bundle(web_bundle) -> Path:
    """The tiny student for the web, with the runtime beside it."""
    return web_bundle


@pytest.fixture(scope="module")
def page_report(bundle, tmp_path_factory) -> dict:
    """What the page reports about the bundle, and about damaged copies of it."""
    texts = golden_texts() + fuzz_texts(300, 11)
    request = tmp_path_factory.mktemp("request")
    (request / "request.json").write_text(json.dumps({"texts": texts, "encoded": 40}))
    edited = tmp_path_factory.mktemp("edited")
    (edited / "bundle.json").write_text((bundle / "bundle.json").read_text().replace('"width": 32', '"width": 31', 1))
    folders = dict.fromkeys(("bundle", "damaged", "short", "long"), bundle)
    spoil(spoiled := shutil.copytree(bundle, tmp_path_factory.mktemp("spoiled"), dirs_exist_ok=True))
    with site(page=HERE, request=request, edited=edited, spoiled=spoiled, **folders) as opened:

        def change(name: str, content: bytes) -> bytes:
            if not name.endswith("model.onnx.data"):
                return content
            if name.startswith("damaged"):
                return content[:-1] + bytes([content[-1] ^ 1])
            return content[:-7] if name.startswith("short") else content + b"7" if name.startswith("long") else content

        opened.change = change
        answer = answer_of_engine(opened, "page/page.html#checks", "chromium")
    return answer | {"texts": texts}


def test_ids_and_vectors_are_those_of_the_library(page_report, bundle):
    loaded = load_bundle(bundle)
    assert page_report["rows"] == loaded.tokenize(page_report["texts"])
    vectors = np.asarray(page_report["vectors"], dtype=np.float32)
    expected = loaded.encode(page_report["texts"][: len(vectors)], prompt="")
    cosines = cosine_rows(expected, vectors)
    assert cosines.mean() > 0.999
    assert cosines.min() > 0.99
    assert page_report["selfTest"]["passed"]
    assert page_report["selfTest"]["idsEqual"] == page_report["selfTest"]["texts"]
    # A vector that is cloned or stored brings no other with it.
    assert page_report["single"] == {
        "values": page_report["vectors"][1],
        "ids": page_report["rows"][1],
        "bytes": 4 * 32,
    }
    assert page_report["similar"][0] == pytest.approx(1, abs=1e-6)
    assert page_report["similar"][1][0] == 1


def test_facts_prompts_and_widths(page_report):
    facts = page_report["facts"]
    assert facts["name"] == "web-bundle"
    assert facts["width"] == 32
    assert facts["maxLength"] == tiny.MAX_LENGTH
    assert facts["prompts"] == PROMPTS
    assert facts["runtime"] == npm.VERSION
    assert facts["memoryBytes"] > 2**20
    assert page_report["prompted"]["ids"] == page_report["prompted"]["joined"]
    assert page_report["prompted"]["short"] == 3
    assert page_report["prompted"]["none"] == []


def test_progress_counts_every_byte(page_report, bundle):
    record = read_manifest(bundle).files
    names = ("sentencepiece.model", "model.onnx", "model.onnx.data", f"web/runtime/{npm.SCRIPT}",
             f"web/runtime/{npm.WASM}")  # fmt: skip
    total = sum(record[name].bytes for name in names)
    assert page_report["progress"]["rising"]
    assert page_report["progress"]["last"]["loaded"] == total
    assert page_report["progress"]["first"]["total"] == total


def test_refusals_are_one_line(page_report):
    refused = page_report["refused"]
    assert [refused[name]["name"] for name in ("text", "number", "name", "width", "least")] == [
        "TypeError", "TypeError", "RangeError", "RangeError", "RangeError",
    ]  # fmt: skip
    for name, word in {
        "absent": "status 404", "pinned": "another sha256", "damaged": "sha256 is not the manifest's",
        "short": "bytes: damaged", "long": "more than", "edited": "seal",
        "spoiled": "the vector of text 1 holds NaN or infinity",
    }.items():  # fmt: skip
        assert refused[name]["known"] and word in refused[name]["message"], (name, refused[name])
        assert "\n" not in refused[name]["message"]


def test_cancellation_ends_a_list_and_leaves_other_calls(page_report):
    cancelled = page_report["cancelled"]
    assert cancelled["name"] == "AbortError"
    assert 0 < cancelled["seen"] < cancelled["of"]
    assert cancelled["beside"] == pytest.approx(1, abs=1e-6)
    assert page_report["early"]["name"] == "AbortError"
    assert [error["message"] for error in page_report["closed"]] == ["the encoder is closed"] * 2


def test_a_second_start_reads_the_cache_and_gives_equal_vectors(page_report):
    assert page_report["again"]["same"]
    # Only the manifest is asked for again; the checked runtime is imported from memory.
    assert [name for name in page_report["again"]["fetched"] if name.startswith("/bundle")] == ["/bundle/bundle.json"]
    assert page_report["cleared"] == [True, False]


def test_search_page_answers_as_one_types(bundle):
    # The policy that the README states; it also holds for the worker, whose script carries it.
    script, worker = re.findall(r"`((?:script|worker)-src [^`]*)`", (bundle / "web/README.md").read_text())
    with site(page=HERE, bundle=bundle) as opened:
        opened.headers["bundle"] = {"Content-Security-Policy": f"{script}; {worker}"}
        answer = answer_of_engine(opened, "page/page.html#demo", "chromium")
    assert answer["notes"] == 16
    assert answer["indexed"].startswith("16 notes indexed")
    # Of the nearest eight those that are relevant, or have the text.
    cosines = read_manifest(bundle).cosines
    least = cosines.mean + 1.5 * cosines.deviation - 0.01
    assert 1 <= len(answer["found"]) == len(answer["cosines"]) <= 8
    for note, cosine in zip(answer["found"], answer["cosines"], strict=True):
        assert cosine >= least or answer["typed"] in note
    assert answer["searched"].startswith(f"{len(answer['found'])} of 16")
    assert answer["example"] == "something to eat"
    assert answer["first"] == answer["typed"]
    assert answer["edited"] == ["only one note"]
    assert answer["overflow"] <= 0


@pytest.fixture
def browser():
    with chromium_or_skip() as opened:
        yield opened


def test_search_page_that_cannot_start_says_why(bundle, browser, tmp_path):
    """A module that is missing or not sent as a script, a runtime that is missing, a policy without WebAssembly."""
    plain = shutil.copytree(bundle, tmp_path / "plain")
    manifest = json.loads((plain / "bundle.json").read_text())
    manifest["files"] = {name: facts for name, facts in manifest["files"].items() if "runtime" not in name}
    text = json.dumps(manifest | {"seal": "0" * 64}, indent=2)
    (plain / "bundle.json").write_text(text.replace("0" * 64, hashlib.sha256(text.encode()).hexdigest(), 1))
    (missing := shutil.copytree(bundle, tmp_path / "missing")).joinpath("web/msdc.js").unlink()
    policy = {"Content-Security-Policy": "script-src 'self' blob:; worker-src 'self'"}
    failed = "document.getElementById('state').classList.contains('failed')"
    with site(bundle=bundle, plain=plain, missing=missing, typed=bundle) as opened:
        opened.headers |= {"bundle": policy, "typed/web/msdc.js": {"Content-Type": "text/plain"}}
        for folder in ("missing", "typed"):
            page = browser.open(opened.url(f"{folder}/web/demo.html"))
            page.wait("document.getElementById('help').checkVisibility({ visibilityProperty: true })", 60)
            shown = page.run("document.getElementById('help').innerText")
            assert "python3 -m http.server" in shown
            assert "msdc export MODEL --target web --with-runtime" in shown
        for folder, line in (("plain", "onnxruntime-web is missing: export with --with-runtime"),
                             ("bundle", "forbids WebAssembly: add 'wasm-unsafe-eval' to script-src")):  # fmt: skip
            page = browser.open(opened.url(f"{folder}/web/demo.html"))
            page.wait(failed, 60)
            assert line in page.run("document.getElementById('state').innerText")
            assert not any(name.startswith(folder) and "model" in name for name in opened.asked)
            for scheme in ("light", "dark"):
                page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
                assert min(page.contrast(selector) for selector in ("#state", "h1 + p", "h1")) >= 4.5, scheme


OFFLINE = """<!doctype html><script type=module>
import { Encoder } from "/bundle/web/msdc.js";
await navigator.serviceWorker.register("/sw.js");
await navigator.serviceWorker.ready;
const encoder = await Encoder.load("/bundle", { sha256: "PINNED" });
document.title = [...(await encoder.encode("a note")).slice(0, 3)].join();
</script>"""


def test_a_pinned_bundle_starts_without_a_network(bundle, browser, tmp_path):
    readme = (bundle / "web/README.md").read_text()
    (snippet,) = re.findall(r"```js\n(const FILES.*?)```", readme, re.DOTALL)
    (tmp_path / "sw.js").write_text(snippet.replace("/path/to/this/bundle/", "/bundle/"))
    pinned = hashlib.sha256((bundle / "bundle.json").read_bytes()).hexdigest()
    (tmp_path / "index.html").write_text(OFFLINE.replace("PINNED", pinned))
    with site(**{"bundle": bundle, "index.html": tmp_path / "index.html", "sw.js": tmp_path / "sw.js"}) as opened:
        page = browser.open(opened.url("index.html"))
        first = page.wait("document.title", 120)
    asked = len(opened.asked)
    page.call("Page.reload")
    assert page.wait("performance.getEntriesByType('navigation')[0].type == 'reload' && document.title", 120) == first
    assert len(opened.asked) == asked


# Quotes, codes, names, other spellings, entries with the same words, times, and characters of two units before words.
SPELLED = [
    {
        "id": "w1",
        "text": "\U0001f697\U0001f697 The blue bicycle of Jürgen Groß. Wi-Fi: getUserAddress (ZQ-8812).",
        "owner": "",
    },
    {"id": "w2", "text": "the bicycle (blue) of\u00a0O'Brien, in Muenchen. \U00010428 is a letter.", "owner": None},
    {"id": "w3", "title": "Garage", "text": "Blue. Bicycle! A garage: kubernetes, Москва, 東京の夏", "owner": "Ann"},
    {"id": "w4", "text": "Kept in twice; the bicycle.", "when": "2025-03-01T10:00:00+02:00", "owner": ["Ann", "Bob"]},
    {"id": "w5", "text": "KEPT in twice,\nthe Bicycle", "when": "2025-03-01T09:30:00.000Z", "owner": "Bob"},
    {"id": "w6", "text": "kept in twice the bicycle?", "when": "2026-01-01"},
    *({"id": f"p{row}", "text": f"Paragraph {row} of a page. \U0001f4c4 It ends here."} for row in range(12)),
]
TEN = datetime(2025, 3, 1, 10, tzinfo=UTC)
QUESTIONS = [
    *((query, {"mode": mode, "top": top, "where": filter_of(where)} | options_of(" ".join(option_words)))
      for mode, top, where, query, *option_words in QUERIES if mode != "like"),
    ("ticket", {"where": {"year": (2025, 2025.5)}}), ("a b OR (c* NEAR", {}),
    ("ticket", {"threshold": 0.5}), ("the blue bicycle", {"threshold": 0.9}),
    ('"blue bicycle"', {}), ("„Blue Bicycle“ garage", {"mode": "words"}), ('bicycle -"blue bicycle" -kubernetes', {}),
    ('"blue bicycle" -garage', {"syntax": "plain"}), ("-garage", {}), ('a 27" wheel or 32"', {}), ("\U00010428", {}),
    ("bicycle -Garage", {"where": {"owner": ["Ann", None]}}),
    ("kuber", {"mode": "words"}), ("kuber ", {"mode": "words"}), ("kubernetse", {"mode": "words"}), ("moskva", {}),
    ("jurgen gross", {}), ("Juergen", {"mode": "words"}), ("wifi getUserAddress", {}), ("Garage", {}), ("東京", {}),
    ("user address", {"mode": "words"}), ("zq8812", {}), ("ZQ-8812", {"mode": "words"}), ("obrien München", {}),
    ("夏", {"mode": "words"}), ("\u30ac\u30fc \u1112\u1161\u11ab\u1100", {"mode": "words"}),
    ("kept in twice the bicycle", {"mode": "words"}), ("kept twice", {"distinct": False}),
    ("kept twice", {"where": {"owner": {"not": "Ann"}}}), ("page", {"mode": "words", "top": 3, "offset": 4}),
    ("paragraph of a page", {"top": 5, "offset": 9}), ("paragraph", {"mode": "vectors", "offset": 2, "top": 4}),
    ("page", {"offset": 1000}), ("page", {"mode": "vectors", "offset": 1000, "top": 4000}),
    ("bicycle", {"where": {"owner": None}}), ("bicycle", {"where": {"owner": {"not": None}}}),
    ("bicycle", {"where": {"owner": {"not": ["Ann", None]}}}), ("bicycle", {"where": {"when": (TEN, None)}}),
    ("bicycle", {"where": {"when": (None, TEN)}}), ("bicycle", {"where": {"when": {"not": [(TEN, None), None]}}}),
    ("bicycle", {"where": {"when": "2025-03-01"}}),
]  # fmt: skip


def for_page(value: object) -> object:
    """A filter as the page takes it, with an object for bounds; a time is written so that the page makes it a Date."""
    if isinstance(value, datetime):
        return {"date": value.isoformat()}
    if isinstance(value, dict):
        return {name: for_page(member) for name, member in value.items()}
    if isinstance(value, tuple):
        return {
            name: for_page(bound) for name, bound in zip(("least", "most"), value, strict=True) if bound is not None
        }
    return [for_page(member) for member in value] if isinstance(value, list) else value


def asked(index: Index) -> list[list]:
    """The answers that a page should give."""
    return [index.search(query, **options).hits for query, options in QUESTIONS]


def units(text: str, spans: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Spans in characters as spans in UTF-16 units."""
    return [[len(utf16(text[:end])) // 4 for end in span] for span in spans]


def same(hits: list[list], page_hits: list[list[dict]]) -> None:
    for desktop_hits, theirs, question in zip(hits, page_hits, QUESTIONS, strict=True):
        assert [hit.id for hit in desktop_hits] == [hit["id"] for hit in theirs], question
        for hit, other in zip(desktop_hits, theirs, strict=True):
            assert [hit.passage, hit.title, hit.metadata, hit.count] == [
                other[name] for name in ("passage", "title", "metadata", "count")
            ], question
            assert [*units(hit.text, [(hit.start, hit.end)]), *units(hit.text, hit.matches)] == [
                [other["start"], other["end"]], *other["matches"]
            ], question  # fmt: skip
            assert [hit.score, hit.cosine, hit.words] == pytest.approx(
                [other["score"], other["cosine"], other["words"]], abs=2e-3
            )  # fmt: skip


def rows_of(path: Path) -> list[list]:
    """What two equal indexes have in common."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        documents = db.execute("SELECT id, key, title, text FROM documents").fetchall()
        spans = db.execute("SELECT document, start, end, block, crc FROM passages").fetchall()
        blocks = db.execute("SELECT id, passages, documents FROM blocks").fetchall()
        tables = db.execute("SELECT name, tbl_name FROM sqlite_master WHERE name NOT LIKE 'sqlite%' ORDER BY name")
        return [documents, spans, blocks, tables.fetchall()]


def test_search_index_gives_the_desktops_answers(bundle, tmp_path):
    loaded, manifest, documents = load_bundle(bundle), read_manifest(bundle), [*DOCUMENTS, *SPELLED]
    with msdc.open_index(tmp_path / "desktop.sqlite", loaded) as index:
        index.add(documents)
        expected = asked(index)
    assert sum(len(hit.matches) for hits in expected for hit in hits) > 100
    assert {hit.count for hits in expected for hit in hits} == {1, 2, 3}
    for name, change in (
        ("desktop", f"INSERT OR REPLACE INTO facts VALUES ('source', '{manifest.model.source_sha256}')"),
        ("other", "UPDATE facts SET value = 'other' WHERE name IN ('source', 'model')"),
        ("broken", "UPDATE blocks SET vectors = zeroblob(length(vectors))"),
        ("lost", "DELETE FROM passages WHERE document = 1"),
    ):
        if name != "desktop":
            shutil.copyfile(tmp_path / "desktop.sqlite", tmp_path / f"{name}.sqlite")
        with contextlib.closing(sqlite3.connect(tmp_path / f"{name}.sqlite")) as db, db:
            db.execute(change)
    request = {"documents": documents, "questions": for_page([list(question) for question in QUESTIONS])}
    (tmp_path / "request.json").write_text(json.dumps(request))
    with site(page=HERE, bundle=bundle, index=tmp_path) as opened:
        report = answer_of_engine(opened, "page/page.html#search", "chromium")
    same(expected, report["desktop"])
    same(expected, report["made"])
    assert report["empty"] == []
    assert report["added"] == [len(documents)] * 2
    assert report["changed"] == [1, len(documents) - 1, "d1"]
    assert not report["stale"]
    numbers = [str(len(documents) + 2), "9007199254740991", str(len(documents) + 4)]
    assert report["ids"] == sorted(map(list, zip([*numbers, "x"], ["first", "large", "second", "last"], strict=True)))
    assert report["dated"] == [["dated", "2031-05-31T08:00:00.000Z"], []]
    assert report["sizes"][1] < report["sizes"][0] - 90_000
    assert report["compacted"] == [len(documents) + 4, 4]
    for name, words in {
        "twice": "RangeError: index: a document 'd1' exists already; use update", "blank": "has no text",
        "query": "RangeError: a query is empty", "lost": "parts of documents are missing",
        "column": "RangeError: no column 'lnag' to filter by (columns: author, day,",
        "nan": "year is NaN", "half": "half of", "mode": "known: words, vectors, both",
        "syntax": "RangeError: `syntax` 'none' is unknown; known: operators, plain",
        "offset": "RangeError: `offset` -1: must be at least 0", "top": "RangeError: `top` 0: must be at least 1",
        "no_value": "filter 'lang': an empty list matches nothing", "key": "filter year: expected a value",
        "nested": "filter year: expected a value", "undefined": "filter year: expected a value",
        "quoted_name": "a column is a name without a double quote", "bad_date": "is an invalid date",
        "other": "OtherModel: index: made with another", "broken": "the vectors of block 1",
        "unchecked": "the vectors of block 1",
        "none": "Damaged: index: the bytes are no search index", "wasm": "no search.wasm",
    }.items():  # fmt: skip
        assert words in (report["refused"][name] or "") and "\n" not in report["refused"][name], name
    assert report["closed"] == "EncoderError: the index is closed"
    assert report["many"] == [600, [{"done": done, "total": 600} for done in (256, 512, 600)]]
    assert report["stopped"] == ["Error: enough", 600]
    rebuilt, count = report["rebuilt"], len(documents)
    assert (rebuilt["before"], rebuilt["count"], rebuilt["again"]) == (count, count, 0)
    assert rebuilt["calls"][-1] == {"done": count, "total": count}
    assert rebuilt["words"][0] == rebuilt["words"][1] != "[]"
    absent = "TypeError: the index was opened without an encoder, which only words need not"
    assert rebuilt["refusals"] == [absent, absent, "Error: enough"]
    assert (rebuilt["document"]["text"], rebuilt["none"]) == (documents[0]["text"], None)
    same(expected, rebuilt["answers"])
    # What the page made is the desktop's file: same rows, and it opens there.
    (tmp_path / "made.sqlite").write_bytes(base64.b64decode(report["bytes"]))
    assert rows_of(tmp_path / "made.sqlite") == rows_of(tmp_path / "desktop.sqlite")
    with contextlib.closing(sqlite3.connect(tmp_path / "made.sqlite")) as db, db:
        db.execute("UPDATE facts SET value = ? WHERE name = 'model'", [loaded.fingerprint()])
    with msdc.open_index(tmp_path / "made.sqlite", loaded) as index:
        same(asked(index), report["made"])


def test_hostile_texts_damaged_bundles_and_indexes(bundle, tmp_path):
    loaded, manifest = load_bundle(bundle), read_manifest(bundle)
    with msdc.open_index(tmp_path / "whole.sqlite", loaded) as index:
        index.add(DOCUMENTS_OF_ALL_KINDS)
        queries = [text for text in TEXTS.values() if text.strip()]
        ids = [[hit.id for hit in index.search(text, 3).hits] for text in queries]
    with contextlib.closing(sqlite3.connect(tmp_path / "whole.sqlite")) as db, db:
        db.execute("INSERT OR REPLACE INTO facts VALUES ('source', ?)", [manifest.model.source_sha256])
        db.execute("PRAGMA journal_mode = DELETE")
    files = [manifest.tokenizer.file, "golden.json", *manifest.program_files("onnx"), f"web/runtime/{npm.SCRIPT}"]
    bundles = damaged_bundles(bundle, tmp_path / "bundles", files)
    indexes = damaged_indexes(tmp_path / "whole.sqlite", tmp_path / "indexes")
    texts = list(TEXTS.values())
    request = {"texts": texts, "queries": queries, "halves": [*HALVES.values()], "nul": NUL, "bundles": [*bundles],
               "indexes": indexes, "documents": DOCUMENTS_OF_ALL_KINDS}  # fmt: skip
    (tmp_path / "request.json").write_text(json.dumps(request))
    folders = {"request": tmp_path, "bundles": tmp_path / "bundles", "indexes": tmp_path / "indexes"}
    with site(page=HERE, bundle=bundle, **folders) as opened:
        report = answer_of_engine(opened, "page/page.html#hostile", "chromium")
    assert report["rows"] == loaded.tokenize(texts)
    np.testing.assert_allclose(np.asarray(report["vectors"]), loaded.encode(texts, prompt=""), atol=1e-3)
    assert report["count"] == len(DOCUMENTS_OF_ALL_KINDS)
    assert report["same"]
    (tmp_path / "made.sqlite").write_bytes(base64.b64decode(report["bytes"]))
    assert rows_of(tmp_path / "made.sqlite") == rows_of(tmp_path / "whole.sqlite")
    assert all("half of a surrogate pair" in line for line in report["halves"])
    assert len(report["halves"]) == 60
    assert all("NUL" in line for line in report["nul"])
    assert len(report["nul"]) == 6
    # Neighbours whose cosines are almost equal may change places.
    assert [len(page_ids) for page_ids in report["queries"]] == [len(python_ids) for python_ids in ids]
    assert len(ids) > 20
    assert all(
        len({*page_ids} & {*python_ids}) >= len(page_ids) - 1
        for page_ids, python_ids in zip(report["queries"], ids, strict=True)
    )
    wrong = {name: line for name, line in report["bundles"].items() if bundles[name] not in line}
    assert wrong == {}
    assert not any("\n" in line for line in report["bundles"].values())
    accepted = [name for name, line in report["indexes"].items() if line == "accepted"]
    strange = [line for line in report["indexes"].values() if line != "accepted" and not line.startswith("index: ")]
    assert strange == []
    assert len(accepted) < len(indexes) - 30


def test_files_are_listed_and_the_manifest_seals_them(bundle):
    manifest = read_manifest(bundle)
    check_files(bundle, manifest)
    assert {"web/msdc.js", "web/msdc.d.ts", "web/package.json", "web/README.md", "web/demo.html", "web/demo.js",
            "sentencepiece.model"} <= manifest.files.keys()  # fmt: skip
    assert "tokenizer.json" not in manifest.files
    package = json.loads((bundle / "web/package.json").read_text())
    assert package["peerDependencies"] == {npm.PACKAGE: npm.VERSION}
    search_files = {"search.js", "search.d.ts", "search.wasm"}
    assert {f"web/{name}" for name in search_files} <= manifest.files.keys()
    assert search_files <= {*package["files"]}
    for path in (bundle / "web").glob("*.*"):
        assert path.suffix in (".js", ".wasm") or "{{" not in path.read_text(), path
    assert "[`web/`](web/README.md)" in (bundle / "README.md").read_text()


def test_module_is_one_valid_file_and_its_types_name_what_it_exports(tmp_path):
    source = module_source()
    imports = re.findall(r"\bfrom ['\"]|^import .*", source, re.MULTILINE)
    assert imports == []
    assert source.count("\nexport ") == 5
    (tmp_path / "msdc.mjs").write_text(source)
    run(node(), "--check", tmp_path / "msdc.mjs")
    size = measured()["web"]["compressed"]
    assert 0.95 * size < len(gzip.compress(source.encode(), 9)) < 1.05 * size
    types = (Path(npm.__file__).parent / "template/msdc.d.ts").read_text()
    typed, exported = (re.findall(r"^export (?:class|function) (\w+)", text, re.MULTILINE) for text in (types, source))
    assert set(typed) == {*exported, "EncoderError"}


def test_module_without_runtime_says_how_to_get_it(tmp_path):
    held = tiny.bundle("fp32", "onnx")
    shutil.copytree(held, tmp_path / "b")
    write_native_module(tmp_path / "b", read_manifest(held), ExportSettings(target="web"))
    text = (tmp_path / "b/web/README.md").read_text()
    assert f"npm install onnxruntime-web@{npm.VERSION}" in text
    assert not (tmp_path / "b/web/runtime").exists()


@pytest.mark.parametrize("request_", [{"target": "android"}, {"target": "linux"}, {"target": "web", "module": False}])
def test_runtime_for_nothing_is_refused_before_work(request_, tmp_path):
    with pytest.raises(MsdcError, match="`with_runtime` is for web pages"):
        export("no-such-model", output=tmp_path / "out", with_runtime=True, **request_)


def test_runtime_is_checked_at_every_use_and_absent_npm_is_named(with_runtime, tmp_path, monkeypatch):
    runtime_folder = npm.runtime_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    copy = tmp_path / "msdc" / npm.PACKAGE / npm.VERSION
    shutil.copytree(runtime_folder, copy)
    monkeypatch.setenv("PATH", "")
    assert npm.runtime_folder() == copy
    (copy / npm.SCRIPT).write_text("changed")
    with pytest.raises(MsdcError, match=r"npm, which fetches onnxruntime-web .* is not installed"):
        npm.runtime_folder()


def test_tokenizer_json_bundle_in_node(with_runtime, tmp_path):
    """In one thread, with the hash function for pages that are no secure context."""
    model = write_stock(tmp_path / "bert", "bert")
    out, manifest = export(str(model), target="web", precision="fp32", output=tmp_path / "out")
    assert manifest.tokenizer.compiled == "tokenizer.bin"
    encode_in_node(out, out / "web/msdc.js", golden_texts()[:40], tmp_path)


def encode_in_node(folder: Path, module: Path, texts: list[str], work: Path) -> None:
    """Ids and vectors of texts by the module are those of Python."""
    (work / "texts.json").write_text(json.dumps(texts))
    bundle, words = load_bundle(folder, "onnx"), (npm.runtime_folder(), module, work / "texts.json")
    with site(bundle=folder) as opened:
        report = json.loads(run(node(), HERE / "encode.mjs", opened.url("bundle"), *words))
    assert json.loads(run(node(), HERE / "encode.mjs", folder, *words)) == report  # by its path
    prompted = with_prompt(bundle.defaults.prompt(), texts)
    assert report["rows"] == bundle.tokenize(prompted)
    assert report["selfTest"]["passed"]
    np.testing.assert_allclose(np.asarray(report["vectors"], dtype=np.float32), bundle.encode(texts), atol=1e-4)


@pytest.mark.parametrize("kind", [UNPOOLED, "static"])
def test_prompts_that_are_not_pooled_and_blank_texts_in_node(with_runtime, tmp_path, kind):
    _, folder = kind_bundle(kind, "onnx")
    (tmp_path / "msdc.mjs").write_text(module_source(), encoding="utf-8")
    encode_in_node(folder, tmp_path / "msdc.mjs", ["a dog", "The BIG cat", "", "  "], tmp_path)


def test_mistyped_options_and_addresses_are_refused(tmp_path):
    module = tmp_path / "msdc.mjs"
    module.write_text(module_source(), encoding="utf-8")
    messages = json.loads(run(node(), HERE / "refusals.mjs", module))
    assert messages["path"].startswith("EncoderError: file:///some/folder/bundle.json: no answer (ENOENT")
    options = "sha256, runtime, threads, cache, headers, fetch, worker, signal, onProgress"
    assert messages["load"] == f"TypeError: option sha is unknown; known: {options}"
    assert messages["encode"].startswith("TypeError: option promt is unknown; known: prompt, promptName, truncateDim")
    assert messages["tokenize"].startswith("TypeError: option truncateDim is unknown")
    assert messages["selfTest"] == "TypeError: option sginal is unknown; known: signal"
    for name, line in {
        "half": "text 2 has half of a surrogate pair", "low": "text 1 has half of a surrogate pair",
        "halfPrompt": "the prompt has half of a surrogate pair", "number": "the prompt is not a string",
        "hole": "text 1 is not a string",
    }.items():  # fmt: skip
        assert messages[name] == f"TypeError: {line}"
    assert messages["pair"] == messages["known"] == "accepted"
