"""The embedded quickstart corpus: parallel sentences, graded pairs, and texts for golden vectors."""

from __future__ import annotations

from msdc.files import PACKAGE
from msdc.text.text_files import iterate_lines

FOLDER = PACKAGE / "data" / "quickstart"
PARALLEL = FOLDER / "parallel.tsv"
GRADED_PAIRS = FOLDER / "graded_pairs.tsv"
GOLDEN_TEXTS = FOLDER / "golden_texts.txt"
UNRELATED = 32


def parallel_table() -> tuple[list[str], list[list[str]]]:
    """(language codes, rows): each row is one sentence in every language, in the order of the codes."""
    codes, *rows = [line.split("\t") for _, line in iterate_lines(PARALLEL)]
    return codes, rows


def unrelated_sentences() -> list[list[str]]:
    """By language 32 sentences on different subjects, by which the cosines of a model are scaled."""
    codes, rows = parallel_table()
    step = len(rows) // UNRELATED
    return [[row[number] for row in rows[: step * UNRELATED : step]] for number in range(len(codes))]


def golden_lines() -> list[str]:
    """Texts in many scripts, one per line of the file."""
    return [line for _, line in iterate_lines(GOLDEN_TEXTS) if line.strip()]
