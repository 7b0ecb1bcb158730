"""The shipped model in browsers beside native ONNX Runtime: bytes to download, an index of notes, a key press, latency.

    python benchmarks/browser.py --data DATA --write docs/results/browser.md

In rounds, native first, then each browser, so that other load on the machine meets both; one thread each, the same
program. The search page of the bundle is driven through its own controls in a fresh profile per round: 1,000 FLORES
lines in eight languages are indexed twice (the first time the browser still compiles), then queries are typed and the
last key of each is timed until its results are in the page. Native does the same in Python: encode, cosine, best rows.
Indexing is compared by processor time, which other load changes little; a key press and inference by their fastest
sample, since other load can only slow them down. Accuracy: STS2017 en-en on the browser's own vectors and on native
ones.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from results_page import ROOT, add_write_option, model_version, table, write_page

sys.path.insert(0, str(ROOT / "tests" / "helpers"))
os.environ.setdefault("OMP_NUM_THREADS", "1")
MODEL, TASK = "msdc-mini", "sts17/en-en"
LANGUAGES = ("eng_Latn", "deu_Latn", "spa_Latn", "fra_Latn", "ita_Latn", "nld_Latn", "tur_Latn", "arb_Arab")
LINES, QUERIES, PASSES, BEST = 1000, 20, 2, 8
LENGTHS, RUNS = (8, 32, 128), 30


def flores(data: Path, part: str, count: int) -> list[str]:
    """`count` lines of FLORES, the languages in turn."""
    rows = []
    for language in LANGUAGES:
        with gzip.open(data / "flores200" / part / f"{language}.{part}.gz", "rt", encoding="utf-8") as file:
            rows.append([line.strip() for line in file][: count // len(LANGUAGES)])
    return [line for group in zip(*rows, strict=True) for line in group]


def packed(path: Path) -> int:
    """Bytes as a web server compresses them."""
    return len(zlib.compress(path.read_bytes(), 9))


def size_rows(bundle: Path) -> list[tuple[str, str, str]]:
    """What a page downloads, in bytes, plain and compressed."""
    from msdc.export.manifest import read_manifest
    from msdc.export.mobile.web.npm import SCRIPT, WASM
    from msdc.export.mobile.web.write import module_source

    manifest, web = read_manifest(bundle), bundle / "web"
    tokenizer = manifest.tokenizer.native_file
    assert tokenizer is not None
    parts = [
        ("module `msdc.js`, SentencePiece", [web / "msdc.js"]),
        ("search page with the module", [web / "demo.html", web / "demo.js", web / "msdc.js"]),
        ("onnxruntime-web", [web / "runtime" / SCRIPT, web / "runtime" / WASM]),
        ("program", [bundle / name for name in manifest.program_files("onnx")]),
        ("tokenizer", [bundle / tokenizer]),
    ]
    rows = [
        (what, f"{sum(p.stat().st_size for p in paths):,}", f"{sum(map(packed, paths)):,}") for what, paths in parts
    ]
    other = module_source("tokenizer-json").encode("utf-8")
    return [
        rows[0],
        ("module `msdc.js`, tokenizer.json", f"{len(other):,}", f"{len(zlib.compress(other, 9)):,}"),
        *rows[1:],
    ]


def native_round(bundle: Path, lines: Sequence[str], queries: Sequence[str]) -> dict[str, Any]:
    """The search page's work in Python with native ONNX Runtime."""
    import numpy as np

    from msdc.export.bundle import load_bundle

    encoder = load_bundle(bundle, runtime="onnx")
    index_ms, cpu_ms, key_ms = [], [], []
    for _ in range(PASSES):
        start, processor = time.perf_counter(), time.process_time()
        vectors_ND = encoder.encode(list(lines))
        index_ms.append(1000 * (time.perf_counter() - start))
        cpu_ms.append(1000 * (time.process_time() - processor))
    for query in queries * PASSES:
        start = time.perf_counter()
        cosines_N = vectors_ND @ encoder.encode([query])[0]
        np.argsort(-cosines_N)[:BEST]
        key_ms.append(1000 * (time.perf_counter() - start))
    return {"index_ms": index_ms, "cpu_ms": cpu_ms, "key_ms": key_ms}


def processor_ms(pid: int, renderer: str) -> float:
    """Processor time so far of the processes that show pages, below process `pid`."""
    import psutil

    total = 0.0
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(renderer in word for word in child.cmdline()):
                total += 1000 * sum(child.cpu_times()[:2])
    return total


def browser_round(name: str, bundle: Path, lines: Sequence[str], queries: Sequence[str], work: Path) -> dict[str, Any]:
    """The search page in one browser with a fresh profile."""
    from web_pages import ANSWER_S, site

    from msdc.bench.devices.web.browser import engine_of, opened

    request, page = work / "request", work / "page"
    request.mkdir(exist_ok=True)
    page.mkdir(exist_ok=True)
    (request / "request.json").write_text(json.dumps({"lines": lines, "queries": queries, "passes": PASSES}))
    (page / "run.js").write_bytes((ROOT / "benchmarks" / "browser_page.js").read_bytes())
    (page / "page.html").write_bytes((ROOT / "tests/export/mobile/web/page.html").read_bytes())
    engine, cpu_ms, before = engine_of(name), [], 0.0
    with (
        site(page=page, bundle=bundle, request=request) as served,
        opened(engine, served.url("page/page.html#run")) as browser,
    ):
        while "mark" in (answer := served.answers.get(timeout=ANSWER_S)):
            now = processor_ms(browser.pid, engine.renderer)
            if answer["mark"] == "indexed":
                cpu_ms.append(now - before)
            before = now
    if "error" in answer:
        raise SystemExit(f"error: {name}: {answer['error']}")
    return {**answer, "cpu_ms": cpu_ms}


def device_round(name: str | None, bundle: Path, data: Path, tasks: tuple[str, ...]) -> Any:
    """One device run: the named browser, or Python's native ONNX Runtime."""
    from msdc.bench.devices.host import PythonDevice
    from msdc.bench.devices.web.browser import BrowserDevice
    from msdc.bench.measure import BenchSettings

    settings = BenchSettings(runtimes=("onnx",), runs=RUNS, lengths=LENGTHS, tasks=tasks, data=data)
    (run,) = (PythonDevice() if name is None else BrowserDevice(name)).run(bundle, settings)
    return run


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Median and range."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def figures(answer: dict[str, Any], run: Any) -> dict[str, float]:
    """The figures of one round."""
    found = {
        "1,000 lines indexed, first time, processor time": answer["cpu_ms"][0],
        "1,000 lines indexed, again, processor time": min(answer["cpu_ms"][1:]),
        "1,000 lines indexed, again": min(answer["index_ms"][1:]),
        "key press to results, fastest": min(answer["key_ms"]),
        "key press to results, median": statistics.median(answer["key_ms"]),
    }
    for timing in run.latency:
        found[f"inference, {timing.length} tokens, fastest"] = timing.minimum
    return found | {"load": run.load}


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="data folder with flores200 and sts17")
    parser.add_argument("--browsers", default="chromium", help="names of engines, comma-separated")
    parser.add_argument("--rounds", type=int, default=3)
    add_write_option(parser, "browser")
    given = parser.parse_args()
    from msdc.export import export

    names = given.browsers.split(",")
    lines = flores(given.data, "dev", LINES)
    queries = [line[:40].rsplit(" ", 1)[0] for line in flores(given.data, "devtest", 8 * -(-QUERIES // 8))[:QUERIES]]
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in ("native", *names)}
    first: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="msdc-browser-page-") as folder:
        work = Path(folder)
        bundle, _ = export(MODEL, target="web", out=work / "bundle", with_runtime=True)
        sizes = size_rows(bundle)
        for number in range(given.rounds):
            tasks = (TASK,) if number == 0 else ()
            for name in rounds:
                native = name == "native"
                answer = (
                    native_round(bundle, lines, queries)
                    if native
                    else browser_round(name, bundle, lines, queries, work)
                )
                run = device_round(None if native else name, bundle, given.data, tasks)
                first.setdefault(name, run)
                rounds[name].append(figures(answer, run))
                print(f"round {number + 1}, {name}: {rounds[name][-1]}", file=sys.stderr)
    print(body := page_body(sizes, rounds, first))
    if given.write:
        measured = f"{model_version(MODEL)}, exported with `--target web`, int8"
        write_page(given.write, "In browsers", measured, body, libraries=["onnxruntime"])


def page_body(
    sizes: list[tuple[str, str, str]], rounds: dict[str, list[dict[str, float]]], first: dict[str, Any]
) -> str:
    """The page's tables."""
    names = [name for name in rounds if name != "native"]
    whats = list(rounds["native"][0])
    titles = {name: f"{first[name].browser.engine} {first[name].browser.version or ''}".strip() for name in names}
    ratio_rows = [
        [
            what,
            *(
                spread([b[what] / n[what] for b, n in zip(rounds[name], rounds["native"], strict=True)])
                for name in names
            ),
        ]
        for what in whats
    ]
    time_rows = [[what, *(spread([one[what] for one in rounds[name]]) for name in rounds)] for what in whats]
    accuracy_rows = []
    native = first["native"].accuracy[0].spearman
    for name in names:
        run = first[name]
        golden = run.parity
        accuracy_rows.append([
            titles[name], f"{native:.2f}", f"{run.accuracy[0].spearman:.2f}",
            f"{run.accuracy[0].spearman - native:+.2f}",
            "equal" if golden.ids_equal else "other", f"{golden.mean_cosine:.6f}", run.browser.golden_sha256[:12],
            f"{run.browser.heap_warm_mib:.0f}",
            "unknown" if run.browser.renderer_pss_mib is None else f"{run.browser.renderer_pss_mib:.0f}",
        ])  # fmt: skip
    count = len(rounds["native"])
    parts = [
        "## Bytes to download",
        table(["part", "bytes", "bytes compressed"], sizes),
        "## Browser beside native",
        f"Time in the browser divided by that of native ONNX Runtime (`onnxruntime` in Python) in the same round; one "
        f"thread, the same program; median (range) of {count} rounds. Inference and load are those of `msdc bench`.",
        table(["", *(titles[name] for name in names)], ratio_rows),
        "Milliseconds of this machine, shared with other work:",
        table(["ms", "native", *(titles[name] for name in names)], time_rows),
        "## Accuracy and parity",
        f"Spearman x 100 on {TASK} of native vectors and of the browser's own; golden texts against the export's "
        "vectors; the hash is that of the golden vectors' bytes, to compare browsers. Memory in MiB: the runtime's "
        "heap, and the PSS of the page's process.",
        table(
            ["browser", "native", "here", "difference", "golden ids", "mean cosine", "golden vectors", "heap", "PSS"],
            accuracy_rows,
        ),
    ]
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()
