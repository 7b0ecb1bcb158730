"""Published figures of other systems, shown only where asked for, each with its source."""

from __future__ import annotations

import csv
from pathlib import Path

from msdc.bench.report.blocks import Column, Section, Table

FILE = Path(__file__).resolve().parent.parent / "peers.csv"


def section(asked: bool) -> Section | None:
    """The table of `peers.csv`."""
    if not asked:
        return None
    lines = [line for line in FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    reader = csv.DictReader(lines)
    names = list(reader.fieldnames or [])
    rows = tuple(tuple(row[name] or "–" for name in names) for row in reader)
    titles = {"system": "System", "embedding_M": "Embedding", "encoder_M": "Encoder", "source": "Source"}
    columns = tuple(
        Column(
            titles.get(name, name),
            "million" if name.endswith("_M") else "",
            "left" if name in ("system", "source") else "right",
        )
        for name in names
    )
    note = "Not measured here: printed in the papers named, for float models. Parameters as the papers count them."
    table = Table("Published: Spearman × 100 on STS2017", columns, rows, note)
    return Section("peers", "Published peers", "Figures from the literature, for scale.", (), (table,))
