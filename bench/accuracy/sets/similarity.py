"""Named sets of scored pairs, and the bias and geometry sets made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from msdc.bench.accuracy.readers.parallel import Parallel, pair_of, read_parallel
from msdc.bench.accuracy.sets.languages import flores
from msdc.bench.accuracy.sets.named_set import DataFolder, NamedSet, Part, pairs_part
from msdc.bench.accuracy.sets.translation import flores_parallel
from msdc.bench.accuracy.tasks import bias, geometry, sts
from msdc.bench.accuracy.tasks.bias import BiasData
from msdc.bench.accuracy.tasks.geometry import GeometryData
from msdc.text.quickstart import GRADED_PAIRS, PARALLEL
from msdc.text.scored_pairs import ScoredPairs, join_pairs, read_pairs

TRACKS = ("ar-ar", "es-es", "en-en", "en-ar", "en-de", "en-tr", "en-es", "en-fr", "en-it", "en-nl")
STSB = ("stsb/sts-test.tsv*", "stsbenchmark/sts-test.csv", "stsb/sts-test.csv*")


def _sts17(data: DataFolder) -> Iterator[Part]:
    for track in TRACKS:
        a, b = track.split("-")
        if data.languages and not {a, b} <= {*data.languages, "en"}:
            continue
        patterns: list[str] = []
        for pair in dict.fromkeys((f"{a}-{b}", f"{b}-{a}")):
            # our layout, then the extended files of MKD, then SemEval's own
            patterns += [
                f"sts2017/STS2017.{pair}.tsv*",
                f"[Ss][Tt][Ss]2017*/**/STS2017.{pair}.t[sx][vt]*",
                f"[Ss][Tt][Ss]2017*/**/STS.{pair}.txt*",
                f"[Ss][Tt][Ss]2017*/**/STS.input.track*.{pair}.txt",
            ]
        yield pairs_part(data, f"sts17/{track}", *patterns)
    # this track is about translation quality, not similarity: scored only when named
    yield pairs_part(data, "sts17/es-en.4b", "sts2017/STS2017.es-en.4b.tsv*", extra=True)


def _part_name(file: Path) -> str:
    return file.name.removesuffix(".gz").rsplit(".", 1)[0].removeprefix("STS.input.").split(".", 1)[-1]


def _join_files(name: str, files: list[Path], names: list[str]) -> ScoredPairs:
    return join_pairs(name, [read_pairs(file, part) for file, part in zip(files, names, strict=True)])


def _sts_year(year: str) -> Callable[[DataFolder], Iterator[Part]]:
    def parts(data: DataFolder) -> Iterator[Part]:
        looked = f"sts12-16/STS{year}.*.tsv*"
        files = data.all(looked) or data.all(f"**/STS{year}-en-test/STS.input.*.txt")
        names = [_part_name(file) for file in files]
        yield Part(f"sts{year}", partial(_join_files, f"sts{year}", files, names) if files else None, looked)

    return parts


def _sick_all(data: DataFolder) -> Iterator[Part]:
    """All 9,927 pairs, as MTEB scores SICK-R; DCSE and SentEval score the test part alone."""
    names = ("train", "trial", "test_annotated")
    files = [file for name in names if (file := data.first(f"sick/SICK_{name}.txt*", f"SICK/SICK_{name}.txt"))]
    whole = len(files) == len(names)
    load = partial(_join_files, "sickr-all", files, ["train", "trial", "test"]) if whole else None
    yield Part("sickr-all", load, "sick/SICK_{train,trial,test_annotated}.txt*")


def _one(name: str, *patterns: str, language: str | None = None) -> Callable[[DataFolder], Iterator[Part]]:
    def parts(data: DataFolder) -> Iterator[Part]:
        # a set of one language belongs to a suite only with that language; named by itself it is always scored
        foreign = language is not None and language not in (data.languages or (language,))
        yield replace(pairs_part(data, name, *patterns), extra=foreign)

    return parts


def _by_language(name: str, pattern: str) -> Callable[[DataFolder], Iterator[Part]]:
    def parts(data: DataFolder) -> Iterator[Part]:
        for code in data.others():
            yield pairs_part(data, name.format(code), pattern.format(code))

    return parts


def _graded(data: DataFolder) -> Iterator[Part]:
    yield Part("graded-pairs", partial(read_pairs, GRADED_PAIRS, "graded-pairs"))


def _load_bias(name: str, parts: list[Part], picture: Callable[[], Parallel] | None) -> BiasData:
    read = [part.load() for part in parts if part.load is not None]
    return BiasData(join_pairs(f"bias/{name}", read), picture() if picture else None)


def _picture(data: DataFolder) -> Callable[[], Parallel] | None:
    """English with the first other language, from FLORES where it exists, else from the shipped sentences."""
    others = data.others()
    if not others:
        return None
    if data.folder is not None and data.first("flores200/devtest/eng_Latn.devtest*"):
        return partial(flores_parallel, data.folder, ["en", others[0]], f"flores/en-{others[0]}")
    return partial(_shipped_pair, others[0])


def _shipped_pair(code: str) -> Parallel:
    parallel = read_parallel(PARALLEL)
    return pair_of(parallel, "en", code if code in parallel.sides else "de", f"quickstart/en-{code}")


def _bias(data: DataFolder) -> Iterator[Part]:
    stsb = [*_one("stsb", *STSB)(data), *_by_language("stsb-multi/{}", MULTI_TEST)(data)]
    stsb += _by_language("stsb-cross/en-{}", CROSS)(data)
    for name, parts in (("sts17", list(_sts17(data))), ("stsb", stsb)):
        found = [part for part in parts if part.load is not None and not part.extra]
        load = partial(_load_bias, name, found, _picture(data)) if len(found) >= 2 else None
        yield Part(f"bias/{name}", load, f"at least two parts of {name}")
    yield Part("bias/graded-pairs", partial(_load_graded_bias, _picture(data)), extra=True)


def _load_graded_bias(picture: Callable[[], Parallel] | None) -> BiasData:
    pairs = read_pairs(GRADED_PAIRS, "graded-pairs").renamed("bias/graded-pairs")
    return BiasData(pairs, picture() if picture else None)


def _geometry(data: DataFolder) -> Iterator[Part]:
    file = data.first(*STSB)
    yield Part("geometry", partial(_load_geometry, file, data) if file else None, STSB[0])


def _load_geometry(file: Path, data: DataFolder) -> GeometryData:
    parallel = None
    codes = [code for code in data.codes() if data.first(f"flores200/devtest/{flores(code)}.devtest*")]
    if data.folder is not None and len(codes) >= 2:
        parallel = flores_parallel(data.folder, codes, "flores")
    return GeometryData(read_pairs(file, "stsb"), parallel)


MULTI_TEST = "stsb-multi-mt/stsb-{}-test.csv*"
CROSS = "stsb-crosslingual/STSb.en-{}.test.tsv*"
SETS = (
    NamedSet("sts17", sts.TASK, "STS2017 and its extension, by language pair", _sts17),
    NamedSet("stsb", sts.TASK, "STSb test", _one("stsb", *STSB)),
    NamedSet("stsb-dev", sts.TASK, "STSb dev", _one("stsb-dev", "stsb/sts-dev.tsv*", "stsbenchmark/sts-dev.csv")),
    *(
        NamedSet(f"sts{year}", sts.TASK, f"STS 20{year}: all pairs, and mean over its parts", _sts_year(year))
        for year in ("12", "13", "14", "15", "16")
    ),
    NamedSet(
        "sickr", sts.TASK, "SICK-R test (as DCSE)", _one("sickr", "sick/SICK_test_annotated.txt*", "SICK/SICK_test*")
    ),
    NamedSet("sickr-all", sts.TASK, "SICK-R, all three parts (as MTEB)", _sick_all),
    NamedSet("stsb-multi", sts.TASK, "STSb test, machine-translated", _by_language("stsb-multi/{}", MULTI_TEST)),
    NamedSet(
        "stsb-multi-dev",
        sts.TASK,
        "STSb dev, machine-translated",
        _by_language("stsb-multi-dev/{}", "stsb-multi-mt/stsb-{}-dev.csv*"),
    ),
    NamedSet(
        "stsb-cross", sts.TASK, "STSb test, English against its translation", _by_language("stsb-cross/en-{}", CROSS)
    ),
    NamedSet(
        "stsb-tr-dev", sts.TASK, "STSb dev in Turkish", _one("stsb-tr-dev", "stsb-tr/stsb_tr_dev.tsv*", language="tr")
    ),
    NamedSet(
        "korsts", sts.TASK, "KorSTS test", _one("korsts", "korsts/sts-test.tsv*", "KorSTS/sts-test.tsv", language="ko")
    ),
    NamedSet(
        "korsts-dev",
        sts.TASK,
        "KorSTS dev",
        _one("korsts-dev", "korsts/sts-dev.tsv*", "KorSTS/sts-dev.tsv", language="ko"),
    ),
    NamedSet("graded-pairs", sts.TASK, "the shipped graded pairs (not an STS set)", _graded),
    NamedSet("bias", bias.TASK, "language bias on STS2017 and on STSb", _bias),
    NamedSet("geometry", geometry.TASK, "alignment, uniformity, isotropy on STSb; separability on FLORES", _geometry),
)
