"""Named sets of parallel sentences: Tatoeba, FLORES, the shipped sentences, BUCC, XSR, mse and drift."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from msdc.bench.accuracy.readers.bucc import Mining, Split, read_bucc
from msdc.bench.accuracy.readers.parallel import Parallel, pair_of, read_aligned, read_parallel
from msdc.bench.accuracy.sets.languages import SHIPPED, TWO_OF_THREE, flores, three
from msdc.bench.accuracy.sets.named_set import DataFolder, NamedSet, Part
from msdc.bench.accuracy.tasks import drift, mining, mse, retrieval, tatoeba
from msdc.bench.accuracy.tasks.drift import DriftData
from msdc.bench.accuracy.tasks.retrieval import Pool
from msdc.text.quickstart import GOLDEN_TEXTS, PARALLEL
from msdc.text.text_files import read_lines

DRIFT_ROWS = 250


def flores_parallel(folder: Path, codes: list[str], name: str, split: str = "devtest") -> Parallel:
    """FLORES sentences of several languages, row by row.

    Raises:
        InputError: a language without a file, or unequal line counts.
    """
    paths = {}
    for code in codes:
        path = folder / "flores200" / split / f"{flores(code)}.{split}"
        paths[code] = path if path.is_file() else path.with_name(f"{path.name}.gz")
    return read_aligned(paths, name)


def _flores_file(data: DataFolder, code: str, split: str = "devtest") -> tuple[Path | None, str]:
    looked = f"flores200/{split}/{flores(code)}.{split}*"
    return data.first(looked), looked


def _tatoeba(data: DataFolder) -> Iterator[Part]:
    if data.languages:
        codes = [three(code) for code in data.others()]
    else:
        files = data.all("laser-tatoeba/tatoeba.*-eng.eng*", "tatoeba/v1/tatoeba.*-eng.eng")
        codes = [file.name.split(".")[1].split("-")[0] for file in files]
        if not codes:
            yield Part("tatoeba", None, "laser-tatoeba/tatoeba.XXX-eng.eng")
    for code in codes:
        looked = f"laser-tatoeba/tatoeba.{code}-eng.{code}"
        file = data.first(looked, f"tatoeba/v1/tatoeba.{code}-eng.{code}")
        name = f"tatoeba/{TWO_OF_THREE.get(code, code)}"
        yield Part(name, partial(_read_named, file, name) if file else None, looked)


def _read_named(file: Path, name: str) -> Parallel:
    return replace(read_parallel(file), name=name)


def _flores_pairs(family: str) -> Callable[[DataFolder], Iterator[Part]]:
    """English with each other language, from FLORES devtest, as parts of `family`."""

    def parts(data: DataFolder) -> Iterator[Part]:
        for code in data.others():
            file, looked = _flores_file(data, code)
            name = f"{family}/en-{code}"
            load = partial(flores_parallel, data.folder, ["en", code], name) if file and data.folder else None
            yield Part(name, load, looked)

    return parts


def _shipped_pair(code: str, name: str) -> Parallel:
    return pair_of(read_parallel(PARALLEL), "en", code, name)


def _quickstart(data: DataFolder) -> Iterator[Part]:
    for code in data.others():
        if code in SHIPPED:
            yield Part(f"quickstart/en-{code}", partial(_shipped_pair, code, f"quickstart/en-{code}"))


def _bucc(data: DataFolder) -> Iterator[Part]:
    looked = "bucc*/**/*.training.gold*"
    files = data.all(looked)
    if not files:
        yield Part("bucc", None, looked)
    for file in files:
        pair = file.name.split(".")[0]
        yield Part(f"bucc/{pair}", partial(_load_bucc, file.parent / pair, f"bucc/{pair}"))


def _load_bucc(prefix: Path, name: str) -> Mining:
    return replace(read_bucc(prefix), name=name)


def _third(folder: Path, code: str, split: str) -> tuple[Split, Parallel]:
    both = flores_parallel(folder, [code, "en"], f"flores-mining/{code}-en", split)
    third = len(both) // 3
    # sources are rows 0..2t, targets rows t..3t: only the middle third has a translation
    source, target = both.sides[code][: 2 * third], both.sides["en"][third : 3 * third]
    return Split(source, target, {(third + row, row) for row in range(third)}), both


def _load_flores_mining(folder: Path, code: str) -> Mining:
    (training, first), (test, second) = _third(folder, code, "dev"), _third(folder, code, "devtest")
    return Mining(first.name, training, test, first.sources + second.sources, first.notes + second.notes)


def _flores_mining(data: DataFolder) -> Iterator[Part]:
    for code in data.others():
        file, looked = _flores_file(data, code, "dev")
        load = partial(_load_flores_mining, data.folder, code) if file and data.folder else None
        yield Part(f"flores-mining/{code}-en", load, looked)


def _load_xsr(folder: Path, query: str, answer: str, distractors: list[Path]) -> Pool:
    name = f"xsr/{query}-{answer}"
    dev, devtest = (flores_parallel(folder, [query, answer], name, split) for split in ("dev", "devtest"))
    sides = {language: dev.sides[language] + devtest.sides[language] for language in (query, answer)}
    joined = Parallel(name, sides, dev.lines + devtest.lines, dev.sources + devtest.sources)
    files = [read_lines(path) for path in distractors]
    # plain sentences, or the last column of a parallel corpus
    texts = [text for lines in files for line in lines.lines if (text := line.rpartition("\t")[2].strip())]
    return Pool(joined, texts, joined.sources + [lines.source for lines in files])


def _xsr(data: DataFolder) -> Iterator[Part]:
    english = data.all("english/*.txt*")
    for code in data.others():
        file, looked = _flores_file(data, code, "dev")
        for query, answer in ((code, "en"), ("en", code)):
            pools = english if answer == "en" else data.all(f"*/*.en-{code}.tsv*")
            found = file is not None and data.folder is not None and pools
            load = partial(_load_xsr, data.folder, query, answer, pools) if found and data.folder else None
            wanted = "english/*.txt*" if answer == "en" else f"*/*.en-{code}.tsv*"
            yield Part(f"xsr/{query}-{answer}", load, f"{looked} and {wanted}")


def _shipped_texts() -> DriftData:
    parallel, golden = read_parallel(PARALLEL), read_lines(GOLDEN_TEXTS)
    sides = parallel.sides | {"golden texts": [line for line in golden.lines if line.strip()]}
    return DriftData("drift/quickstart", sides, [*parallel.sources, golden.source])


def _load_drift(folder: Path, codes: list[str]) -> DriftData:
    parallel = flores_parallel(folder, codes, "drift/flores")
    # rows spread over the whole file, since adjacent rows come from one article
    step = max(1, len(parallel) // DRIFT_ROWS)
    return DriftData(
        "drift/flores", {c: side[::step][:DRIFT_ROWS] for c, side in parallel.sides.items()}, parallel.sources
    )


def _drift(data: DataFolder) -> Iterator[Part]:
    yield Part("drift/quickstart", _shipped_texts)
    file, looked = _flores_file(data, "en")
    codes = [code for code in data.codes() if _flores_file(data, code)[0]]
    yield Part("drift/flores", partial(_load_drift, data.folder, codes) if file and data.folder else None, looked)


SETS = (
    NamedSet("tatoeba", tatoeba.TASK, "LASER's Tatoeba test sets, by language", _tatoeba),
    NamedSet("flores", tatoeba.TASK, "FLORES-200 devtest retrieval, by language", _flores_pairs("flores")),
    NamedSet("quickstart", tatoeba.TASK, "retrieval on the shipped parallel sentences", _quickstart),
    NamedSet("bucc", mining.TASK, "BUCC 2018 bitext mining", _bucc),
    NamedSet("flores-mining", mining.TASK, "bitext mining made of FLORES, one third parallel", _flores_mining),
    NamedSet("xsr", retrieval.TASK, "FLORES queries among sentences of the other language", _xsr),
    NamedSet("mse", mse.TASK, "MSE to a teacher on FLORES", _flores_pairs("mse")),
    NamedSet("drift", drift.TASK, "cosine with the float model", _drift),
)
