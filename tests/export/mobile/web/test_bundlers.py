"""The web module in apps that bundlers build, run in Chromium: with the lines and settings of docs/guides/web.md."""

import contextlib
import functools
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tiny_models as tiny
from places import ROOT
from programs import run
from web_pages import site

from msdc.cache import cached_folder
from msdc.errors import MsdcError
from msdc.export.bundle import load_bundle
from msdc.export.exporters import write_bundle
from msdc.export.mobile.web import npm
from msdc.export.options import ExportSettings

GUIDE = (ROOT / "docs/guides/web.md").read_text(encoding="utf-8").replace("\\\n", " ")
# Tool -> its packages, the first of which has the script; Bun's program is a package for each platform.
PACKAGES = {
    "vite": ["vite@8.3.8"],
    "webpack": ["webpack-cli@7.3.1", "webpack@5.113.0"],
    "esbuild": ["esbuild@0.28.2"],
    "bun": ["bun@1.4.5"],
    "rollup": ["rollup@4.68.8", "@rollup/plugin-node-resolve@16.0.3"],
}
SCRIPTS = {"vite": "vite/bin/vite.js", "webpack": "webpack-cli/bin/cli.js", "esbuild": "esbuild/bin/esbuild",
           "rollup": "rollup/dist/bin/rollup"}  # fmt: skip
COMPILER = {"typescript": ["typescript@5.9.3"]}
# Tools that leave the runtime's other file where it is.
UNCOPIED = ("esbuild", "bun", "rollup")
TEXTS = ["a cat sat", "the dog ran to the house", ""]
APP = """
import { Encoder } from "NAME";
import { openIndex } from "NAME/search.js";

async function run() {
  const encoder = await Encoder.load("/bundle", { cache: false });
  const rows = (await encoder.encode(TEXTS)).map((row) => [...row]), index = await openIndex(null, encoder);
  await index.add(["a cat sat", "the dog ran"]);
  const [{ id }] = await index.search("dog", { mode: "words" });
  return { rows, id, passed: (await encoder.selfTest()).passed };
}
globalThis.answer = run().catch((error) => ({ failed: `${error.name}: ${error.message}` }));
"""
PAGE = '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><script type="module" src="/%s"></script>'


@functools.cache
def tools(name: str) -> Path:
    """The folder of a tool's packages, fetched once; skips the test where they cannot be."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("npm and node not found: apt-get install npm")
    packages = {**PACKAGES, **COMPILER}[name]

    def install(stage: Path) -> None:
        # Scripts of packages only look for programs of this platform, which are packages of their own.
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", *packages]
        if subprocess.run(command, cwd=stage, check=False).returncode:
            raise MsdcError(f"npm cannot fetch {packages[0]}")

    try:
        npm.runtime_folder()
        return cached_folder(name, {"packages": packages, "format": 2}, install) / "node_modules"
    except MsdcError as error:
        pytest.skip(str(error))


def program(name: str) -> list[str]:
    if name != "bun":
        return ["node", str(tools(name) / SCRIPTS[name])]
    executables = sorted(tools(name).glob("@oven/bun-*/bin/bun"))
    if not executables:
        pytest.skip("there is no Bun for this platform")
    return [str(executables[0])]


@pytest.fixture(scope="module")
def bundles(web_bundle) -> dict[bool, Path]:
    """With and without the runtime."""
    options = ExportSettings(target="web", precision="int8", thresholds=tiny.LOOSE)
    plain = tiny.once(
        "web-bundle-plain", lambda out: write_bundle(tiny.student(), tiny.tokenizer(), out, options=options)
    )
    return {True: web_bundle, False: plain}


def write_app(app: Path, bundle: Path, tool: str, *, linked: bool = False, with_package: bool = True) -> str:
    """An app with the module as a package, and onnxruntime-web; returns the module's name."""
    modules = app / "node_modules"
    modules.mkdir(parents=True)
    for package in tools(tool).iterdir():
        (modules / package.name).symlink_to(package)
    name = json.loads((bundle / "web/package.json").read_text())["name"]
    if linked:
        (modules / name).symlink_to(bundle / "web")
    else:
        shutil.copytree(bundle / "web", modules / name)
    if with_package:
        folder = modules / npm.PACKAGE / "dist"
        folder.mkdir(parents=True)
        for file in npm.FILES:
            shutil.copyfile(npm.runtime_folder() / file, folder / file)
        facts = {"name": npm.PACKAGE, "version": npm.VERSION, "exports": {"./wasm": f"./dist/{npm.SCRIPT}"}}
        (folder.parent / "package.json").write_text(json.dumps(facts))
    (app / "package.json").write_text('{"name": "app", "private": true, "type": "module"}')
    (app / "app.js").write_text(APP.replace("NAME", name).replace("TEXTS", json.dumps(TEXTS)))
    (app / "index.html").write_text(PAGE % "app.js")
    return name


def build(app: Path, tool: str, name: str, *extra_arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the guide's line."""
    (line,) = re.findall(rf"^npx {tool} (.*)$", GUIDE, re.MULTILINE)
    words = line.replace("PACKAGE", name).split()
    done = subprocess.run(
        [*program(tool), *words, *extra_arguments], cwd=app, capture_output=True, text=True, check=False
    )
    if tool != "vite":
        (app / "dist").mkdir(exist_ok=True)
        (app / "dist/index.html").write_text(PAGE % ("main.js" if tool == "webpack" else "app.js"))
    if tool in UNCOPIED:
        shutil.copyfile(app / "node_modules" / name / "search.wasm", app / "dist/search.wasm")
    return done


def answer_of(chromium, url: str) -> dict:
    page = chromium.open(url)
    page.wait("globalThis.answer", 120)
    answer = page.run("globalThis.answer")
    page.call("Page.close")
    return answer


def run_app(chromium, app: Path, bundle: Path) -> dict:
    with site(**{path.name: path for path in (app / "dist").iterdir()}, bundle=bundle) as opened:
        return answer_of(chromium, opened.url("index.html"))


def same(answer: dict, bundle: Path) -> None:
    assert answer.get("passed"), answer
    assert answer["id"] == "2"
    np.testing.assert_allclose(np.float32(answer["rows"]), load_bundle(bundle, "onnx").encode(TEXTS), atol=1e-4)


@pytest.mark.parametrize("tool", PACKAGES)
@pytest.mark.parametrize("linked", [False, True], ids=["copied", "linked"])
def test_an_app_whose_bundle_has_the_runtime(chromium, bundles, tmp_path, tool, linked):
    """It builds without the runtime's package, and brings nothing of it."""
    name = write_app(tmp_path, bundles[True], tool, linked=linked, with_package=False)
    done = build(tmp_path, tool, name)
    assert done.returncode == 0, done.stdout + done.stderr
    sizes = {path.stat().st_size for path in (tmp_path / "dist").rglob("*.wasm")}
    assert sizes == {(bundles[True] / "web/search.wasm").stat().st_size}
    same(run_app(chromium, tmp_path, bundles[True]), bundles[True])


@pytest.mark.parametrize("tool", PACKAGES)
def test_an_app_that_brings_the_runtime(chromium, bundles, tmp_path, tool):
    name = write_app(tmp_path, bundles[False], tool)
    done = build(tmp_path, tool, name)
    assert done.returncode == 0, done.stdout + done.stderr
    if tool in UNCOPIED:
        failed = run_app(chromium, tmp_path, bundles[False])["failed"]
        assert failed.startswith(f"EncoderError: onnxruntime-web does not start: is its {npm.WASM} next to the script")
        shutil.copyfile(npm.runtime_folder() / npm.WASM, tmp_path / "dist" / npm.WASM)
    same(run_app(chromium, tmp_path, bundles[False]), bundles[False])


@pytest.mark.parametrize("tool", PACKAGES)
def test_an_app_without_any_runtime_says_so(chromium, bundles, tmp_path, tool):
    """Where the tool builds it: the page says how to get it."""
    name = write_app(tmp_path, bundles[False], tool, with_package=False)
    done = build(tmp_path, tool, name)
    if done.returncode:
        assert tool == "vite"
        assert "onnxruntime-web/wasm" in done.stdout + done.stderr
        return
    line = "EncoderError: onnxruntime-web is missing: export with --with-runtime, bundle it, or pass {runtime: URL} ("
    assert run_app(chromium, tmp_path, bundles[False])["failed"].startswith(line)


def test_scripts_from_another_origin(chromium, bundles, tmp_path):
    """As apps are deployed whose scripts lie on a content network: the worker's script too."""
    name = write_app(tmp_path, bundles[True], "vite")
    with site(cdn=tmp_path / "dist") as cdn, site(page=tmp_path / "dist", bundle=bundles[True]) as opened:
        cdn.headers["cdn"] = {"Access-Control-Allow-Origin": "*"}
        done = build(tmp_path, "vite", name, "--base", cdn.url("cdn/").replace("127.0.0.1", "localhost"))
        assert done.returncode == 0, done.stdout + done.stderr
        same(answer_of(chromium, opened.url("page/index.html")), bundles[True])
        assert any("msdc" in path for path in cdn.asked)
        assert not any("assets" in path for path in opened.asked)


def test_the_guides_own_code(chromium, bundles, tmp_path):
    """Its installation, its JavaScript with an index that lasts, and its line for Vite."""
    (install,) = re.findall(r"^`npm (install --install-links) msdc-mini-web/web` adds", GUIDE, re.MULTILINE)
    run("npm", *install.split(), "--offline", bundles[True] / "web", cwd=tmp_path)
    for package in tools("vite").glob("[!.]*"):
        (tmp_path / "node_modules" / package.name).symlink_to(package)
    name = json.loads((bundles[True] / "web/package.json").read_text())["name"]
    code = "".join(re.findall(r"^```js\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)[:2])
    code = code.replace("/msdc-mini-web/web/msdc.js", name).replace("/msdc-mini-web/web/search.js", f"{name}/search.js")
    code += "globalThis.answer = { id: best.id, storage: index.storage, hits: hits.length };"
    (tmp_path / "app.js").write_text(code)
    (tmp_path / "index.html").write_text(PAGE % "app.js")
    done = build(tmp_path, "vite", name)
    assert done.returncode == 0, done.stdout + done.stderr
    files = {path.name: path for path in (tmp_path / "dist").iterdir()}
    with site(**files, **{"msdc-mini-web": bundles[True]}) as opened:
        answer = answer_of(chromium, opened.url("index.html"))
        assert answer == {"id": "n1", "storage": "file", "hits": 2}


@contextlib.contextmanager
def vite_server(app: Path) -> Iterator[str]:
    """The address of Vite's server for development."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with open(app / "output.txt", "w") as output:
        command = [*program("vite"), "--port", str(port), "--strictPort", "--host", "127.0.0.1"]
        server = subprocess.Popen(command, cwd=app, stdout=output, stderr=output)
        try:
            end = time.monotonic() + 120
            while str(port) not in (app / "output.txt").read_text():
                assert server.poll() is None and time.monotonic() < end, (app / "output.txt").read_text()
                time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.kill()
            server.wait()


@pytest.mark.parametrize("with_settings", [False, True])
@pytest.mark.parametrize("has_runtime", [True, False])
def test_vites_server(chromium, bundles, tmp_path, with_settings, has_runtime):
    """It joins a package's scripts into one of its own; the guide's settings, for older releases, leave them alone."""
    name = write_app(tmp_path, bundles[has_runtime], "vite", with_package=not has_runtime)
    shutil.copytree(bundles[has_runtime], tmp_path / "public/bundle")
    if with_settings:
        (settings,) = re.findall(r"^export default \{$.*?^\};$", GUIDE, re.MULTILINE | re.DOTALL)
        (tmp_path / "vite.config.js").write_text(settings.replace("PACKAGE", name))
    with vite_server(tmp_path) as url:
        same(answer_of(chromium, url), bundles[has_runtime])


def test_a_servers_build_of_a_page(bundles, tmp_path):
    """A framework builds pages for Node too, where it renders them, and may encode there."""
    name = write_app(tmp_path, bundles[True], "webpack")
    script = (tmp_path / "app.js").read_text().replace('"/bundle"', json.dumps(str(bundles[True])))
    (tmp_path / "app.js").write_text(f"{script}answer.then((found) => console.log(JSON.stringify(found)));")
    done = build(tmp_path, "webpack", name, "--target", "node", "--output-filename", "main.cjs")
    assert done.returncode == 0, done.stdout + done.stderr
    command = ["node", str(tmp_path / "dist/main.cjs")]
    same(json.loads(run(*command)), bundles[True])


TYPED_APP = """
import { Encoder, topK, type Hit } from "app-model";
import { openIndex, type SearchIndex } from "app-model/search.js";
export async function run(vectors: readonly Float32Array[]): Promise<[Hit[], string, SearchIndex]> {
  const onProgress = ({ loaded, total }: { loaded: number; total: number }) => void (loaded / total);
  const encoder = await Encoder.load("/bundle", { headers: { a: "b" }, onProgress });
  const index = await openIndex(null, encoder, { wasm: new Uint8Array(8) });
  await index.update([{ id: 1, text: "a cat sat", year: 2026 }]);
  const [hit] = await index.search("cat", { top: 3 });
  return [topK(await encoder.encode("cat"), vectors), hit!.passage, index];
}
"""
# What only projects with a browser's types can write, and what they must not.
TYPED_PAGE = """
import { Encoder, type LoadOptions } from "app-model";
const options: LoadOptions = {
  signal: new AbortController().signal, headers: new Headers(), worker: () => new Worker("encoder.js"),
  fetch: async (url, init) => (init.signal?.throwIfAborted(), fetch(url, { ...init, credentials: "include" })),
};
export const loaded = Encoder.load(new URL("/bundle", location.href), options);
// @ts-expect-error a response is meant
export const wrong: LoadOptions = { fetch: async () => 1 };
// @ts-expect-error a signal is meant
export const no_signal: LoadOptions = { signal: 1 };
"""


@pytest.mark.parametrize("modules", ["esnext bundler", "node16 node16", "nodenext nodenext"])
@pytest.mark.parametrize("library", ["es2022", "es2022,dom", "es2022,webworker"])
def test_types_compile_in_every_project(tmp_path, modules, library):
    """Also in one without a browser's types (Node, workers of a cloud)."""
    compiler = tools("typescript") / "typescript/bin/tsc"
    template = Path(npm.__file__).parent / "template"
    package = tmp_path / "node_modules/app-model"
    package.mkdir(parents=True)
    for name in ("msdc.d.ts", "search.d.ts", "package.json"):
        content = (template / name).read_text(encoding="utf-8").replace("{{optional}}", "true")
        (package / name).write_text(content, encoding="utf-8")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "app.ts").write_text(TYPED_APP)
    files = ["app.ts"]
    if library == "es2022,dom":
        (tmp_path / "page.ts").write_text(TYPED_PAGE)
        files.append("page.ts")
    module, resolution = modules.split()
    options = ["--strict", "--noEmit", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes",
               "--target", "es2022", "--lib", library, "--module", module,
               "--moduleResolution", resolution]  # fmt: skip
    done = subprocess.run(
        ["node", compiler, *options, *files], cwd=tmp_path, check=False, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stdout
