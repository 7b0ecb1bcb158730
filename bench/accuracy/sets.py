"""Tasks, named data sets and suites of them: what the words of `--tasks` name, and where a data folder holds the files.

A new set is one `NamedSet` in `SETS`; its function yields the parts that it finds in a data folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from msdc.bench.accuracy.classification import (
    CLASSIFICATION,
    MLDOC_LANGUAGES,
    SENTEVAL,
    TRANSFER,
    read_mldoc,
    read_senteval,
)
from msdc.bench.accuracy.parallel import Parallel, read_aligned, read_parallel
from msdc.bench.accuracy.retrieval import MINING, TATOEBA, XSR, Split, mining_data, pool_data
from msdc.bench.accuracy.search import SEARCH
from msdc.bench.accuracy.similarity import BIAS, DRIFT, GEOMETRY, MSE, STS, bias_data, drift_data, geometry_data
from msdc.bench.accuracy.task import AccuracyTask, TaskData
from msdc.errors import InputError, did_you_mean
from msdc.files import without_system_files
from msdc.text.quickstart import GOLDEN_TEXTS, GRADED_PAIRS, PARALLEL, parallel_table
from msdc.text.scored_pairs import ScoredPairs, join_pairs, read_pairs
from msdc.text.text_files import SourceFile, read_lines

TASKS: dict[str, AccuracyTask] = {
    task.name: task
    for task in (STS, MINING, TATOEBA, XSR, SEARCH, BIAS, CLASSIFICATION, TRANSFER, GEOMETRY, MSE, DRIFT)
}
ENVIRONMENT = "MSDC_DATA"
SUMS_FILE = "SHA256SUMS"
# The codes of one language in the published sets. Two letters (ours): (LASER's Tatoeba, FLORES-200)
CODES = {
    "ar": ("ara", "arb_Arab"), "bg": ("bul", "bul_Cyrl"), "bn": ("ben", "ben_Beng"), "cs": ("ces", "ces_Latn"),
    "de": ("deu", "deu_Latn"), "el": ("ell", "ell_Grek"), "en": ("eng", "eng_Latn"), "es": ("spa", "spa_Latn"),
    "et": ("est", "est_Latn"), "eu": ("eus", "eus_Latn"), "fa": ("pes", "pes_Arab"), "fi": ("fin", "fin_Latn"),
    "fr": ("fra", "fra_Latn"), "he": ("heb", "heb_Hebr"), "hi": ("hin", "hin_Deva"), "hu": ("hun", "hun_Latn"),
    "id": ("ind", "ind_Latn"), "it": ("ita", "ita_Latn"), "ja": ("jpn", "jpn_Jpan"), "ka": ("kat", "kat_Geor"),
    "ko": ("kor", "kor_Hang"), "nl": ("nld", "nld_Latn"), "pl": ("pol", "pol_Latn"), "pt": ("por", "por_Latn"),
    "ro": ("ron", "ron_Latn"), "ru": ("rus", "rus_Cyrl"), "sv": ("swe", "swe_Latn"), "sw": ("swh", "swh_Latn"),
    "ta": ("tam", "tam_Taml"), "th": ("tha", "tha_Thai"), "tl": ("tgl", "tgl_Latn"), "tr": ("tur", "tur_Latn"),
    "uk": ("ukr", "ukr_Cyrl"), "ur": ("urd", "urd_Arab"), "vi": ("vie", "vie_Latn"), "zh": ("cmn", "zho_Hans"),
}  # fmt: skip
SHIPPED = ("en", "de", "es", "fr", "it", "nl", "tr", "ar", "pt", "ru", "pl", "zh", "ja", "ko")
TRACKS = ("ar-ar", "es-es", "en-en", "en-ar", "en-de", "en-tr", "en-es", "en-fr", "en-it", "en-nl")
DRIFT_ROWS = 250


def flores_code(code: str) -> str:
    """FLORES's code; a code with a script is returned unchanged."""
    if code not in CODES and "_" not in code:
        raise InputError(f"unknown language {code!r}; known: {', '.join(CODES)}, or FLORES's own code such as lij_Latn")
    return CODES[code][1] if code in CODES else code


@dataclass(frozen=True)
class DataFolder:
    """The data folder and the requested languages (None: those of the set, or those of the shipped student)."""

    folder: Path | None
    languages: tuple[str, ...] | None = None

    def first(self, *patterns: str) -> Path | None:
        """First file or folder that matches a pattern; patterns are tried in order."""
        return next((path for pattern in patterns for path in self.all(pattern)), None)

    def all(self, pattern: str) -> list[Path]:
        """Every match of the pattern, in order."""
        return without_system_files(self.folder.glob(pattern)) if self.folder is not None else []

    def codes(self) -> tuple[str, ...]:
        """Two-letter codes to look for."""
        return self.languages or SHIPPED

    def others(self) -> list[str]:
        """Codes of the languages other than English."""
        return [code for code in self.codes() if code != "en"]

    def flores(self, codes: Iterable[str], name: str, split: str = "devtest") -> Parallel:
        """FLORES sentences of several languages, row by row."""
        looked = {code: _flores_pattern(code, split) for code in codes}
        paths = {
            c: self.first(pattern) or Path(self.folder or "", pattern.removesuffix("*"))
            for c, pattern in looked.items()
        }
        return read_aligned(paths, name)

    def has_flores(self, code: str, split: str = "devtest") -> bool:
        """Whether a language's FLORES file is there."""
        return self.first(_flores_pattern(code, split)) is not None

    def check_sums(self, sources: Iterable[SourceFile]) -> int:
        """Compare files that were read with the folder's `SHA256SUMS`; returns how many of them it lists."""
        if self.folder is None or not (self.folder / SUMS_FILE).is_file():
            return 0
        lines, sums, checked = read_lines(self.folder / SUMS_FILE), {}, 0
        for number, line in enumerate(lines.lines, start=1):
            digest, _, name = line.partition(" ")
            if len(digest) != 64 or not name.strip():
                raise lines.error(number, "expected a sha256 and a path")
            sums[(self.folder / name.strip().lstrip("*")).resolve()] = digest.lower()
        for source in sources:
            listed = sums.get(source.path.resolve()) if source.path is not None else None
            if listed not in (None, source.sha256):
                raise InputError(f"{source.path}: its sha256 is not the one in {SUMS_FILE}; the file was changed")
            checked += listed is not None
        return checked


def find_data_folder(folder: str | Path | None, languages: tuple[str, ...] | None = None) -> DataFolder:
    """The given folder, else the one in the environment variable MSDC_DATA, else none."""
    chosen = folder or os.environ.get(ENVIRONMENT) or None
    return DataFolder(Path(chosen) if chosen else None, languages)


class SetPart(NamedTuple):
    """One data set of a named set. `load` is None where its files are absent; `looked_for` is the pattern tried.

    An `extra` part is scored only when it is named.
    """

    name: str
    load: Callable[[], TaskData] | None
    looked_for: str = ""
    extra: bool = False


Parts = Callable[[DataFolder], Iterable[SetPart]]


class NamedSet(NamedTuple):
    """Data sets that one task scores under one name; `parts` finds them in a data folder."""

    name: str
    task: AccuracyTask
    summary: str
    parts: Parts


def _load(read: Callable[..., ScoredPairs | Parallel], *arguments: Any) -> TaskData:
    return TaskData.of(read(*arguments))


# Scored pairs, and the bias and geometry sets made from them.


def _pairs(data: DataFolder, name: str, *patterns: str, extra: bool = False) -> SetPart:
    """A part of scored pairs, read from the first file that matches a pattern."""
    file = data.first(*patterns)
    return SetPart(name, partial(_load, read_pairs, file, name) if file else None, patterns[0], extra)


def _sts17(data: DataFolder) -> Iterator[SetPart]:
    for track in TRACKS:
        first, second = track.split("-")
        if data.languages and not {first, second} <= {*data.languages, "en"}:
            continue
        # our layout, then the extended files of MKD, then SemEval's own
        patterns = [
            pattern.format(pair)
            for pair in dict.fromkeys((f"{first}-{second}", f"{second}-{first}"))
            for pattern in (
                "sts2017/STS2017.{}.tsv*",
                "[Ss][Tt][Ss]2017*/**/STS2017.{}.t[sx][vt]*",
                "[Ss][Tt][Ss]2017*/**/STS.{}.txt*",
                "[Ss][Tt][Ss]2017*/**/STS.input.track*.{}.txt",
            )
        ]
        yield _pairs(data, f"sts17/{track}", *patterns)
    # this track is about translation quality, not similarity: scored only when named
    yield _pairs(data, "sts17/es-en.4b", "sts2017/STS2017.es-en.4b.tsv*", extra=True)


def _join_files(name: str, files: dict[str, Path]) -> ScoredPairs:
    return join_pairs(name, [read_pairs(file, part) for part, file in files.items()])


def _sts_year(data: DataFolder, year: int) -> Iterator[SetPart]:
    name, looked, files = f"sts{year}", f"sts12-16/STS{year}.*.tsv*", {}
    for file in data.all(looked) or data.all(f"**/STS{year}-en-test/STS.input.*.txt"):
        stem = file.name.removesuffix(".gz").rsplit(".", 1)[0]
        files[stem.removeprefix("STS.input.").split(".", 1)[-1]] = file
    yield SetPart(name, partial(_load, _join_files, name, files) if files else None, looked)


def _sick_all(data: DataFolder) -> Iterator[SetPart]:
    """All 9,927 pairs, as MTEB scores SICK-R; DCSE and SentEval score the test part alone."""
    names = {"train": "train", "trial": "trial", "test": "test_annotated"}
    paths = {part: data.first(f"sick/SICK_{name}.txt*", f"SICK/SICK_{name}.txt") for part, name in names.items()}
    files = {part: file for part, file in paths.items() if file is not None}
    load = partial(_load, _join_files, "sickr-all", files) if len(files) == len(names) else None
    yield SetPart("sickr-all", load, "sick/SICK_{train,trial,test_annotated}.txt*")


def _single_file_set(name: str, summary: str, *patterns: str, language: str | None = None) -> NamedSet:
    """A set of one file of scored pairs, the first that matches a pattern."""

    def parts(data: DataFolder) -> Iterable[SetPart]:
        # a set of one language belongs to a suite only with that language; named by itself it is always scored
        return [_pairs(data, name, *patterns, extra=language not in (None, *(data.languages or (language,))))]

    return NamedSet(name, STS, summary, parts)


def _by_language(name: str, part: str, summary: str, pattern: str) -> NamedSet:
    """A set with one file of scored pairs per language; its code is put into `part` and `pattern`."""

    def parts(data: DataFolder) -> Iterable[SetPart]:
        return [_pairs(data, f"{name}/{part.format(code)}", pattern.format(code)) for code in data.others()]

    return NamedSet(name, STS, summary, parts)


def _crossed_with_english(family: str, split: str, data: DataFolder) -> Iterator[SetPart]:
    """STSb, English first sentences with second ones of each other language, row by row."""
    english = data.first(f"stsb/sts-{split}.tsv*")
    file_by_language = {"tr": f"stsb-tr/stsb_tr_{split}.tsv*", "ko": f"korsts/sts-{split}.tsv*"}
    for code in data.others():
        looked, name = file_by_language.get(code, f"stsb-multi-mt/stsb-{code}-{split}.csv*"), f"{family}/en-{code}"
        file = data.first(looked)
        yield SetPart(name, partial(_load, _crossed, english, file, name) if english and file else None, looked)


def _crossed(first: Path, second: Path, name: str) -> ScoredPairs:
    pairs_one, pairs_two = read_pairs(first, name), read_pairs(second, name)
    if pairs_one.gold_N.tolist() != pairs_two.gold_N.tolist():
        raise InputError(f"{second}: not the pairs of {first}, row by row")
    return replace(
        pairs_one,
        second=pairs_two.second,
        sources=[*pairs_one.sources, *pairs_two.sources],
        notes=[*pairs_one.notes, *pairs_two.notes],
    )


def _bias(data: DataFolder) -> Iterator[SetPart]:
    stsb = [part for pair_set in _STSB for part in pair_set.parts(data)]
    for name, parts in (("bias/sts17", list(_sts17(data))), ("bias/stsb", stsb)):
        loads = [part.load for part in parts if part.load is not None and not part.extra]
        load = partial(_load_bias, data, name, loads) if len(loads) >= 2 else None
        yield SetPart(name, load, f"at least two parts of {name.removeprefix('bias/')}")
    yield SetPart("bias/graded-pairs", partial(_load_bias, data, "bias/graded-pairs", None), extra=True)


def _load_bias(data: DataFolder, name: str, loads: list[Callable[[], TaskData]] | None) -> TaskData:
    """The pairs of several parts, or the shipped ones; the picture is of English and the first other language."""
    pairs = join_pairs(name, [load().content for load in loads]) if loads else read_pairs(GRADED_PAIRS, name)
    picture = None
    if others := data.others():
        if data.has_flores("en"):
            picture = data.flores(["en", others[0]], f"flores/en-{others[0]}")
        else:
            other = others[0] if others[0] in parallel_table()[0] else "de"
            picture = _shipped_pair(other, f"quickstart/en-{other}")
    return bias_data(pairs, picture)


def _geometry(data: DataFolder) -> Iterator[SetPart]:
    (stsb,) = _STSB[0].parts(data)
    yield stsb._replace(name="geometry", load=partial(_load_geometry, stsb.load, data) if stsb.load else None)


def _load_geometry(stsb: Callable[[], TaskData], data: DataFolder) -> TaskData:
    codes = [code for code in data.codes() if data.has_flores(code)]
    return geometry_data(stsb().content, data.flores(codes, "flores") if len(codes) >= 2 else None)


# Parallel sentences: retrieval, mining, distance to the teacher, drift.


def _flores_pattern(code: str, split: str = "devtest") -> str:
    return f"flores200/{split}/{flores_code(code)}.{split}*"


def _flores_pairs(data: DataFolder, family: str) -> Iterator[SetPart]:
    """English with each other language, from FLORES devtest, as parts of `family`."""
    for code in data.others():
        name = f"{family}/en-{code}"
        load = partial(_load, data.flores, ["en", code], name) if data.has_flores(code) else None
        yield SetPart(name, load, _flores_pattern(code))


def _tatoeba(data: DataFolder) -> Iterator[SetPart]:
    if data.languages:
        codes = [CODES[code][0] if code in CODES else code for code in data.others()]
    else:
        files = data.all("laser-tatoeba/tatoeba.*-eng.eng*") + data.all("tatoeba/v1/tatoeba.*-eng.eng")
        codes = [file.name.split(".")[1].split("-")[0] for file in files]
        if not codes:
            yield SetPart("tatoeba", None, "laser-tatoeba/tatoeba.XXX-eng.eng")
    two_letters = {three: two for two, (three, _) in CODES.items()}
    for code in codes:
        looked = f"laser-tatoeba/tatoeba.{code}-eng.{code}"
        file = data.first(looked, f"tatoeba/v1/tatoeba.{code}-eng.{code}")
        name = f"tatoeba/{two_letters.get(code, code)}"
        yield SetPart(name, partial(_named, TATOEBA.read, file, name) if file else None, looked)


def _named(read: Callable[[Path], TaskData], path: Path, name: str) -> TaskData:
    return replace(read(path), name=name)


def _quickstart(data: DataFolder) -> Iterator[SetPart]:
    codes, _ = parallel_table()
    for code in data.others():
        if code in codes:
            name = f"quickstart/en-{code}"
            yield SetPart(name, partial(_load, _shipped_pair, code, name))


def _shipped_pair(code: str, name: str) -> Parallel:
    return read_parallel(PARALLEL).pair("en", code, name)


def _by_file(name: str, task: AccuracyTask, summary: str, looked: str, path_of: Callable[[Path], Path]) -> NamedSet:
    """A set with one part per file that matches `looked`; `path_of` is what the task reads, which names the part."""

    def parts(data: DataFolder) -> Iterable[SetPart]:
        paths = [path_of(file) for file in data.all(looked)]
        for part, path in ((f"{name}/{path.name}", path) for path in paths):
            yield SetPart(part, partial(_named, task.read, path, part))
        if not paths:
            yield SetPart(name, None, looked)

    return NamedSet(name, task, summary, parts)


def _flores_mining(data: DataFolder) -> Iterator[SetPart]:
    for code in data.others():
        load = partial(_load_flores_mining, data, code) if data.has_flores(code, "dev") else None
        yield SetPart(f"flores-mining/{code}-en", load, _flores_pattern(code, "dev"))


def _load_flores_mining(data: DataFolder, code: str) -> TaskData:
    name, splits = f"flores-mining/{code}-en", []
    both = [data.flores([code, "en"], name, split) for split in ("dev", "devtest")]
    for side in both:
        third = len(side) // 3
        # sources are rows 0..2t, targets rows t..3t: only the middle third has a translation
        source, target = side.sides[code][: 2 * third], side.sides["en"][third : 3 * third]
        splits.append(Split(source, target, {(third + row, row) for row in range(third)}))
    training, test = splits
    return mining_data(name, training, test, both[0].sources + both[1].sources, both[0].notes + both[1].notes)


def _xsr(data: DataFolder) -> Iterator[SetPart]:
    for code in data.others():
        for query, answer in ((code, "en"), ("en", code)):
            pattern = "english/*.txt*" if answer == "en" else f"*/*.en-{code}.tsv*"
            pools = data.all(pattern) if data.has_flores(code, "dev") else []
            load = partial(_load_xsr, data, query, answer, pools) if pools else None
            yield SetPart(f"xsr/{query}-{answer}", load, f"{_flores_pattern(code, 'dev')} and {pattern}")


def _load_xsr(data: DataFolder, query: str, answer: str, distractors: list[Path]) -> TaskData:
    name = f"xsr/{query}-{answer}"
    dev, devtest = (data.flores([query, answer], name, split) for split in ("dev", "devtest"))
    sides = {language: dev.sides[language] + devtest.sides[language] for language in (query, answer)}
    joined = Parallel(name, sides, dev.lines + devtest.lines, dev.sources + devtest.sources)
    files = [read_lines(path) for path in distractors]
    # plain sentences, or the last column of a parallel corpus
    texts = [text for lines in files for line in lines.lines if (text := line.rpartition("\t")[2].strip())]
    return pool_data(joined, texts, [lines.source for lines in files])


def _drift(data: DataFolder) -> Iterator[SetPart]:
    yield SetPart("drift/quickstart", _load_shipped_texts)
    codes = [code for code in data.codes() if data.has_flores(code)]
    load = partial(_load_drift, data, codes) if data.has_flores("en") else None
    yield SetPart("drift/flores", load, _flores_pattern("en"))


def _load_shipped_texts() -> TaskData:
    parallel, golden = read_parallel(PARALLEL), read_lines(GOLDEN_TEXTS)
    sides = parallel.sides | {"golden texts": [line for line in golden.lines if line.strip()]}
    return drift_data("drift/quickstart", sides, [*parallel.sources, golden.source])


def _load_drift(data: DataFolder, codes: list[str]) -> TaskData:
    parallel = data.flores(codes, "drift/flores")
    # rows spread over the whole file, since adjacent rows come from one article
    step = max(1, len(parallel) // DRIFT_ROWS)
    sides = {code: side[::step][:DRIFT_ROWS] for code, side in parallel.sides.items()}
    return drift_data("drift/flores", sides, parallel.sources)


# Labelled texts: MLDoc, SentEval.


def _mldoc(data: DataFolder) -> Iterator[SetPart]:
    for code in ("en", "de", "fr", "es", "it"):
        if not data.languages or code in data.languages:
            looked = f"[Mm][Ll][Dd]oc*/{MLDOC_LANGUAGES[code]}.train.1000"
            file = data.first(looked)
            yield SetPart(f"mldoc/{code}", partial(read_mldoc, file.parent, code) if file else None, looked)


def _senteval(data: DataFolder) -> Iterator[SetPart]:
    for name in SENTEVAL:
        folder = "SST/binary" if name == "SST2" else name
        file = data.first(f"[Ss]ent[Ee]val/{folder}", f"[Ss]ent[Ee]val/data/downstream/{folder}")
        load = partial(read_senteval, file) if file else None
        yield SetPart(f"senteval/{name}", load, f"**/[Ss]ent[Ee]val/**/{folder}")


_STSB = (
    _single_file_set("stsb", "STSb test", "stsb/sts-test.tsv*", "stsbenchmark/sts-test.csv", "stsb/sts-test.csv*"),
    _by_language("stsb-multi", "{}", "STSb test, machine-translated", "stsb-multi-mt/stsb-{}-test.csv*"),
    NamedSet(
        "stsb-cross", STS, "STSb test, English against its translation",
        partial(_crossed_with_english, "stsb-cross", "test"),
    ),
)  # fmt: skip
_GRADED = [SetPart("graded-pairs", partial(_load, read_pairs, GRADED_PAIRS, "graded-pairs"))]
_LISTED = (
    NamedSet("sts17", STS, "STS2017 and its extension, by language pair", _sts17),
    *_STSB,
    _single_file_set("stsb-dev", "STSb dev", "stsb/sts-dev.tsv*", "stsbenchmark/sts-dev.csv"),
    *(
        NamedSet(f"sts{year}", STS, f"STS 20{year}: all pairs, and mean over its parts", partial(_sts_year, year=year))
        for year in range(12, 17)
    ),
    _single_file_set("sickr", "SICK-R test (as DCSE)", "sick/SICK_test_annotated.txt*", "SICK/SICK_test*"),
    NamedSet("sickr-all", STS, "SICK-R, all three parts (as MTEB)", _sick_all),
    NamedSet("stsb-cross-dev", STS, "STSb dev, English against its translation",
             partial(_crossed_with_english, "stsb-cross-dev", "dev")),
    _by_language("stsb-multi-dev", "{}", "STSb dev, machine-translated", "stsb-multi-mt/stsb-{}-dev.csv*"),
    _single_file_set("stsb-tr", "STSb test in Turkish", "stsb-tr/stsb_tr_test.tsv*", language="tr"),
    _single_file_set("stsb-tr-dev", "STSb dev in Turkish", "stsb-tr/stsb_tr_dev.tsv*", language="tr"),
    _single_file_set("korsts", "KorSTS test", "korsts/sts-test.tsv*", "KorSTS/sts-test.tsv", language="ko"),
    _single_file_set("korsts-dev", "KorSTS dev", "korsts/sts-dev.tsv*", "KorSTS/sts-dev.tsv", language="ko"),
    NamedSet("graded-pairs", STS, "the shipped graded pairs (not an STS set)", lambda _: _GRADED),
    NamedSet("bias", BIAS, "language bias on STS2017 and on STSb", _bias),
    NamedSet("geometry", GEOMETRY, "alignment, uniformity, isotropy on STSb; separability on FLORES", _geometry),
    NamedSet("tatoeba", TATOEBA, "LASER's Tatoeba test sets, by language", _tatoeba),
    NamedSet("flores", TATOEBA, "FLORES-200 devtest retrieval, by language", partial(_flores_pairs, family="flores")),
    NamedSet("quickstart", TATOEBA, "retrieval on the shipped parallel sentences", _quickstart),
    _by_file("bucc", MINING, "BUCC 2018 bitext mining", "bucc*/**/*.training.gold*",
             lambda gold: gold.parent / gold.name.split(".")[0]),
    NamedSet("flores-mining", MINING, "bitext mining made of FLORES, one third parallel", _flores_mining),
    NamedSet("xsr", XSR, "FLORES queries among sentences of the other language", _xsr),
    _by_file("retrieval", SEARCH, "questions to paragraphs, by vectors, words and both", "retrieval/*/corpus.jsonl*",
             lambda corpus: corpus.parent),
    NamedSet("mse", MSE, "MSE to a teacher on FLORES", partial(_flores_pairs, family="mse")),
    NamedSet("drift", DRIFT, "cosine with the float model", _drift),
    NamedSet("mldoc", CLASSIFICATION, "MLDoc, from each language to the others (needs its licence)", _mldoc),
    NamedSet("senteval", TRANSFER, "SentEval transfer tasks", _senteval),
)  # fmt: skip
SETS: dict[str, NamedSet] = {named_set.name: named_set for named_set in _LISTED}

CARD = "card"
# A suite scores what the data folder holds and reports the rest as absent; a set named by itself must be there.
SUITES: dict[str, tuple[str, ...]] = {
    "bench": ("sts17", "stsb"),
    "quick": ("graded-pairs", "quickstart", "bias/graded-pairs", "drift/quickstart"),
    "paper-msd": ("sts17",),
    "paper-mkd": ("sts17", "bucc", "tatoeba", "korsts", "bias/sts17"),
    "paper-dcse": ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr", "geometry", "senteval"),
    "paper-lxs": ("mldoc", "xsr"),
    CARD: (
        "sts17", "stsb", "stsb-multi", "stsb-tr", "korsts", "stsb-cross", "stsb-multi-dev", "stsb-tr-dev", "korsts-dev",
        "stsb-cross-dev", "graded-pairs", "tatoeba", "flores", "flores-mining", "bias", "geometry", "drift",
    ),
}  # fmt: skip
SUITES["paper"] = tuple(dict.fromkeys(word for name in SUITES if name.startswith("paper-") for word in SUITES[name]))


class DataSet(NamedTuple):
    """One data set to load and the task that scores it."""

    name: str
    task: AccuracyTask
    load: Callable[[], TaskData]


def select_sets(words: Iterable[str | DataSet], data: DataFolder) -> tuple[list[DataSet], list[dict[str, str]]]:
    """The data sets that the words of `--tasks` name: a suite, a set (`sts17`), a part (`sts17/en-en`), or `task=PATH`.

    Second, those of a suite that the data folder lacks.
    """
    sets: dict[str, DataSet] = {}
    absent: list[dict[str, str]] = []
    for word in words:
        if isinstance(word, DataSet):
            sets[word.name] = word
            continue
        if "=" in word:
            name, _, path = word.partition("=")
            sets[word] = read_path(name, path)
            continue
        for member in SUITES.get(word, (word,)):
            for part in _find_parts(member, data, suite=word in SUITES):
                task = SETS[member.split("/")[0]].task
                if part.load is None:
                    absent.append({"task": task.name, "name": part.name, "looked_for": part.looked_for})
                else:
                    sets[part.name] = DataSet(part.name, task, part.load)
    return list(sets.values()), absent


def read_path(task: str, path: str | Path) -> DataSet:
    """A file or folder of the user's own."""
    if task not in TASKS:
        raise InputError(f"unknown task {task!r}{did_you_mean(task, TASKS)}")
    return DataSet(f"{task}={path}", TASKS[task], partial(TASKS[task].read, Path(path)))


def _find_parts(word: str, data: DataFolder, suite: bool) -> list[SetPart]:
    """The parts of a set that `word` names."""
    name, _, part_name = word.partition("/")
    if name not in SETS:
        if word in TASKS:
            names = [data_set.name for data_set in SETS.values() if data_set.task.name == word]
            raise InputError(f"{word} is a task, not a set; its sets: {', '.join(names)}; a file of yours: {word}=PATH")
        raise InputError(
            f"unknown set {word!r}{did_you_mean(word, [*SETS, *SUITES])}; a file of yours: TASK=PATH with TASK one of "
            f"{', '.join(TASKS)}"
        )
    every = list(SETS[name].parts(data))
    if part_name:
        parts = [part for part in every if part.name == word]
        if not parts:
            raise InputError(f"{name} has no part {part_name!r}; known parts: {', '.join(part.name for part in every)}")
    else:
        parts = [part for part in every if not part.extra or (not suite and len(every) == 1)]
    if suite or any(part.load for part in parts):
        return parts
    if data.folder is None:
        raise InputError(f"{word} needs a data folder: pass `data` or set {ENVIRONMENT}")
    looked = parts[0].looked_for if parts else "its files"
    raise InputError(f"{word}: no {looked} under {data.folder}; put the files there, or score a file with TASK=PATH")
