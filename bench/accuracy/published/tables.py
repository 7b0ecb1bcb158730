"""Result tables of the papers, with our rows after the published ones.

The numbers are in the `*.csv` files of this folder; the first line of each is its source.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msdc.errors import MsdcError

FOLDER = Path(__file__).resolve().parent
MSD = ("ar-ar", "es-es", "en-en"), ("en-ar", "en-de", "en-tr", "en-es", "en-fr", "en-it", "en-nl")
# LXS names a direction by first letters: e2f trains on (or queries in) English and tests on (or searches) French
LXS = {"e2f": ("en", "fr"), "f2e": ("fr", "en"), "e2d": ("en", "de"), "d2e": ("de", "en"), "e2s": ("en", "es")}
LXS |= {"s2e": ("es", "en"), "e2i": ("en", "it"), "i2e": ("it", "en")}
DCSE = {"STS12": "sts12", "STS13": "sts13", "STS14": "sts14", "STS15": "sts15", "STS16": "sts16"}
DCSE |= {"STS-B": "stsb", "SICK-R": "sickr"}

Scores = dict[str, dict[str, Any]]
Cells = dict[str, float | None]


def read_published(name: str) -> tuple[str, list[str], list[dict[str, str]]]:
    """(source, columns, rows) of one published table.

    Raises:
        MsdcError: the installation lacks the file.
    """
    path = FOLDER / f"{name}.csv"
    if not path.is_file():
        raise MsdcError(f"{path}: the published table is missing from this installation")
    first, *lines = path.read_text(encoding="utf-8").splitlines()
    reader = csv.DictReader(lines)
    return first.removeprefix("#").strip(), list(reader.fieldnames or []), list(reader)


def _mean(cells: Cells, columns: tuple[str, ...]) -> float | None:
    """Mean over the columns; None unless all are present, since a mean over fewer is another number."""
    values = [cells.get(column) for column in columns]
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if len(numbers) == len(columns) else None


def _value(scores: Scores, name: str, key: str) -> float | None:
    value = scores.get(name, {}).get(key)
    return None if value is None else float(value)


def _msd(scores: Scores) -> Cells:
    cells = {pair: _value(scores, f"sts17/{pair}", "spearman") for group in MSD for pair in group}
    return cells | {"mono_avg": _mean(cells, MSD[0]), "cross_avg": _mean(cells, MSD[1])}


def _bucc(scores: Scores) -> Cells:
    pairs = ("de-en", "fr-en", "ru-en", "zh-en")
    cells = {pair: _value(scores, f"bucc/{pair}", "f1") for pair in pairs}
    return cells | {"avg": _mean(cells, pairs)}


def _bias(scores: Scores) -> Cells:
    return {key: _value(scores, "bias/sts17", key) for key in ("mean", "joint", "bias")}


def _dcse(scores: Scores) -> Cells:
    cells = {column: _value(scores, name, "spearman") for column, name in DCSE.items()}
    return cells | {"avg": _mean(cells, tuple(DCSE))}


def _mldoc(scores: Scores) -> Cells:
    cells: Cells = {}
    for column, (source, target) in LXS.items():
        tested = scores.get(f"mldoc/{source}", {}).get("languages", {}).get(target, {})
        cells[column] = float(tested["mean_of_runs"]) if "mean_of_runs" in tested else None
    return cells | {"avg": _mean(cells, tuple(LXS))}


def _xsr(scores: Scores) -> Cells:
    cells = {column: _value(scores, f"xsr/{a}-{b}", "p_at_1") for column, (a, b) in LXS.items()}
    return cells | {"avg": _mean(cells, tuple(LXS))}


def _lxs_ablations(scores: Scores) -> Cells:
    mldoc, xsr = _mldoc(scores), _xsr(scores)
    both = [("mldoc", mldoc), ("xsr", xsr)]
    return {f"{name} {column}": cells[column] for name, cells in both for column in ("e2f", "f2e", "e2s", "s2e")}


@dataclass(frozen=True)
class TableSpec:
    """One published table, and the function that fills its columns with our results."""

    file: str
    title: str
    suites: tuple[str, ...]
    fill: Callable[[Scores], Cells]
    note: str = ""


XSR_NOTE = "ours: FLORES queries among sentences of the data folder, not the paper's Europarl and Wikipedia pools"
TABLES = (
    TableSpec("msd_sts2017", "STS2017 and its extension (MSD)", ("paper-msd", "paper-mkd"), _msd),
    TableSpec("msd_ablations", "Ablations on STS2017 (MSD)", ("paper-msd",), _msd),
    TableSpec(
        "mkd_bucc",
        "BUCC bitext mining, F1 (MKD)",
        ("paper-mkd",),
        _bucc,
        "ours: training split where test gold is absent",
    ),
    TableSpec(
        "mkd_bias", "Language bias (MKD)", ("paper-mkd",), _bias, "ours: the sets of STS2017 found in the data folder"
    ),
    TableSpec(
        "dcse_sts", "STS12-16, STS-B, SICK-R (DistilCSE)", ("paper-dcse",), _dcse, "all pairs of a year in one list"
    ),
    TableSpec("lxs_mldoc", "MLDoc, zero-shot accuracy (LXS)", ("paper-lxs",), _mldoc, "ours: mean of five runs"),
    TableSpec("lxs_xsr", "XSR, P@1 (LXS)", ("paper-lxs",), _xsr, XSR_NOTE),
    TableSpec("lxs_ablations", "Ablations on MLDoc and XSR (LXS)", ("paper-lxs",), _lxs_ablations, XSR_NOTE),
)


def _number(text: str) -> float | None:
    return float(text) if text.strip() else None


def tables(words: tuple[str, ...], by_model: dict[str, Scores]) -> list[dict[str, Any]]:
    """The published tables of the paper suites among `words`, our models' rows after the published ones.

    `by_model` maps a model's label to its results by set name. A cell without data is None; so is a mean over
    columns of which one is missing.
    """
    wanted = set(words)
    if "paper" in wanted:
        wanted |= {suite for one in TABLES for suite in one.suites}
    out = []
    for one in TABLES:
        if not wanted & set(one.suites):
            continue
        source, columns, published = read_published(one.file)
        rows = [
            {"system": row["system"], "published": True, "values": {c: _number(row[c]) for c in columns[1:]}}
            for row in published
        ]
        for label, scores in by_model.items():
            cells = one.fill(scores)
            rows.append({"system": label, "published": False, "values": {c: cells.get(c) for c in columns[1:]}})
        table = {"title": one.title, "source": source, "columns": columns[1:], "rows": rows}
        out.append(table | ({"note": one.note} if one.note else {}))
    return out
