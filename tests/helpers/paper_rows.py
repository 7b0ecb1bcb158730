"""Rows of the papers' tables that tests compare with, from the tables that ship in bench/accuracy/published."""

import csv
import re
from dataclasses import dataclass

from msdc.files import PACKAGE

PUBLISHED = PACKAGE / "bench" / "accuracy" / "published"


def read_table(name: str) -> list[dict[str, str]]:
    """The rows of a published table by column."""
    with open(PUBLISHED / name, encoding="utf-8") as handle:
        return list(csv.DictReader(line for line in handle if not line.startswith("#")))


@dataclass(frozen=True)
class MsdStudent:
    """A student of Ding et al. 2022: its shape, sizes in millions of parameters, Spearman x 100."""

    base: str
    bottleneck: int | None
    unit: int
    row: dict[str, str]


def msd_students() -> list[MsdStudent]:
    """The ten students of tables 1, 2, 7 and 8."""
    students = []
    for row in read_table("msd_sts2017.csv"):
        match = re.match(r"MSD (XLM-R|MiniLM), (?:B (\d+)|no bottleneck), unit (\d+)", row["system"])
        if match:
            students.append(MsdStudent(match[1], int(match[2]) if match[2] else None, int(match[3]), row))
    return students
