"""Where the encoder runs: workers of several origins, policies and frames; workers of the app; service workers."""

import json
import shutil
from pathlib import Path

import pytest
from programs import ask_node, node, run
from web_pages import TYPES, Reply, Site, site

from msdc.export.mobile.web import npm

HERE = Path(__file__).parent
PAGE = '<!doctype html><meta charset="utf-8"><title>page</title><link rel="icon" href="data:,"><body>'
RUNTIME = f"/bundle/web/runtime/{npm.SCRIPT}"
WORKS, WORKS_HERE = {"passed": True, "isHere": False}, {"passed": True, "isHere": True}
ISOLATED = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}
TRUSTED = "require-trusted-types-for 'script'"


@pytest.fixture(scope="module")
def sites(web_bundle):
    """A page's site that has the bundle too, and another origin with the bundle alone; both allow other origins."""
    with site(page=HERE, bundle=web_bundle) as page_site, site(bundle=web_bundle) as other:
        for opened in (page_site, other):
            opened.headers |= {top: {"Access-Control-Allow-Origin": "*"} for top in ("page", "bundle")}
        yield page_site, other


def open_page(chromium, opened: Site, policy: str = "", **extra_headers: str):
    """A page without content, with a content security policy and more headers."""
    headers = {"Content-Type": TYPES[".html"], "Content-Security-Policy": policy, **extra_headers}
    opened.reply = lambda name, query, _: Reply(200, PAGE.encode(), headers) if name == "empty" else None
    return chromium.open(opened.url("empty"))


def call(page, function: str, *arguments: object, module: str = "/page/attempt.js"):
    return page.run(f"import('{module}').then((module) => module.{function}(...{json.dumps(arguments)}))")


def refused(error: dict, *words: str) -> None:
    """One line of the module's own that has these words."""
    assert error["isOurs"], error
    assert "\n" not in error["message"]
    for word in words:
        assert word in error["message"]


@pytest.mark.parametrize("policy", ["", TRUSTED, f"{TRUSTED}; trusted-types msdc", "script-src ORIGINS"])
@pytest.mark.parametrize("is_other", [False, True])
def test_a_worker_starts_whatever_the_origin_of_the_module(sites, chromium, policy, is_other):
    page_site, other = sites
    base = other.url("bundle").replace("127.0.0.1", "localhost") if is_other else "/bundle"
    strict = f"'self' {other.url('').replace('127.0.0.1', 'localhost')} blob:"
    policy = policy.replace("ORIGINS", f"{strict} 'wasm-unsafe-eval'; worker-src {strict}")
    page = open_page(chromium, page_site, policy)
    assert call(page, "attempt", base, base) == WORKS
    assert call(page, "attempt", base, base, {"worker": False}) == WORKS_HERE


@pytest.mark.parametrize("is_other", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_an_isolated_page(sites, chromium, is_other, threads):
    """Its policy for embedded files, which threads need, holds for the worker's script too, whose answer has none."""
    page_site, other = sites
    base = other.url("bundle").replace("127.0.0.1", "localhost") if is_other else "/bundle"
    page = open_page(chromium, page_site, **ISOLATED)
    assert page.run("crossOriginIsolated")
    assert call(page, "attempt", base, base, {"threads": threads}) == WORKS


def test_threads_that_a_policy_forbids_are_not_waited_for(sites, chromium):
    page = open_page(chromium, sites[0], "worker-src 'self'", **ISOLATED)
    error = call(page, "attempt", "/bundle", "/bundle", {"threads": 2, "worker": False})
    refused(error, "a thread of the runtime did not start", "worker-src needs blob:", "{threads: 1}")


@pytest.mark.parametrize(
    ("policy", "is_other", "words"),
    [
        ("worker-src 'none'", False, ["msdc.js) did not start", "worker-src", "{worker: false}"]),
        ("worker-src 'self'", True, ["of another origin", "worker-src needs blob: and that origin", "{worker: false}"]),
        (f"{TRUSTED}; trusted-types other", False, ["no `trusted-types msdc`", "{worker: false}"]),
    ],
)
def test_a_policy_that_forbids_the_worker_is_named(sites, chromium, policy, is_other, words):
    page_site, other = sites
    base = other.url("bundle").replace("127.0.0.1", "localhost") if is_other else "/bundle"
    page = open_page(chromium, page_site, policy)
    refused(call(page, "attempt", base, base), *words)
    assert call(page, "attempt", base, base, {"worker": False}) == WORKS_HERE


def test_a_script_that_is_not_there_or_fails_is_named(sites, chromium, web_bundle, tmp_path):
    """What a bundler leaves behind that does not know workers: the module under another name."""
    shutil.copyfile(web_bundle / "web/msdc.js", tmp_path / "app.js")
    (tmp_path / "attempt.js").write_text((HERE / "attempt.js").read_text().replace("${base}/web/msdc.js", "./app.js"))
    with site(page=tmp_path, bundle=web_bundle) as opened:
        page = open_page(chromium, opened)
        refused(call(page, "attempt", "", "/bundle"), "/page/msdc.js) did not start: its script is not there")
        (tmp_path / "msdc.js").write_text("document.title = 'an app';")
        refused(
            call(page, "attempt", "", "/bundle"), "the worker failed: Uncaught ReferenceError: document is not defined"
        )


FRAMES = [{"kind": kind} for kind in ("srcdoc", "data", "blob")]


@pytest.mark.parametrize("frame", [*FRAMES, *({**frame, "sandbox": "allow-scripts"} for frame in FRAMES[:2])], ids=str)
def test_frames(sites, chromium, frame):
    """Some have no origin, and no cache; addresses are relative to that of the page around one without an address."""
    page_site, _ = sites
    page, base = open_page(chromium, page_site), page_site.url("").rstrip("/")
    assert call(page, "inFrame", base, frame) == WORKS
    if frame["kind"] == "srcdoc":
        assert call(page, "inFrame", base, frame, "bundle") == WORKS


@pytest.mark.parametrize(
    ("how", "workers", "worker_state"), [("worker", 1, ["hello"]), ("function", 2, "ended"), ("promise", 2, "ended")]
)
def test_a_worker_of_the_app(sites, chromium, how, workers, worker_state):
    """Several encoders share it, next to the app's messages; one that was handed over is left running."""
    page = open_page(chromium, sites[0])
    outcome = call(page, "withOwnWorker", "/bundle", "/page/own_worker.js", how)
    assert outcome == {"workers": workers, "same": True, "said": worker_state}


def test_a_worker_of_the_app_without_the_module(chromium, web_bundle):
    """It is not waited for forever; the time is shorter here."""
    with site(page=HERE, bundle=web_bundle) as opened:
        opened.change = lambda name, content: content.replace(b"SILENCE_S = 60", b"SILENCE_S = 2")
        page = open_page(chromium, opened)
        error = call(page, "withOwnWorker", "/bundle", "data:text/javascript,1", "worker")
        refused(error, "no answer from the worker in 2 s: its script has to import this bundle's msdc.js")
        refused(
            call(page, "withOwnWorker", "/bundle", "/page/absent.js", "worker"), "{worker} did not start: its script"
        )
        error = page.run("import('/page/attempt.js').then((m) => m.attempt('/bundle', '/bundle', { worker: 'a.js' }))")
        assert error == {"name": "TypeError", "message": "{worker} is not a Worker", "isOurs": False}


# What runs in a thread of the app: the module there is the engine's, without a worker or with a worker of its own.
THREAD = """import { attempt } from "/page/attempt.js";
IMPORT
const work = (options) => attempt("/bundle", "/bundle", { ...options, MORE });
"""
ANSWER = {
    "Worker": "onmessage = async ({ data }) => postMessage(await work(data));",
    "SharedWorker": "onconnect = ({ ports: [port] }) => (port.onmessage = async ({ data }) => "
    "port.postMessage(await work(data)));",
    "serviceWorker": "onmessage = async ({ data, source }) => source.postMessage(await work(data));",
}  # fmt: skip
ASK = {
    "Worker": """new Promise((resolve) => {
      const worker = new Worker("/thread/thread.js", { type: "module" });
      worker.onmessage = ({ data }) => resolve(data);
      worker.postMessage(OPTIONS);
    })""",
    "SharedWorker": """new Promise((resolve) => {
      const { port } = new SharedWorker("/thread/thread.js", { type: "module" });
      port.onmessage = ({ data }) => resolve(data);
      port.postMessage(OPTIONS);
    })""",
    "serviceWorker": """navigator.serviceWorker.register("/thread/thread.js", { type: "module" }).then(async (made) => {
      const answer = new Promise((resolve) => (navigator.serviceWorker.onmessage = ({ data }) => resolve(data)));
      const worker = made.active ?? made.waiting ?? made.installing;
      while (worker.state !== "activated") await new Promise((resolve) => setTimeout(resolve, 50));
      worker.postMessage(OPTIONS);
      return answer;
    })""",
}


def in_thread(chromium, bundle: Path, work: Path, kind: str, options: dict, runtime: str = "") -> dict:
    lines = [f"import * as runtime from {json.dumps(runtime)};", "runtime"] if runtime else ["", ""]
    # A service worker imports nothing later: the module has to be there when its script starts.
    imported = (HERE / "attempt.js").read_text().replace("await import(`${base}/web/msdc.js`)", "module")
    (work / "attempt.js").write_text(f'import * as module from "/bundle/web/msdc.js";\n{imported}')
    script = THREAD.replace("IMPORT", lines[0]).replace("MORE", lines[1]) + ANSWER[kind]
    (work / "thread.js").write_text(script)
    with site(page=work, bundle=bundle, thread=work) as opened:
        return open_page(chromium, opened).run(ASK[kind].replace("OPTIONS", json.dumps(options)))


@pytest.mark.parametrize(
    ("kind", "options", "runtime", "expected"),
    [
        ("Worker", {}, "", WORKS_HERE),
        ("Worker", {"worker": True}, "", WORKS),
        ("Worker", {}, RUNTIME, WORKS_HERE),
        ("SharedWorker", {}, "", WORKS_HERE),
        ("serviceWorker", {}, RUNTIME, WORKS_HERE),
    ],
)
def test_threads_of_an_app(chromium, web_bundle, tmp_path, kind, options, runtime, expected):
    assert in_thread(chromium, web_bundle, tmp_path, kind, options, runtime) == expected


def test_a_service_worker_without_the_runtime(chromium, web_bundle, tmp_path):
    words = ["a service worker imports nothing", "web/runtime/", "pass {runtime}"]
    refused(in_thread(chromium, web_bundle, tmp_path, "serviceWorker", {}), *words)
    refused(in_thread(chromium, web_bundle, tmp_path, "serviceWorker", {"runtime": RUNTIME}), *words)
    refused(
        in_thread(chromium, web_bundle, tmp_path, "serviceWorker", {"worker": True}),
        "service worker",
        "{worker: false}",
    )


def test_a_runtime_that_is_a_module(sites, chromium):
    """In this thread; it is neither sent to a worker nor anything else."""
    page_site, _ = sites
    page = open_page(chromium, page_site)
    script = f"Promise.all([import('/page/attempt.js'), import('{RUNTIME}')])"
    script += ".then(([{ attempt }, runtime]) => attempt('/bundle', '/bundle', OPTIONS))"
    assert page.run(script.replace("OPTIONS", "{ runtime }")) == WORKS_HERE
    assert page.run(script.replace("OPTIONS", "{ runtime: { default: runtime } }")) == WORKS_HERE
    error = page.run(script.replace("OPTIONS", "{ runtime, worker: true }"))
    assert error["name"] == "TypeError"
    assert "pass its address" in error["message"]
    refused(page.run(script.replace("OPTIONS", "{ runtime: {} }")), "neither an address nor the module")


def test_a_page_from_the_disk(sites, chromium, web_bundle, tmp_path):
    page_site, _ = sites
    (tmp_path / "page.html").write_text(PAGE)
    page = chromium.open((tmp_path / "page.html").as_uri())
    module = page_site.url("page/attempt.js")
    assert call(page, "attempt", page_site.url("bundle"), page_site.url("bundle"), module=module) == WORKS
    error = call(page, "attempt", page_site.url("bundle"), web_bundle.as_uri(), module=module)
    refused(error, "a page reads no files: serve the folder over http")


# What Vitest's and Jest's imitations of a page put onto Node's global object, and what they take from it.
VITEST = {"with": ["document", "window", "location"], "without": []}
JEST = {**VITEST, "without": ["TextEncoder", "TextDecoder", "fetch", "Response", "structuredClone", "MessageChannel"]}


@pytest.mark.parametrize(
    "globals_", [VITEST, JEST, {"with": ["location"], "without": []}], ids=["Vitest", "Jest", "edge"]
)
def test_imitations_of_a_page_in_node(web_bundle, tmp_path, globals_):
    """A document without workers: the encoder runs in this thread, also from a signal's load."""
    (tmp_path / "msdc.mjs").write_text((web_bundle / "web/msdc.js").read_text())
    with site(bundle=web_bundle) as opened:
        addresses = [web_bundle.as_uri(), *([] if "fetch" in globals_["without"] else [opened.url("bundle")])]
        request = {"module": str(tmp_path / "msdc.mjs"), "addresses": addresses, **globals_}
        report = ask_node(HERE / "imitation.mjs", tmp_path, request)
    assert report["loaded"] == ["passed"] * len(addresses)
    assert report["worker"] == "EncoderError: no workers here (a service worker, Node): pass {worker: false}"
    assert ("no answer" in report["absent"]) and (
        "file: address" in report["absent"] or "document" not in globals_["with"]
    )


def test_a_server_imports_the_module(web_bundle, tmp_path):
    """Frameworks that render pages on a server import everything there, where nothing of a page exists."""
    (tmp_path / "msdc.mjs").write_text((web_bundle / "web/msdc.js").read_text())
    script = "for (const name of ['fetch', 'Worker', 'caches', 'crypto', 'URL', 'Response']) delete globalThis[name];"
    (tmp_path / "page.mjs").write_text(
        f"{script} const m = await import('./msdc.mjs'); console.log(Object.keys(m).join());"
    )
    assert (
        run(node(), tmp_path / "page.mjs").strip()
        == "Encoder,EncoderError,IndexCore,WorkerLink,fileNames,indexFolder,similarity,topK"
    )
