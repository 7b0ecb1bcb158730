"""Result tables of the papers, with our rows after the published ones.

The numbers are in the `*.csv` files of the folder `published`; the first line of each is its source.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msdc.bench.accuracy.sets import CODES

FOLDER = Path(__file__).resolve().parent / "published"
# LXS names a direction by first letters: e2f trains on (or queries in) English and tests on (or searches) French
LXS = {
    "e2f": ("en", "fr"), "f2e": ("fr", "en"), "e2d": ("en", "de"), "d2e": ("de", "en"), "e2s": ("en", "es"),
    "s2e": ("es", "en"), "e2i": ("en", "it"), "i2e": ("it", "en"),
}  # fmt: skip


def read_published(name: str) -> tuple[str, list[str], list[dict[str, str]]]:
    """(source, columns, rows) of one published table."""
    first, *lines = (FOLDER / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    reader = csv.DictReader(lines)
    return first.removeprefix("#").strip(), list(reader.fieldnames or []), list(reader)


def _columns(key: str, sets: dict[str, str]) -> dict[str, tuple[str, ...]]:
    return {column: (name, key) for column, name in sets.items()}


# Columns: name -> the set of a result, and the keys that lead to the number in it. Means: name -> columns.
MONO, CROSS = ("ar-ar", "es-es", "en-en"), ("en-ar", "en-de", "en-tr", "en-es", "en-fr", "en-it", "en-nl")
MSD = _columns("spearman", {pair: f"sts17/{pair}" for pair in MONO + CROSS})
MSD_MEANS = {"mono_avg": MONO, "cross_avg": CROSS}
BUCC = _columns("f1", {pair: f"bucc/{pair}" for pair in ("de-en", "fr-en", "ru-en", "zh-en")})
BIAS = {key: ("bias/sts17", key) for key in ("mean", "joint", "bias")}
DCSE = _columns(
    "spearman", {f"STS{year}": f"sts{year}" for year in range(12, 17)} | {"STS-B": "stsb", "SICK-R": "sickr"}
)
TRANSFER = {
    name: (f"senteval/{'SST2' if name == 'SST' else name}", "accuracy")
    for name in ("MR", "CR", "SUBJ", "MPQA", "SST", "TREC", "MRPC")
}
TWO_LETTERS = {three: two for two, (three, _) in CODES.items()}
TATOEBA = {
    code: (f"tatoeba/{TWO_LETTERS.get(code, code)}", "accuracy") for code in read_published("mkd_tatoeba")[1][1:]
}
MANY = 30  # columns; of more, those that one of our models has are shown
MLDOC = {column: (f"mldoc/{a}", "languages", b, "mean_of_runs") for column, (a, b) in LXS.items()}
XSR = _columns("p_at_1", {column: f"xsr/{a}-{b}" for column, (a, b) in LXS.items()})
BOTH = {f"{name} {way}": keys for name, cells in (("mldoc", MLDOC), ("xsr", XSR)) for way, keys in cells.items()}
XSR_NOTE = "ours: FLORES queries among sentences of the data folder, not the paper's Europarl and Wikipedia pools"


Columns = Mapping[str, tuple[str, ...]]
# file, title, suites that show it, columns, means, note
TABLES: tuple[tuple[str, str, set[str], Columns, Mapping[str, Iterable[str]], str], ...] = (
    ("msd_sts2017", "STS2017 and its extension (MSD)", {"paper-msd", "paper-mkd"}, MSD, MSD_MEANS, ""),
    ("msd_ablations", "Ablations on STS2017 (MSD)", {"paper-msd"}, MSD, MSD_MEANS, ""),
    ("mkd_bucc", "BUCC bitext mining, F1 (MKD)", {"paper-mkd"}, BUCC, {"avg": BUCC},
     "ours: training split where test gold is absent"),
    ("mkd_bias", "Language bias (MKD)", {"paper-mkd"}, BIAS, {}, "ours: the sets of STS2017 found in the data folder"),
    ("mkd_sets", "STS2017 by training set (MKD)", {"paper-mkd"}, MSD, {}, ""),
    ("mkd_korsts", "KorSTS (MKD)", {"paper-mkd"}, {"ko-ko": ("korsts", "spearman")}, {}, ""),
    ("mkd_tatoeba", "Tatoeba, languages of ours (MKD)", {"paper-mkd"}, TATOEBA, {}, "both directions, mean"),
    ("dcse_sts", "STS12-16, STS-B, SICK-R (DistilCSE)", {"paper-dcse"}, DCSE, {"avg": DCSE},
     "all pairs of a year in one list"),
    ("dcse_transfer", "SentEval transfer tasks (DistilCSE)", {"paper-dcse"}, TRANSFER, {"avg": TRANSFER}, ""),
    ("lxs_mldoc", "MLDoc, zero-shot accuracy (LXS)", {"paper-lxs"}, MLDOC, {"avg": MLDOC}, "ours: mean of five runs"),
    ("lxs_xsr", "XSR, P@1 (LXS)", {"paper-lxs"}, XSR, {"avg": XSR}, XSR_NOTE),
    ("lxs_ablations", "Ablations on MLDoc and XSR (LXS)", {"paper-lxs"}, BOTH, {}, XSR_NOTE),
    ("lxs_mkd", "Beside Reimers and Gurevych 2020 (LXS)", {"paper-lxs"}, BOTH, {}, XSR_NOTE),
)  # fmt: skip


def _cells(scores: Mapping[str, Any], sets: Columns, means: Mapping[str, Iterable[str]]) -> dict[str, float | None]:
    """Our row of a table. A mean is None unless all its columns are present: a mean over fewer is another number."""
    cells: dict[str, float | None] = {}
    for column, keys in sets.items():
        value: Any = functools.reduce(lambda node, key: node.get(key, {}), keys, scores)
        cells[column] = float(value) if isinstance(value, (int, float)) else None
    for mean, columns in means.items():
        numbers = [cells[column] for column in columns]
        values = [number for number in numbers if number is not None]
        cells[mean] = sum(values) / len(values) if len(values) == len(numbers) else None
    return cells


def paper_tables(words: Iterable[str], by_model: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The published tables of the paper suites among `words`, our models' rows after the published ones.

    `by_model` maps a model's label to its results by set name. A cell without data is None.
    """
    out = []
    for file, title, suites, sets, means, note in TABLES:
        if {"paper", *suites}.isdisjoint(words):
            continue
        source, (_, *columns), published = read_published(file)
        ours = {label: _cells(scores, sets, means) for label, scores in by_model.items()}
        if len(columns) > MANY:
            columns = [c for c in columns if any(cells.get(c) is not None for cells in ours.values())]
        rows: list[dict[str, Any]] = []
        for row in published:
            values = {c: float(row[c]) if row[c].strip() else None for c in columns}
            rows.append({"system": row["system"], "published": True, "values": values})
        for label, cells in ours.items():
            rows.append({"system": label, "published": False, "values": {c: cells.get(c) for c in columns}})
        table = {"title": title, "source": source, "columns": columns, "rows": rows}
        out.append(table | ({"note": note} if note else {}))
    return out
