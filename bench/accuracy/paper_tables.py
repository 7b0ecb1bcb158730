"""Result tables of the papers, with our rows after the published ones.

The numbers are in the `*.csv` files of the folder `published`; the first line of each is its source.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "published"
# LXS names a direction by first letters: e2f trains on (or queries in) English and tests on (or searches) French
LXS = {
    "e2f": ("en", "fr"), "f2e": ("fr", "en"), "e2d": ("en", "de"), "d2e": ("de", "en"), "e2s": ("en", "es"),
    "s2e": ("es", "en"), "e2i": ("en", "it"), "i2e": ("it", "en"),
}  # fmt: skip

Scores = dict[str, dict[str, Any]]  # results of one model by set name
Cells = dict[str, float | None]


def read_published(name: str) -> tuple[str, list[str], list[dict[str, str]]]:
    """(source, columns, rows) of one published table."""
    first, *lines = (FOLDER / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    reader = csv.DictReader(lines)
    return first.removeprefix("#").strip(), list(reader.fieldnames or []), list(reader)


def _cells(scores: Scores, key: str, sets: dict[str, str], **means: Sequence[str]) -> Cells:
    """The score `key` of a set per column, and means over columns.

    A mean is None unless all its columns are present, since a mean over fewer is another number.
    """
    cells: Cells = {}
    for column, name in sets.items():
        value = scores.get(name, {}).get(key)
        cells[column] = None if value is None else float(value)
    for mean, columns in means.items():
        numbers = [value for column in columns if (value := cells[column]) is not None]
        cells[mean] = sum(numbers) / len(numbers) if len(numbers) == len(columns) else None
    return cells


def _msd(scores: Scores) -> Cells:
    mono = ("ar-ar", "es-es", "en-en")
    cross = ("en-ar", "en-de", "en-tr", "en-es", "en-fr", "en-it", "en-nl")
    sets = {pair: f"sts17/{pair}" for pair in mono + cross}
    return _cells(scores, "spearman", sets, mono_avg=mono, cross_avg=cross)


def _bucc(scores: Scores) -> Cells:
    sets = {pair: f"bucc/{pair}" for pair in ("de-en", "fr-en", "ru-en", "zh-en")}
    return _cells(scores, "f1", sets, avg=list(sets))


def _bias(scores: Scores) -> Cells:
    return {key: _cells(scores, key, {key: "bias/sts17"})[key] for key in ("mean", "joint", "bias")}


def _dcse(scores: Scores) -> Cells:
    sets = {f"STS{year}": f"sts{year}" for year in range(12, 17)} | {"STS-B": "stsb", "SICK-R": "sickr"}
    return _cells(scores, "spearman", sets, avg=list(sets))


def _mldoc(scores: Scores) -> Cells:
    by_target = {
        f"{source}-{target}": found
        for source in ("en", "fr", "de", "es", "it")
        for target, found in scores.get(f"mldoc/{source}", {}).get("languages", {}).items()
    }
    return _cells(by_target, "mean_of_runs", {column: f"{a}-{b}" for column, (a, b) in LXS.items()}, avg=list(LXS))


def _xsr(scores: Scores) -> Cells:
    return _cells(scores, "p_at_1", {column: f"xsr/{a}-{b}" for column, (a, b) in LXS.items()}, avg=list(LXS))


def _lxs_ablations(scores: Scores) -> Cells:
    both = {"mldoc": _mldoc(scores), "xsr": _xsr(scores)}
    return {f"{name} {way}": cells[way] for name, cells in both.items() for way in ("e2f", "f2e", "e2s", "s2e")}


# file, title, suites, the function that fills the columns with our results, note
XSR_NOTE = "ours: FLORES queries among sentences of the data folder, not the paper's Europarl and Wikipedia pools"
TABLES: tuple[tuple[str, str, set[str], Callable[[Scores], Cells], str], ...] = (
    ("msd_sts2017", "STS2017 and its extension (MSD)", {"paper-msd", "paper-mkd"}, _msd, ""),
    ("msd_ablations", "Ablations on STS2017 (MSD)", {"paper-msd"}, _msd, ""),
    (
        "mkd_bucc",
        "BUCC bitext mining, F1 (MKD)",
        {"paper-mkd"},
        _bucc,
        "ours: training split where test gold is absent",
    ),
    ("mkd_bias", "Language bias (MKD)", {"paper-mkd"}, _bias, "ours: the sets of STS2017 found in the data folder"),
    ("dcse_sts", "STS12-16, STS-B, SICK-R (DistilCSE)", {"paper-dcse"}, _dcse, "all pairs of a year in one list"),
    ("lxs_mldoc", "MLDoc, zero-shot accuracy (LXS)", {"paper-lxs"}, _mldoc, "ours: mean of five runs"),
    ("lxs_xsr", "XSR, P@1 (LXS)", {"paper-lxs"}, _xsr, XSR_NOTE),
    ("lxs_ablations", "Ablations on MLDoc and XSR (LXS)", {"paper-lxs"}, _lxs_ablations, XSR_NOTE),
)


def paper_tables(words: Iterable[str], by_model: dict[str, Scores]) -> list[dict[str, Any]]:
    """The published tables of the paper suites among `words`, our models' rows after the published ones.

    `by_model` maps a model's label to its results by set name. A cell without data is None; so is a mean over
    columns of which one is missing.
    """
    wanted = set(words)
    out = []
    for file, title, suites, fill, note in TABLES:
        if not wanted & {"paper", *suites}:
            continue
        source, (_, *columns), published = read_published(file)
        rows: list[dict[str, Any]] = []
        for row in published:
            values = {c: float(row[c]) if row[c].strip() else None for c in columns}
            rows.append({"system": row["system"], "published": True, "values": values})
        for label, scores in by_model.items():
            cells = fill(scores)
            rows.append({"system": label, "published": False, "values": {c: cells.get(c) for c in columns}})
        table = {"title": title, "source": source, "columns": columns, "rows": rows}
        out.append(table | ({"note": note} if note else {}))
    return out
