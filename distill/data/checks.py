"""What is probably wrong with the text of a run, found before it is trained: each as one line with its count.

Text in another language than its column says, text that a vocabulary does not know, copies of rows, and sentences of
development and report sets inside the training text. `sampled` reads some rows for the checks that need few.

Shapes: G character n-grams, L languages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import numpy as np

from msdc.compress.vocabulary.trim import LANGUAGES, Alphabet
from msdc.distill.data import Row
from msdc.distill.data.tables import SourceTable
from msdc.distill.data.text import Order, StageText
from msdc.distill.recipe import Stage
from msdc.errors import InputError
from msdc.text.quickstart import parallel_table
from msdc.text.scored_pairs import ScoredPairs
from msdc.text.tokenizer import Tokenizer, unknown_id

SAMPLED = 500  # rows of a part that are read for a check
LEAST_TEXTS = 20  # fewer say nothing about a language
MOST = 0.8  # of the texts: they are all in another language
MOSTLY_UNKNOWN = 0.25  # of the ids of a text: a model cannot read it
SOME_UNKNOWN = 0.01  # of the texts have a character that is unknown
MANY_PASSES = 30  # over a table, in a stage
COPIES = 2.0  # rows per distinct row
LEAST_GRAMS = 8  # of a text: fewer say nothing
SUFFICIENT = 1.0  # nats by which a text must be likelier in another language, per 10 characters


def sampled(table: SourceTable) -> list[Row]:
    """Up to SAMPLED rows, evenly spread over a table."""
    return table.read(np.unique(np.linspace(0, table.rows - 1, min(SAMPLED, table.rows)).astype(np.int64)))


def texts_by_language(rows: Sequence[Row], source: str) -> dict[str, list[str]]:
    """The distinct texts of rows by the language that their column has; `source` is that of the source side."""
    texts_of: dict[str, dict[str, None]] = {}
    for row in rows:
        texts_of.setdefault(source, {})[row.source] = None
        for text in (row.target, *row.negatives):
            if text:
                texts_of.setdefault(row.language, {})[text] = None
    return {code: list(texts) for code, texts in texts_of.items()}


# --- languages --------------------------------------------------------------------------------------------------------


def _grams(text: str) -> Iterator[str]:
    padded = f" {text.lower()} "
    return (padded[start : start + 3] for start in range(len(padded) - 2))


@cache
def _profiles() -> tuple[dict[str, int], np.ndarray, list[str]]:
    """Numbers of trigrams, their log probabilities [G + 1, L] in the languages of the embedded corpus, its languages.

    The last row is that of a trigram which no language has. Source: Dunning 1994, with one added to each count.
    """
    codes, rows = parallel_table()
    counts = [Counter(gram for row in rows for gram in _grams(row[column])) for column in range(len(codes))]
    number = {gram: position for position, gram in enumerate(sorted(set().union(*counts)))}
    values_GL = np.ones((len(number) + 1, len(codes)))
    for column, count in enumerate(counts):
        values_GL[[number[gram] for gram in count], column] += list(count.values())
    return number, np.log(values_GL / values_GL.sum(0)), codes


def likely_language(text: str, expected: str) -> str:
    """The language of a text: another one of the embedded corpus if it is clearly likelier, else `expected`."""
    number, log_GL, codes = _profiles()
    grams = [number.get(gram, -1) for gram in _grams(text)]
    if expected not in codes or len(grams) < LEAST_GRAMS:
        return expected
    score_L = log_GL[grams].sum(0)
    best = int(score_L.argmax())
    clear = score_L[best] - score_L[codes.index(expected)] > SUFFICIENT * max(1.0, len(grams) / 10)
    return codes[best] if clear else expected


def language_warnings(name: str, texts: dict[str, list[str]]) -> list[str]:
    """Texts in another language than that of their column: by their letters, or by their trigrams."""
    warnings = []
    for code, side in texts.items():
        base = code.split("_")[0].split("-")[0].lower()
        words = [text for text in side if sum(map(str.isalpha, text)) >= 3]
        if len(words) < LEAST_TEXTS:
            continue
        if base in LANGUAGES:
            alphabet = Alphabet([base])
            foreign = sum(
                sum(not alphabet.writes(letter) for letter in text if letter.isalpha())
                > sum(map(str.isalpha, text)) / 2
                for text in words
            )
            if foreign > (1 - MOST) * len(words):
                warnings.append(
                    f"{name}: {foreign:,} of {len(words):,} texts read as {code} are not written in its letters: check "
                    "`columns`, `source` and `languages`"
                )
                continue
        guesses = Counter(likely_language(text, base) for text in words)
        (guess, count), *_ = guesses.most_common()
        if guess != base and count >= MOST * len(words):
            warnings.append(
                f"{name}: {count:,} of {len(words):,} texts read as {code} look like {guess}: check `columns`, "
                "`source` and `languages`"
            )
    return warnings


# --- vocabularies -----------------------------------------------------------------------------------------------------


def vocabulary_warnings(
    name: str, texts: dict[str, list[str]], tokenizer: Tokenizer, model: str, refuse: bool = True
) -> list[str]:
    """Texts with characters that the vocabulary of a model does not know.

    Raises:
        InputError: with `refuse`, most texts of a language are mostly unknown.
    """
    if (unknown := unknown_id(tokenizer)) is None:
        return []
    warnings = []
    for code, side in texts.items():
        rows = tokenizer.encode(side, 512)
        # Special ids at both ends say nothing.
        mostly = sum(row.count(unknown) >= MOSTLY_UNKNOWN * max(1, len(row) - 2) for row in rows)
        any_unknown = sum(unknown in row for row in rows)
        if mostly > 0.5 * len(side) and len(side) >= LEAST_TEXTS // 2:
            line = (
                f"{name}: the vocabulary of {model} cannot read {code}: {mostly:,} of {len(side):,} texts are mostly "
                f"unknown to it. Give it tokens of {code} (`msdc distill new-language`), or leave the text out"
            )
            if refuse:
                raise InputError(line)
            warnings.append(line)
        elif any_unknown > SOME_UNKNOWN * len(side):
            warnings.append(
                f"{name}: {any_unknown:,} of {len(side):,} texts in {code} have characters that are unknown to the "
                f"vocabulary of {model}"
            )
    return warnings


# --- copies and overlaps ----------------------------------------------------------------------------------------------


def copies(table: SourceTable) -> float:
    """How often a row occurs in its table on average, from those of one in 64 texts (of a small table, from all)."""
    keys = table.keys.view(np.uint64)
    hashes = keys[:, 0].copy()
    for side in range(1, table.sides):
        hashes = hashes * np.uint64(0x9E3779B97F4A7C15) + keys[:, side]
    sampled = hashes if table.rows < 100_000 else hashes[hashes % np.uint64(64) == 0]
    return len(sampled) / max(1, len(np.unique(sampled)))


def copies_warnings(tables: Sequence[SourceTable]) -> list[str]:
    """Tables that are read twice, and those whose rows are mostly copies of each other."""
    number = Counter((table.key, table.about["name"]) for table in tables)
    return [
        f"{name}: {count} corpora read it: its rows count {count} times"
        for (_, name), count in number.items()
        if count > 1
    ] + [
        f"{table.about['name']} [{table.source.language}]: each row occurs {count:.0f} times on average: repeated rows "
        "count as much as new ones"
        for table in tables
        if (count := copies(table)) >= COPIES
    ]


def untrained_parts(stage: Stage, text: StageText) -> list[str]:
    """Tables of which no row is trained, and a batch that is larger than the text."""
    warnings = [
        f"stage {stage.name}: none of the {table.rows:,} rows of {table.about['name']} [{table.source.language}] is "
        "trained: they are held out, or `sample` leaves none"
        for table, rows in zip(text.tables, text.training_rows, strict=True) if not len(rows)
    ]  # fmt: skip
    rows = sum(map(len, text.training_rows))
    if stage.batch_tokens is None and stage.batch > rows:
        warnings.append(f"stage {stage.name}: batch is {stage.batch:,}, the text has {rows:,} rows: no batch is larger")
    return warnings


def repeated(stage: Stage, order: Order, names: Sequence[str], languages: Sequence[str], steps: int) -> list[str]:
    """Tables that a stage of `steps` reads many times: by its balance, or because they are small."""
    if stage.batch_tokens is not None:
        return []
    epochs = steps * min(stage.batch, order.epoch_rows) / max(1, order.epoch_rows)
    often = MANY_PASSES if stage.steps is not None else max(MANY_PASSES, 5 * stage.epochs)
    passes_N = np.where(order.rows > 0, epochs * order.blocks / np.maximum(order.blocks_per_table, 1), 0.0)
    tables = np.flatnonzero(passes_N >= often)
    if not len(tables):
        return []
    most = tables[passes_N[tables].argmax()]
    others = f", and {len(tables) - 1} other parts {MANY_PASSES} times or more" if len(tables) > 1 else ""
    return [
        f"stage {stage.name}: the {order.rows[most]:,} rows of {names[most]} [{languages[most]}] are read "
        f"{passes_N[most]:.0f} times{others} (balance: {stage.balance})"
    ]


def overlap_warning(pairs: ScoredPairs, use: str, texts: set[str], training: str = "the training text") -> list[str]:
    """Pairs of a graded set of which a sentence is among `texts`, the lower-cased training texts."""
    sides = zip(pairs.first, pairs.second, strict=True)
    inside = [sum(text.lower().strip() in texts for text in pair) for pair in sides]
    count, both = sum(map(bool, inside)), sum(number == 2 for number in inside)
    if not count:
        return []
    return [
        f"{use} {pairs.name}: {count:,} of its {len(pairs):,} pairs have a sentence in {training} ({both:,} have "
        "both): its score is not one of unseen text; `exclude` removes them from training"
    ]


def overlap_warnings(pairs: ScoredPairs, use: str, tables: Iterable[SourceTable]) -> list[str]:
    """The same for the rows of tables."""
    graded_texts = {text.lower().strip() for text in pairs.texts()}
    inside: set[str] = set()
    for table in tables:
        for row in table.read(table.rows_with(graded_texts)):
            inside.update(text.lower() for text in (row.source, row.target, *row.negatives))
    return overlap_warning(pairs, use, inside & graded_texts)
