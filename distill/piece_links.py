"""How the pieces of a new vocabulary are linked with the wordpieces of a teacher: counted in text, told by spelling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import sparse

from msdc.compress.student.from_transformers import to_student
from msdc.compress.vocabulary.sentencepiece import SPACE
from msdc.compress.vocabulary.tokenizer_json import open_vocabulary
from msdc.distill.data.sources import Row
from msdc.distill.vocabulary_transfer import align, association, cooccurrence, of_one_kind, strongest, with_spelling
from msdc.encoders.encoder import Encoder
from msdc.text.tokenizer import PieceTokenizer, Tokenizer


def link_strengths(
    teacher: Encoder, tokenizer: PieceTokenizer, rows: Sequence[Row], how: str, max_length: int
) -> tuple[sparse.csr_matrix, np.ndarray]:
    """How strongly pieces and the teacher's wordpieces are linked in `rows` [P, W], and how often pieces occur [P].

    `how` is alignment or cooccurrence (msdc.distill.vocabulary_transfer). An English sentence is its own translation.
    """
    english = sorted({row.source for row in rows})
    new_texts = [row.target for row in rows if row.target] + english
    old_texts = [row.source for row in rows if row.target] + english
    unique = {text: ids[1:-1] for text, ids in zip(english, teacher.tokenizer.encode(english, max_length), strict=True)}
    new_rows = [ids[1:-1] for ids in tokenizer.encode(new_texts, max_length)]
    old_rows = [unique[text] for text in old_texts]
    wordpieces = to_student(teacher).config.vocabulary
    if how == "alignment":
        score = align(new_rows, old_rows, tokenizer.size, wordpieces)
    else:
        score = association(*cooccurrence(new_rows, old_rows, tokenizer.size, wordpieces))
    used = np.concatenate([np.asarray(ids, dtype=np.int64) for ids in new_rows])
    frequency_P = 1.0 + np.bincount(used, minlength=tokenizer.size)
    new_texts_of, old_texts_of = row_texts(tokenizer), row_texts(teacher.tokenizer)
    score = of_one_kind(score, [new_texts_of.get(row) for row in range(tokenizer.size)],
                        [old_texts_of.get(row) for row in range(wordpieces)])  # fmt: skip
    return with_spelling(strongest(score), frequency_P - 1.0, _spelled(teacher, tokenizer, old_texts_of)), frequency_P


def row_texts(tokenizer: Tokenizer) -> dict[int, str]:
    """Text of every table row that stands for text, without marks of word boundaries."""
    return {piece.row: piece.text for piece in open_vocabulary(tokenizer).pieces if piece.text}


def own_words(encoder: Encoder) -> list[str]:
    """Texts that the encoder reads by one row."""
    texts = row_texts(encoder.tokenizer)
    read = encoder.tokenizer.encode(list(texts.values()), 8)
    return [text for (row, text), ids in zip(texts.items(), read, strict=True) if ids[1:-1] == [row]]


def _spelled(teacher: Encoder, tokenizer: PieceTokenizer, known: Mapping[int, str]) -> dict[int, list[int]]:
    """The teacher's wordpieces (of `known`) of every piece that starts a word."""
    name = tokenizer.processor.id_to_piece
    starts = [piece for piece in range(tokenizer.size) if name(piece).startswith(SPACE) and name(piece) != SPACE]
    read = teacher.tokenizer.encode([name(piece)[1:] for piece in starts], 32)
    found = {piece: [row for row in ids[1:-1] if row in known] for piece, ids in zip(starts, read, strict=True)}
    return {piece: row for piece, row in found.items() if row}
