"""Where a bundle comes from: signed addresses, an app's own fetch, servers that send something else, caches."""

import gzip
import json
from pathlib import Path
from urllib.parse import quote

import devtools
import pytest
from web_pages import TYPES, Reply, Site, site

from msdc.errors import MsdcError
from msdc.export.manifest import read_manifest
from msdc.export.mobile.web import npm

HERE = Path(__file__).parent
PAGE = b'<!doctype html><meta charset="utf-8"><title>page</title><link rel="icon" href="data:,"><body>'
APP = b'<!DOCTYPE html>\n<html><head><title>An app of one page</title></head><body><div id="root"></div></body></html>'
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 29760\n"
THREADS = [{}, {"worker": False}]
AUTHORIZED = {"authorization": "Bearer x"}


@pytest.fixture
def opened(web_bundle):
    with site(page=HERE, bundle=web_bundle) as opened_site:
        yield opened_site


def open_page(chromium, opened: Site, address: str = ""):
    """A page without content; its site's other answers are those of `reply`, which a test may have set."""
    others = opened.reply
    page = Reply(200, PAGE, {"Content-Type": TYPES[".html"]})
    opened.reply = lambda name, query, headers: page if name == "empty" else others(name, query, headers)
    return chromium.open(address or opened.url("empty"))


def call(page, function: str, *arguments: object):
    return page.run(f"import('/page/addresses.js').then((m) => m.{function}(...{json.dumps(arguments)}))")


def guarded(opened: Site, credential: str, is_header: bool) -> list[str]:
    """The site refuses files of the bundle without a signature, or a header; returns the queries that it will see."""
    queries: list[str] = []

    def reply(name, query, headers):
        if not name.startswith("bundle") or name == "bundle/web/msdc.js":
            return None
        queries.append(query)
        return None if credential == (headers.get("authorization") if is_header else query) else Reply(403)

    opened.reply = reply
    return queries


@pytest.mark.parametrize("options", THREADS)
@pytest.mark.parametrize("url", ["/bundle?sig=a%2Bb", "/bundle/?sig=a%2Bb#top", "/bundle/bundle.json?sig=a%2Bb"])
def test_the_querys_signature_goes_with_every_file(opened, chromium, url, options):
    queries = guarded(opened, "sig=a%2Bb", False)
    assert call(open_page(chromium, opened), "load", url, options) == "passed"
    assert len(queries) > 5
    assert {*queries} == {"sig=a%2Bb"}


def test_a_signature_is_neither_cached_nor_shown(opened, chromium):
    guarded(opened, "sig=secret", False)
    page = open_page(chromium, opened)
    outcome = call(page, "cached", "/bundle?sig=secret")
    assert outcome["answer"] == "passed"
    assert len(outcome["keys"]) > 3
    assert not any("secret" in key for key in outcome["keys"])
    # The next signature finds the files of the last one.
    queries = guarded(opened, "sig=later", False)
    assert call(page, "cached", "/bundle?sig=later") == outcome
    assert len(queries) == 1  # the manifest
    refused = call(page, "load", "/bundle?sig=secret")
    assert refused.startswith(f"EncoderError: {opened.url('bundle/bundle.json')}: status 403; pass {{headers}} or")
    assert "secret" not in refused


@pytest.mark.parametrize("options", THREADS)
def test_headers_go_with_every_file(opened, chromium, options):
    queries = guarded(opened, "Bearer x", True)
    page = open_page(chromium, opened)
    assert call(page, "load", "/bundle", {**options, "headers": AUTHORIZED}) == "passed"
    assert len(queries) > 5
    # To another origin too, whose server allows the header.
    opened.headers["bundle"] = {"Access-Control-Allow-Origin": "*"}
    other = opened.url("bundle").replace("127.0.0.1", "localhost")
    assert call(page, "load", other, {**options, "headers": AUTHORIZED}) == "passed"
    assert "status 403" in call(page, "load", "/bundle", options)


@pytest.mark.parametrize("options", THREADS)
def test_an_apps_fetch_gets_every_file(opened, chromium, web_bundle, options):
    page = open_page(chromium, opened)
    for way in ("signed", "plain", "unstreamed", "views"):
        if way == "signed":
            guarded(opened, "sig=abc", False)
        outcome = call(page, "loadBy", way, {**options, "headers": {"X-Tenant": "7"}})
        assert outcome["answer"] == "passed", way
        names = [request["url"].removeprefix(opened.url("bundle/")) for request in outcome["calls"]]
        assert {"bundle.json", "model.onnx", "model.onnx.data", "sentencepiece.model", "golden.json"} <= {*names}
        assert all(request["headers"] == {"x-tenant": "7"} for request in outcome["calls"])
        assert outcome["calls"][0]["cache"] == "no-cache"
        opened.reply = lambda name, query, headers: None
    assert call(page, "loadBy", "broken", options)["answer"].endswith("bundle.json: no answer (the gateway is closed)")
    for way in ("none", "text"):
        assert call(page, "loadBy", way, options)["answer"].endswith("no answer (fetch gave no Response)")
    assert call(page, "load", "/bundle", {"fetch": "x"}) == "!TypeError: fetch is not a function"


@pytest.mark.parametrize("options", THREADS)
def test_an_apps_fetch_has_progress_and_cancellation(opened, chromium, web_bundle, options):
    record = read_manifest(web_bundle).files
    names = ("sentencepiece.model", "model.onnx", "model.onnx.data")
    total = sum(record[name].bytes for name in (*names, *(name for name in record if "runtime/ort" in name)))
    page = open_page(chromium, opened)
    for way in ("plain", "unstreamed"):
        outcome = call(page, "progressBy", way, options)
        assert outcome == {
            "answer": "passed",
            "loaded": total,
            "total": total,
            "rising": True,
            "cancelled": "!Error: enough",
        }
    assert call(page, "cancelDeaf", options) == "!Error: enough"


@pytest.mark.parametrize("name", ["größe é", "100% c#", "a?b", "ひらがな", "a+b&c=d", "bundle.json"])
def test_names_of_folders(chromium, web_bundle, tmp_path, name):
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / name).symlink_to(web_bundle)
    with site(page=HERE, bundle=web_bundle, sets=tmp_path / "sets") as opened:
        page = open_page(chromium, opened)
        address = f"/sets/{quote(name)}"
        for url in (f"{address}/", f"{address}/bundle.json?sig=1#part", opened.url(address[1:]) + "/"):
            assert call(page, "load", url, {"worker": False}) == "passed", url
        if "?" not in name and "#" not in name and "%" not in name:
            assert call(page, "load", f"/sets/{name}/") == "passed"


def test_addresses_of_no_folder(opened, chromium):
    page = open_page(chromium, opened)
    for url in ("data:text/plain,x", "blob:http://127.0.0.1/x", "about:blank"):
        assert "not a web address" in call(page, "load", url)
    message = call(page, "load", opened.url("bundle").replace("//", "//me:secret@"))
    assert message == "EncoderError: a name or password in the bundle's address: pass {headers}"


def test_a_base_element_moves_addresses(opened, chromium):
    page = open_page(chromium, opened)
    page.run("document.head.append(Object.assign(document.createElement('base'), { href: '/bundle/web/' }))")
    assert call(page, "load", "..") == "passed"


# What a server sends for a file of the bundle, and what the load comes to.
PART = "the server sends a part of it (status 206)"
HTML, LFS = "an HTML page instead of the file", "a Git LFS pointer instead of the file; run git lfs pull"
# With a wrong length some browsers give all bytes, some none.
WRONG_LENGTH = "or its Content-Length is wrong"
SENT = {
    "a page": (lambda content: Reply(200, APP, {"Content-Type": "text/html"}), HTML),
    "a page as a file": (lambda content: Reply(200, b"\n<html>" + b"x" * 2_000_000), HTML),
    "a pointer": (lambda content: Reply(200, POINTER), LFS),
    "all as a part": (lambda content: Reply(206, content), "passed"),
    "a longer length": (lambda content: Reply(200, content, length=len(content) + 9), WRONG_LENGTH),
    "packed, with another length": (
        lambda content: Reply(200, gzip.compress(content), {"Content-Encoding": "gzip"}, len(content) + 99_999),
        WRONG_LENGTH,
    ),
    "an end too early": (lambda content: Reply(200, content[:-9], length=len(content)), WRONG_LENGTH),
    "nothing": (lambda content: Reply(204), ""),
}


@pytest.mark.parametrize("kind", SENT)
@pytest.mark.parametrize("file", ["bundle.json", "model.onnx.data"])
@pytest.mark.parametrize("options", THREADS)
def test_what_servers_send(opened, chromium, web_bundle, kind, file, options):
    sent, words = SENT[kind]
    opened.reply = lambda name, *_: sent((web_bundle / file).read_bytes()) if name == f"bundle/{file}" else None
    outcome = call(open_page(chromium, opened), "load", "/bundle", options)
    if kind == "nothing":
        words = "not the manifest of a bundle" if file == "bundle.json" else "0 of 29760 bytes"
    assert words in outcome or (words == WRONG_LENGTH and "early" not in kind and outcome == "passed")
    line = f"EncoderError: {opened.url(f'bundle/{file}')}: "
    assert outcome == "passed" or (outcome.startswith(line) and "\n" not in outcome)


def test_a_part_of_a_file_is_called_one(opened, chromium, web_bundle):
    half = (web_bundle / "model.onnx.data").read_bytes()[:10_000]
    opened.reply = lambda name, *_: Reply(206, half) if name.endswith("model.onnx.data") else None
    assert f"10000 of 29760 bytes; {PART}" in call(open_page(chromium, opened), "load", "/bundle")


def test_redirects_to_another_origin(opened, chromium, web_bundle):
    with site(elsewhere=web_bundle) as other:
        other.headers["elsewhere"] = {"Access-Control-Allow-Origin": "*"}
        target = other.url("elsewhere").replace("127.0.0.1", "localhost")
        to = lambda name: f"{target}/{name.removeprefix('moved/')}"  # noqa: E731
        opened.reply = lambda name, *_: (
            Reply(302, headers={"Location": to(name)}) if name.startswith("moved/") else None
        )
        page = open_page(chromium, opened)
        for options in THREADS:
            assert call(page, "load", "/moved", options) == "passed"


@pytest.mark.parametrize("kind", ["full", "unreadable", "forbidden", "spoiled"])
def test_caches_that_fail(opened, chromium, kind):
    assert call(open_page(chromium, opened), "withCache", kind) == ["passed", "passed"]


def test_a_page_that_is_closed_while_it_caches(opened, chromium, web_bundle):
    """The next one fetches what is missing, and only that."""
    last = f"web/runtime/{npm.WASM}"
    waiting: list[str] = []

    def stall(name, *_):
        if name == f"bundle/{last}" and not waiting:
            waiting.append(name)
            return Reply(200, (web_bundle / last).read_bytes()[:5_000_000], length=14_000_000)
        return None

    opened.reply = stall
    page = open_page(chromium, opened)
    page.run("void import('/page/addresses.js').then((m) => m.load('/bundle', { cache: true }))")
    # The files are stored in any order, so that the cache itself says what the closed page has left.
    page.wait("caches.open('msdc').then(async (store) => (await store.keys()).length >= 3)", 120)
    stored = page.run("caches.open('msdc').then(async (store) => (await store.keys()).map((key) => key.url))")
    page.call("Page.close")
    asked = len(opened.asked)
    page = chromium.open(opened.url("empty"))
    assert call(page, "load", "/bundle", {"cache": True}) == "passed"
    again = [name for name in opened.asked[asked:] if name.startswith("bundle/")]
    assert f"bundle/{last}" in again
    assert not [(name, url) for name in again for url in stored if name in url]


def test_a_page_without_a_secure_context(opened):
    """Plain http from another machine: neither a cache nor the browser's hash function."""
    try:
        devtools.CHROMIUM.program()
    except MsdcError as error:
        pytest.skip(str(error))
    with devtools.chromium("--host-resolver-rules=MAP plain.test 127.0.0.1") as browser:
        page = open_page(browser, opened, opened.url("empty").replace("127.0.0.1", "plain.test"))
        assert page.run("[typeof caches, typeof crypto.subtle]") == ["undefined", "undefined"]
        for options in THREADS:
            assert call(page, "load", "/bundle", {"cache": True, **options}) == "passed"
