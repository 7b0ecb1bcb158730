"""A new language in an existing student: its tokens, their rows, and what it cost the languages that it had.

Shapes: P new tokens, W old ones, E width of a row, N texts, D sentence width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from msdc.compress.loading import load_torch_encoder
from msdc.compress.student.stock import to_student
from msdc.compress.vocabulary.comparison import read_languages
from msdc.compress.vocabulary.extend import Extension, extend, token_rows, train_tokens
from msdc.distill import vocabulary_transfer as transfer
from msdc.distill.data import Row
from msdc.distill.data.text import StageText
from msdc.distill.recipe import AddedVocabulary, NamedModel, Recipe, StagePlan
from msdc.encoders.encoder import Encoder
from msdc.errors import InputError
from msdc.progress import say
from msdc.scores import cosine_rows
from msdc.text.answers import nearest_accuracy
from msdc.text.quickstart import parallel_table
from msdc.text.tokenizer import PieceTokenizer

EMBEDDED, HELD_OUT = "embedded corpus", "held-out pairs"


def add_language(encoder: Encoder, settings: AddedVocabulary, text: StageText, folder: Path) -> Extension:
    """The student with tokens trained on the targets of `text`; its tokenizer is written to `folder`.

    A row is the mean of the student's own rows, weighted by how strongly the new token is aligned with them in the
    parallel text (`align_tokens`), so that a word starts near its translation.

    Raises:
        InputError: the student has no SentencePiece unigram vocabulary, or the text has no pairs.
    """
    student = to_student(encoder)
    if not isinstance(encoder.tokenizer, PieceTokenizer):
        raise InputError(f"{encoder.name}: student.vocabulary needs a SentencePiece unigram vocabulary")
    rows = [row for row in text.sample_rows(settings.sentences_per_language) if row.target]
    if not rows:
        raise InputError("student.vocabulary: the corpora have no pairs to train tokens and align words on")
    folder.mkdir(parents=True, exist_ok=True)
    say(f"vocabulary: training {settings.add:,} new tokens on {len(rows):,} pairs")
    targets = [row.target for row in rows]
    vocabulary, tokens = train_tokens(encoder.tokenizer, targets, settings.add, student.config.vocabulary, folder)
    file, ids, _ = vocabulary.write(range(len(vocabulary.tokens)), folder, tokens)
    tokenizer = PieceTokenizer(file)
    before, after = (
        sum(map(len, reader.encode(targets, 512))) / len(targets) for reader in (encoder.tokenizer, tokenizer)
    )
    say(f"vocabulary: {len(tokens):,} new tokens; {before:.1f} > {after:.1f} tokens per sentence; aligning words")
    weights, _ = transfer.align_tokens(encoder, tokenizer, rows, "alignment", student.config.positions)
    new = [index for index, row in enumerate(ids) if row >= student.config.vocabulary]
    rows_NE = transfer.transplant_rows(transfer.strongest(weights[new]), token_rows(student))
    return extend(encoder, student, vocabulary, tokens, rows_NE, folder)


def compare_languages(
    before: Encoder, after: Encoder, heldout: Mapping[str, Sequence[Row]]
) -> list[dict[str, str | int | float]]:
    """What a student was and is, by language: on held-out pairs, and on the embedded corpus in languages it read.

    Accuracies are how often a text finds its English pair and the reverse (x 100); `cosine` is that of the vectors of
    the texts before and after.
    """
    header, table = parallel_table()
    sides = dict(zip(header, map(list, zip(*table, strict=True)), strict=True))
    read = read_languages(before)
    texts = [(HELD_OUT, code, [row.source for row in rows], [row.target for row in rows])
             for code, rows in sorted(heldout.items())]  # fmt: skip
    texts += [(EMBEDDED, code, sides[header[0]], sides[code]) for code in read]
    rows_by_language: list[dict[str, str | int | float]] = []
    for name, code, sources, targets in texts:
        vectors = [(model.encode(sources), model.encode(targets)) for model in (before, after)]
        accuracies = [float(np.mean(nearest_accuracy(*pair, sources, targets))) for pair in vectors]
        rows_by_language.append({
            "texts": name, "language": code, "pairs": len(targets), "accuracy_before": round(accuracies[0], 2),
            "accuracy_after": round(accuracies[1], 2),
            "cosine": round(float(cosine_rows(vectors[0][1], vectors[1][1]).mean()), 4),
        })  # fmt: skip
    return rows_by_language


def comparison_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The comparison as a Markdown table."""
    lines = ["| texts | language | pairs | nearest translation found before, % | after, % | cosine of the vectors |",
             "|---|---|---|---|---|---|"]  # fmt: skip
    return lines + [
        f"| {row['texts']} | {row['language']} | {row['pairs']} | {row['accuracy_before']:.1f} | "
        f"{row['accuracy_after']:.1f} | {row['cosine']:.3f} |" for row in rows
    ]  # fmt: skip


def comparison_section(rows: Sequence[Mapping[str, Any]]) -> str:
    """The section of a model card with the comparison; empty without one."""
    if not rows:
        return ""
    note = "The student before a language was added, and after. Held-out pairs chose the weights: no test set."
    return "\n".join(["", "## Languages before and after", "", *comparison_table(rows), "", note, ""])


def compare_run(
    recipe: Recipe, encoder: Encoder, text: Callable[[StagePlan], StageText]
) -> list[dict[str, str | int | float]]:
    """`compare_languages` for a finished run that added a language, also in the log; empty for any other run."""
    if not isinstance(recipe.student, NamedModel) or recipe.student.vocabulary is None:
        return []
    student = recipe.student
    before = load_torch_encoder(student.model, pooling=student.pooling, head=student.head, head_seed=recipe.seed)
    heldout = text(recipe.plans[-1]).heldout_rows()
    pairs = {code: [row for row in rows if row.target] for code, rows in heldout.items()}
    comparison = compare_languages(before, encoder, {code: rows for code, rows in pairs.items() if rows})
    say("\n".join(["languages before and after:", *comparison_table(comparison)]))
    return comparison
