"""Tokenizers of the native core against their libraries: speed, memory, loading, equality of ids.

    PYTHONPATH=benchmarks python benchmarks/research/tokenization.py --data DATA --work WORK

Speed: both tokenize the same FLORES sentences, one text per call for the core, one list for the library, one thread
each, in turn in new processes; processor time, so that other load on the machine matters less. Memory: anonymous memory
that opening and then tokenizing adds to a process. Equality: the best known kinds of tokenizers, trained small, on
golden texts, fuzz texts, FLORES in all its languages and every code point; the slow tests compare all kinds. (A script
called tokenizers.py would hide the library of that name.)
"""

import argparse
import ctypes
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

from results_page import ROOT, KeptRows, options_for, run_json, spread, table, write_page

from msdc.encoders.folder import locate_model
from msdc.text.text_files import iterate_lines

sys.path.insert(0, str(ROOT / "tests" / "helpers"))
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
SIZE, ROUNDS, PASSES, SENTENCES = 32_000, 5, 2, 20
ENGINES = ("library", "core")
# Equality: kind, and whether it is a SentencePiece model.
EQUAL = [(name, False) for name in ("MiniLM", "bert", "mpnet", "modernbert", "xlm-r, e5", "gemma", "qwen")]
EQUAL += [("unigram", True), ("bpe", True)]
SETS = ("golden", "fuzz", "FLORES", "code points")
KINDS = {
    "WordPiece": "all-MiniLM-L6-v2's, 30,522",
    "byte-level BPE": "Qwen's shape, trained here, 32,000",
    "byte-fallback BPE": "Gemma's shape, trained here, 32,000",
    "unigram": "XLM-R's shape, trained small",
    "SentencePiece model": "msdc-mini's tokenizer.model, mapped as it is",
}
MINILM_JSON = Path(locate_model("all-MiniLM-L6-v2")) / "tokenizer.json"
MINI_MODEL = Path(locate_model("msdc-mini")) / "tokenizer.model"


def flores(data: Path, lines: int) -> list[str]:
    """The first `lines` sentences of each language of FLORES dev."""
    files = sorted((data / "flores200" / "dev").glob("*.gz"))
    return [line.strip() for file in files for _, line in islice(iterate_lines(file), lines)]


def build_core(work: Path) -> Path:
    """The core without a runtime, optimized."""
    from native_core import CORE, core_sources
    from programs import run

    library = work / "libmsdc_core.so"
    run("g++", "-std=c++17", "-O2", "-shared", "-fPIC", f"-I{CORE / 'include'}", *core_sources(), "-o", library)
    return library


def training_texts(data: Path) -> list[str]:
    """Sentences of Tatoeba, both sides: none of FLORES."""
    files = sorted((data / "tatoeba").glob("*.tsv.gz"))
    rows = (line for file in files for _, line in islice(iterate_lines(file), 6000))
    return [text for row in rows for text in row.split("\t")[:2]]


def prepare(kind: str, data: Path, work: Path) -> Path:
    """A folder with `tokenizer.json` and the bundle that the core opens; created once."""
    from native_core import write_compiled_bundle, write_piece_bundle
    from small_tokenizers import gemma, qwen, unigram

    from msdc.export.tokenizer.compile import compile_tokenizer
    from msdc.text.tokenizer import write_fast_copy

    folder = work / kind.replace(" ", "-")
    source = folder / "tokenizer.json"
    if (folder / "bundle" / "bundle.json").is_file():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "WordPiece":
        source.write_bytes(MINILM_JSON.read_bytes())
    elif kind == "byte-level BPE":
        qwen(texts=training_texts(data), size=SIZE).save(str(source))
    elif kind == "byte-fallback BPE":
        gemma(texts=training_texts(data), size=SIZE).save(str(source))
    elif kind == "unigram":
        unigram(folder, split_words=True).save(str(source))
    else:
        write_fast_copy(MINI_MODEL, source)
    if kind == "SentencePiece model":
        write_piece_bundle(folder / "bundle", MINI_MODEL.read_bytes())
    else:
        write_compiled_bundle(folder / "bundle", compile_tokenizer(source))
    return folder


def anonymous_kib() -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("RssAnon:"))


def child(folder: Path, engine: str, library: str, texts_file: Path) -> dict[str, Any]:
    """Load and tokenize all texts in this process; milliseconds, memory and tokens."""
    import sentencepiece
    import tokenizers

    model = folder / "bundle" / "tokenizer.model"
    texts = json.loads(texts_file.read_text(encoding="utf-8"))
    if engine == "core":
        core = ctypes.CDLL(library)
        handle, count, ids = ctypes.c_void_p(), ctypes.c_size_t(), (ctypes.c_int32 * (1 << 16))()
        raws = [text.encode() for text in texts]
        path = str(folder / "bundle").encode()
        pointer, words, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
        core.msdc_tokenize.argtypes = [pointer, words, size, pointer, size, pointer, words, size]
        ids_address, count_address = ctypes.addressof(ids), ctypes.addressof(count)
    encode: Callable[[list[str]], list[Any]]
    before, start = anonymous_kib(), time.process_time()
    if engine == "core":
        assert core.msdc_tokenizer_open(path, 0, ctypes.byref(handle), None, 0) == 0
    elif model.is_file():
        encode = partial(sentencepiece.SentencePieceProcessor(model_file=str(model)).encode, num_threads=1)
    else:
        backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        backend.no_truncation()
        backend.no_padding()
        encode = backend.encode_batch_fast
    load_s, loaded = time.process_time() - start, anonymous_kib()

    def run() -> int:
        if engine == "library":
            return sum(map(len, encode(texts)))
        total = 0
        for raw in raws:
            core.msdc_tokenize(handle, raw, len(raw), ids_address, 1 << 16, count_address, None, 0)
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
    folder, texts = prepare(kind, data, work), work / "texts.json"
    texts.write_text(json.dumps(flores(data, SENTENCES)), encoding="utf-8")
    rounds: dict[str, list[dict[str, Any]]] = {engine: [] for engine in ENGINES}
    for _, engine in product(range(ROUNDS), ENGINES):
        rounds[engine].append(run_json(__file__, "--child", folder, engine, library, texts))
    compiled = folder / "bundle" / "tokenizer.bin"
    core_file = compiled if compiled.is_file() else folder / "bundle" / "tokenizer.model"
    return {"rounds": rounds, "json_bytes": (folder / "tokenizer.json").stat().st_size,
            "core_bytes": core_file.stat().st_size}  # fmt: skip


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
    else:
        source = MINILM_JSON if kind == "MiniLM" else folder / "tokenizer.json"
        if kind != "MiniLM":
            SMALL[kind](folder).save(str(source))
        backend = Tokenizer.from_file(str(source))
        backend.no_truncation()
        backend.no_padding()
        core = CoreTokenizer(library, write_compiled_bundle(folder / "bundle", compile_tokenizer(source)))
    differences: dict[str, Any] = {}
    for name, texts in zip(
        SETS, (golden_texts(), fuzz_texts(5000, 5), flores(data, 2000), every_character()), strict=True
    ):
        if model:
            expected_ids = [[2, *row, 3] for row in processor.encode(texts, out_type=int)]
        else:
            expected_ids = [row.ids for row in backend.encode_batch_fast(texts)]
        differ = sum(core.encode(text) != ids for text, ids in zip(texts, expected_ids, strict=True))
        differences[name] = f"{differ} of {len(texts):,}"
    return differences


def report(measured: list[dict[str, Any]]) -> str:
    rows, loads, memory = [], [], []
    for record in (row for row in measured if "rounds" in row):
        library, core = (record["rounds"][engine] for engine in ENGINES)
        pairs = list(zip(library, core, strict=True))
        faster = [(b["tokens"] / b["seconds"]) / (a["tokens"] / a["seconds"]) for a, b in pairs]
        rows.append((record["kind"], KINDS[record["kind"]], f"{core[0]['tokens']:,}", spread(faster, 1)))
        sooner = [a["load_ms"] / max(b["load_ms"], 1e-3) for a, b in pairs]
        loads.append((record["kind"], f"{record['json_bytes']:,}", f"{record['core_bytes']:,}", spread(sooner, 0),
                      f"{statistics.median(a['load_ms'] for a in core):.2f}",
                      f"{statistics.median(a['load_ms'] for a in library):.0f}"))  # fmt: skip
        memory.append((record["kind"], *(f"{statistics.median(run[key] for run in engine) / 1024:.1f}"
                                    for engine in (library, core) for key in ("loaded_kib", "warm_kib"))))  # fmt: skip
    equal = [("`.model` " * r["model"] + r["kind"], *(r[name] for name in SETS)) for r in measured if "model" in r]
    return "\n\n".join([
        "## Speed",
        "Tokens per second of the core divided by those of the library, processor time, one thread; median [range] of "
        f"{ROUNDS} rounds over {SENTENCES} FLORES sentences in each of 36 languages.",
        table(("kind", "tokenizer, ids", "tokens", "core / library"), rows),
        "## Loading",
        "The library parses `tokenizer.json` or the `.model`; the core maps `tokenizer.bin`, compiled at export, or "
        "the `.model`. Milliseconds belong to this machine.",
        table(("kind", "JSON bytes", "core's file, bytes", "library / core", "core ms", "library ms"), loads),
        "## Anonymous memory",
        "MiB that opening, and then tokenizing, adds to a process.",
        table(("kind", "library, opened", "library, after", "core, opened", "core, after"), memory),
        "## Equality",
        "Texts whose ids differ from those of the library that defines the tokenizer (`tokenizers`; SentencePiece for "
        "`.model`). Small tokenizers of each kind trained on the embedded corpus, and all-MiniLM-L6-v2's own. Code "
        "points: all 1,112,064, each between two letters, 500 per text.",
        table(("tokenizer", "golden texts", "fuzz", "FLORES, 36 languages", "code points"), equal),
    ])  # fmt: skip


def main() -> None:
    parser = options_for(__doc__, "tokenizers")
    parser.add_argument("--data", type=Path, help="folder of the public data sets")
    parser.add_argument("--work", type=Path, help="folder for tokenizers, library and rows; kept")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        folder, engine, library, texts = options.child
        print(json.dumps(child(Path(folder), engine, library, Path(texts))))
        return
    if options.data is None or options.work is None:
        parser.error("--data and --work are needed")
    options.work.mkdir(parents=True, exist_ok=True)
    rows, arguments = KeptRows(options.work / "results.jsonl"), (options.data, options.work, build_core(options.work))
    for kind, model in EQUAL:
        if not rows.has(kind=kind, model=model):
            rows.add({"kind": kind, "model": model, **equality(kind, model, *arguments)})
    for kind in KINDS:
        if not any(row["kind"] == kind and "rounds" in row for row in rows):
            rows.add({"kind": kind, **speed(kind, *arguments)})
    write_page(options.write, "Tokenizers of the native core", "tokenizers of the kinds named below", report(rows),
               "tokenizers sentencepiece")  # fmt: skip


if __name__ == "__main__":
    main()
