"""The shipped model in browsers against native ONNX Runtime: bytes to download, an index of notes, a key press,
latency.

    python benchmarks/browser.py --data DATA --write docs/results/browser.md

In rounds, native first, then each browser, so that other load on the machine affects both; one thread each, the same
program. The search page of the bundle is used through its own controls in a new profile per round: 1,000 FLORES lines
in eight languages are indexed twice (the first time the browser still compiles), then queries are typed, and the last
key of each is timed until its results are on the page. Native does the same in Python: encode, cosine, best rows.
Indexing is compared by processor time, which other load changes little; a key press and inference by their fastest
sample, since other load can only slow them down. Accuracy: STS2017 en-en on the vectors of both.
"""

import contextlib
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

import numpy as np
from results_page import ROOT, model_version, options_for, spread, table, write_page

from msdc.bench import bench
from msdc.bench.accuracy.sets import flores_code
from msdc.export import export
from msdc.export.bundle import load_bundle
from msdc.export.manifest import read_manifest
from msdc.text.text_files import iterate_lines

sys.path.insert(0, str(ROOT / "tests" / "helpers"))
os.environ.setdefault("OMP_NUM_THREADS", "1")
MODEL, TASK = "msdc-mini", "sts17/en-en"
LANGUAGES = ("en", "de", "es", "fr", "it", "nl", "tr", "ar")
LINES, QUERIES, PASSES, BEST = 1000, 20, 2, 8
LENGTHS, RUNS = (8, 32, 128), 30


def lines_of(data: Path, split: str, count: int) -> list[str]:
    """`count` lines of FLORES, the languages in turn."""
    files = [data / f"flores200/{split}/{flores_code(code)}.{split}.gz" for code in LANGUAGES]
    groups = zip(*(iterate_lines(file) for file in files), strict=True)
    return [line.strip() for group in groups for _, line in group][:count]


def size_rows(bundle: Path) -> list[tuple[str, str, str]]:
    """What a page downloads, in bytes, plain and compressed."""
    from msdc.export.mobile.web.npm import SCRIPT, WASM

    manifest, web = read_manifest(bundle), bundle / "web"
    tokenizer = manifest.tokenizer.native_file
    assert tokenizer is not None
    parts = {
        "module `msdc.js` with the core's tokenizers": [web / "msdc.js"],
        "search page with the module": [web / "demo.html", web / "demo.js", web / "msdc.js"],
        "onnxruntime-web": [web / "runtime" / SCRIPT, web / "runtime" / WASM],
        "program": [bundle / name for name in manifest.program_files("onnx")],
        "tokenizer": [bundle / tokenizer],
    }
    return [
        (
            what,
            f"{sum(p.stat().st_size for p in paths):,}",
            f"{sum(len(zlib.compress(p.read_bytes(), 9)) for p in paths):,}",
        )
        for what, paths in parts.items()
    ]


def native_round(bundle: Path, lines: Sequence[str], queries: Sequence[str]) -> dict[str, Any]:
    """The search page's work in Python with native ONNX Runtime."""
    encoder = load_bundle(bundle, runtime="onnx")
    index_ms, cpu_ms, key_ms = [], [], []
    for _ in range(PASSES):
        start, processor = time.perf_counter(), time.process_time()
        vectors_ND = encoder.encode(list(lines))
        index_ms.append(1000 * (time.perf_counter() - start))
        cpu_ms.append(1000 * (time.process_time() - processor))
    for query in list(queries) * PASSES:
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


def figures(answer: dict[str, Any], run: Any) -> dict[str, float]:
    by_name = {
        "1,000 lines indexed, first time, processor time": answer["cpu_ms"][0],
        "1,000 lines indexed, again, processor time": min(answer["cpu_ms"][1:]),
        "1,000 lines indexed, again": min(answer["index_ms"][1:]),
        "key press to results, fastest": min(answer["key_ms"]),
        "key press to results, median": statistics.median(answer["key_ms"]),
    }
    for timing in run.latency:
        by_name[f"inference, {timing.length} tokens, fastest"] = timing.minimum
    return by_name | {"load": run.load}


def page_body(
    sizes: list[tuple[str, str, str]], rounds: dict[str, list[dict[str, float]]], first: dict[str, Any]
) -> str:
    native = rounds["native"]
    titles = {
        name: f"{first[name].browser.engine} {first[name].browser.version or ''}".strip()
        for name in rounds if name != "native"
    }  # fmt: skip
    ratio_rows, time_rows, accuracy_rows = [], [], []
    for what in native[0]:
        time_rows.append(
            [what, *(spread([figures_of_round[what] for figures_of_round in rounds[name]], 1) for name in rounds)]
        )
        ratios = {name: [b[what] / n[what] for b, n in zip(rounds[name], native, strict=True)] for name in titles}
        ratio_rows.append([what, *(spread(values, 1) for values in ratios.values())])
    here = first["native"].accuracy[0].spearman
    for name, title in titles.items():
        golden, browser, score = first[name].parity, first[name].browser, first[name].accuracy[0].spearman
        accuracy_rows.append([
            title, f"{here:.2f}", f"{score:.2f}", f"{score - here:+.2f}", "equal" if golden.ids_equal else "other",
            f"{golden.mean_cosine:.6f}", browser.golden_sha256[:12], f"{browser.heap_warm_mib:.0f}",
            "unknown" if browser.renderer_pss_mib is None else f"{browser.renderer_pss_mib:.0f}",
        ])  # fmt: skip
    return "\n\n".join([
        "## Bytes to download",
        table(["part", "bytes", "bytes compressed"], sizes),
        "## Browser against native",
        "Time in the browser divided by that of native ONNX Runtime (`onnxruntime` in Python) in the same round; one "
        f"thread, the same program; median [range] of {len(native)} rounds. Inference and load are those of "
        "`msdc bench`.",
        table(["", *titles.values()], ratio_rows),
        "Milliseconds on this machine, shared with other work:",
        table(["ms", "native", *titles.values()], time_rows),
        "## Accuracy and parity",
        f"Spearman x 100 on {TASK} of native vectors and of the browser's own; golden texts against the export's "
        "vectors; the hash is that of the golden vectors' bytes, to compare browsers. Memory in MiB: the runtime's "
        "heap, and the PSS of the page's process.",
        table(
            ["browser", "native", "here", "difference", "golden ids", "mean cosine", "golden vectors", "heap", "PSS"],
            accuracy_rows,
        ),
    ])  # fmt: skip


def main() -> None:
    parser = options_for(__doc__, "browser")
    parser.add_argument("--data", type=Path, required=True, help="data folder with flores200 and sts17")
    parser.add_argument("--browsers", default="chromium", help="names of engines, comma-separated")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    lines = lines_of(options.data, "dev", LINES)
    queries = [line[:40].rsplit(" ", 1)[0] for line in lines_of(options.data, "devtest", QUERIES)]
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in ("native", *options.browsers.split(","))}
    first: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="msdc-browser-page-") as folder:
        work = Path(folder)
        bundle, _ = export(MODEL, target="web", output=work / "bundle", with_runtime=True)
        sizes = size_rows(bundle)
        for number in range(options.rounds):
            for name in rounds:
                if name == "native":
                    device, answer = "python", native_round(bundle, lines, queries)
                else:
                    device, answer = f"browser:{name}", browser_round(name, bundle, lines, queries, work)
                (run,) = bench(
                    bundle,
                    device=device,
                    runtime="onnx",
                    tasks="none" if number else TASK,
                    data=options.data,
                    runs=RUNS,
                    lengths=LENGTHS,
                ).results.runs
                first.setdefault(name, run)
                rounds[name].append(figures(answer, run))
                print(f"round {number + 1}, {name}: {rounds[name][-1]}", file=sys.stderr)
    write_page(options.write, "In browsers", f"{model_version(MODEL)}, exported with `--target web`, int8",
               page_body(sizes, rounds, first), "onnxruntime")  # fmt: skip


if __name__ == "__main__":
    main()
