"""A new vocabulary for the teacher, with rows computed from the teacher's rows: no multilingual pretraining is needed.

Every row of the new table is a mean of the English teacher's rows, weighted by how strongly the new token and each
English wordpiece are associated in parallel text. `association` counts (score c^2 / (c_p c_w)); `align` runs a few
rounds of IBM Model 1 (Brown et al. 1993) in both directions from those counts, which gives a word the rows of its
translation instead of those of its neighbours.

Shapes: P new tokens, W teacher wordpieces, H hidden; counts are sparse P x W.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from msdc.compress.student.coded_table import CodedRows, prune
from msdc.compress.student.stock import to_student
from msdc.compress.vocabulary.tokens import SPACE, open_vocabulary
from msdc.distill.data import Row
from msdc.encoders.encoder import Encoder
from msdc.errors import InputError
from msdc.text.tokenizer import PieceTokenizer, Tokenizer

ROUNDS = 4  # of IBM Model 1
CHUNK = 20_000  # sentence pairs whose candidates are listed at once
FAINT = 0.02  # of the best association of a word: weaker pairs are ignored
NULL = 0.02 * 1e-3  # a floor of all associations, which allows a word to stay unaligned
SPELLING = 0.5  # weight of a token's own spelling, in sentences
SPELLING_INSIDE = 5.0  # the same for a token inside words, which is mostly part of names
TWIN = 5.0  # the same for the weights of the word that a token inside words is at the start of a word
LAST_LATIN = "\u024f"  # the teacher has at best letters of other scripts
CANDIDATES = 8  # rows per new row: more blur it, fewer are too few for rare tokens


def _occurrence(rows: Sequence[Sequence[int]], width: int) -> sparse.csr_matrix:
    """Binary sentence x id matrix."""
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=indptr[-1])
    matrix = sparse.csr_matrix((np.ones(len(indices), np.float32), indices, indptr), shape=(len(rows), width))
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


def association(new: sparse.csr_matrix, old: sparse.csr_matrix) -> sparse.csr_matrix:
    """Score c^2 / (c_p c_w) of every pair of ids that co-occurs, sparse P x W, from occurrences in N sentence pairs."""
    if new.shape[0] != old.shape[0] or not new.shape[0]:
        raise InputError(f"need two equal, non-empty lists of sentences, got {new.shape[0]} and {old.shape[0]}")
    counts = (new.T @ old).tocsr().tocoo()
    new_P, old_W = np.asarray(new.sum(0)).ravel(), np.asarray(old.sum(0)).ravel()
    data = counts.data**2 / (new_P[counts.row] * old_W[counts.col])
    return sparse.csr_matrix((data, (counts.row, counts.col)), shape=counts.shape)


class _Candidates:
    """The candidate alignments (sentence, token, wordpiece) of a chunk of text, as indices into a sparse table."""

    def __init__(self, new: sparse.csr_matrix, old: sparse.csr_matrix, keys: np.ndarray, wordpieces: int) -> None:
        new_lengths, old_lengths = np.diff(new.indptr), np.diff(old.indptr)
        sizes = new_lengths * old_lengths
        sentence = np.repeat(np.arange(len(sizes)), sizes)
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        new_slot = (new.indptr[sentence] + within // old_lengths[sentence]).astype(np.int32)
        old_slot = (old.indptr[sentence] + within % old_lengths[sentence]).astype(np.int32)
        pairs = new.indices[new_slot].astype(np.int64) * wordpieces + old.indices[old_slot]
        entry = np.minimum(np.searchsorted(keys, pairs), len(keys) - 1).astype(np.int32)
        matches = keys[entry] == pairs
        self.entry = entry[matches]
        self.slots = {False: (new_slot[matches], new.nnz), True: (old_slot[matches], old.nnz)}  # by_old

    def expected(self, table: np.ndarray, by_old: bool) -> np.ndarray:
        """Expected counts per table entry (one E step); the alignments of a slot compete."""
        weight = table[self.entry]
        slot, slots = self.slots[by_old]
        total = np.bincount(slot, weights=weight, minlength=slots)
        return np.bincount(self.entry, weights=weight / np.maximum(total[slot], 1e-30), minlength=len(table))


def _candidates(score: sparse.csr_matrix) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(token, wordpiece, association) of the candidates, sorted."""
    row = np.repeat(np.arange(score.shape[0], dtype=np.int32), np.diff(score.indptr))
    column = score.indices
    best_P, best_W = np.zeros(score.shape[0]), np.zeros(score.shape[1])
    np.maximum.at(best_P, row, score.data)
    np.maximum.at(best_W, column, score.data)
    strong = (score.data >= FAINT * best_P[row]) | (score.data >= FAINT * best_W[column])
    return row[strong], column[strong], score.data[strong].astype(np.float64)


def align(
    new_rows: Sequence[Sequence[int]], teacher_rows: Sequence[Sequence[int]], tokens: int, wordpieces: int
) -> sparse.csr_matrix:
    """Alignment strength P x W after ROUNDS of IBM Model 1 in both directions (their geometric mean).

    Most words that occur together do so by chance. Pairs whose association is below FAINT of the best of both words are
    ignored: nine of ten in a million sentences, which saves as much time and memory.
    """
    new, old = _occurrence(new_rows, tokens), _occurrence(teacher_rows, wordpieces)
    score = association(new, old)
    score.sort_indices()
    row, column, start = _candidates(score)
    keys = row.astype(np.int64) * wordpieces + column
    starts = range(0, new.shape[0], CHUNK)
    chunks = [
        _Candidates(new[chunk_start : chunk_start + CHUNK], old[chunk_start : chunk_start + CHUNK], keys, wordpieces)
        for chunk_start in starts
    ]

    def run(by_old: bool) -> np.ndarray:
        axis, size = (row, tokens) if by_old else (column, wordpieces)
        table = expected = start
        for _ in range(ROUNDS):
            expected = sum((chunk.expected(table + NULL, by_old) for chunk in chunks), np.zeros(len(table)))
            table = expected / np.maximum(np.bincount(axis, weights=expected, minlength=size)[axis], 1e-30)
        return expected

    # Alignments on which both directions agree, as a share of the token's occurrences.
    strength = np.sqrt(run(True) * run(False)) / np.maximum(np.asarray(new.sum(0)).ravel()[row], 1.0)
    return sparse.csr_matrix((strength, (row, column)), shape=score.shape)


def of_one_kind(
    score: sparse.csr_matrix, tokens: Sequence[str | None], wordpieces: Sequence[str | None]
) -> sparse.csr_matrix:
    """Only pairs of words, of numbers, or of marks: a word of every sentence must not be aligned with its full stop."""

    def kind(text: str | None) -> str:
        if not text:
            return "special"
        return "word" if any(map(str.isalpha, text)) else "number" if any(map(str.isdigit, text)) else "mark"

    kind_P, kind_W = np.array(list(map(kind, tokens))), np.array(list(map(kind, wordpieces)))
    pairs = score.tocoo()
    alike = kind_P[pairs.row] == kind_W[pairs.col]
    return sparse.csr_matrix((pairs.data[alike], (pairs.row[alike], pairs.col[alike])), shape=score.shape)


def with_spelling(
    weights: sparse.csr_matrix, seen_P: np.ndarray, spelled: Mapping[int, Sequence[int]], worth: float = SPELLING
) -> sparse.csr_matrix:
    """Weights of `strongest`, P x W, with the wordpieces of each token's own spelling (`spelled`) added.

    They count as if they had been aligned `worth` times; `seen_P` is how often each token occurs in the aligned text. A
    rare name gets the teacher's wordpieces of it, a frequent word those of its translations.
    """
    share_P = worth / (worth + seen_P)
    cells = [(token, wordpiece, share_P[token] / len(row)) for token, row in spelled.items() for wordpiece in row]
    rows, columns, data = (np.array(column) for column in zip(*cells, strict=True)) if cells else ([], [], [])
    spelled_weights = sparse.csr_matrix((data, (rows, columns)), shape=weights.shape)
    left_P = 1.0 - np.asarray(spelled_weights.sum(1)).ravel()
    return (sparse.diags(left_P) @ weights + spelled_weights).tocsr()


def with_twins(weights: sparse.csr_matrix, seen_P: np.ndarray, twins: Mapping[int, int]) -> sparse.csr_matrix:
    """Weights of `strongest`, P x W, with those of each token's twin added, as if seen TWIN times more.

    A twin is the same text at the start of a word, or inside one: text without spaces is cut at either.
    """
    share_P = np.zeros(len(seen_P))
    tokens = np.fromiter(twins, dtype=np.int64, count=len(twins))
    share_P[tokens] = TWIN / (TWIN + seen_P[tokens])
    others = np.fromiter(twins.values(), dtype=np.int64, count=len(twins))
    shared = sparse.csr_matrix((share_P[tokens], (tokens, others)), shape=(len(seen_P), len(seen_P)))
    return (sparse.diags(1.0 - share_P) @ weights + shared @ weights).tocsr()


def strongest(score: sparse.csr_matrix, candidates: int = CANDIDATES) -> sparse.csr_matrix:
    """Row-normalised weights of each row's strongest `candidates` entries."""
    score = score.tocsr()
    rows = np.repeat(np.arange(score.shape[0]), np.diff(score.indptr))
    order = np.lexsort((-score.data, rows))
    rank = np.arange(len(order)) - score.indptr[:-1][rows]
    keep = order[rank < candidates]
    weights = sparse.csr_matrix((score.data[keep], (rows[keep], score.indices[keep])), shape=score.shape)
    total = np.asarray(weights.sum(1)).ravel()
    return sparse.diags(1.0 / np.maximum(total, 1e-30)) @ weights


def most_used(weights: sparse.csr_matrix, count: int, frequency_P: np.ndarray) -> sparse.csr_matrix:
    """The same weights with only the `count` most used wordpieces; a token counts by the square root of its frequency.

    A token whose wordpieces are dropped falls back on its next ones, if the weights have more than nonzeros are kept.
    """
    share_W = np.asarray((sparse.diags(np.sqrt(frequency_P)) @ weights).sum(0)).ravel()
    kept_W = np.zeros(len(share_W))
    kept_W[np.argsort(-share_W, kind="stable")[:count]] = 1.0
    remaining = (weights @ sparse.diags(kept_W)).tocsr()
    remaining.eliminate_zeros()
    return remaining


def align_tokens(
    teacher: Encoder, tokenizer: PieceTokenizer, rows: Sequence[Row], how: str, max_length: int, inside: bool = False
) -> tuple[sparse.csr_matrix, np.ndarray]:
    """Alignment strengths of tokens with the teacher's wordpieces in `rows` [P, W], and counts of the tokens [P].

    `how` is alignment or cooccurrence. An English sentence is its own translation. With `inside`, tokens inside words
    have a spelling too, in the teacher's wordpieces for the inside of words.
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
        score = association(_occurrence(new_rows, tokenizer.size), _occurrence(old_rows, wordpieces))
    used = np.concatenate([np.asarray(ids, dtype=np.int64) for ids in new_rows])
    frequency_P = 1.0 + np.bincount(used, minlength=tokenizer.size)
    new_texts_of, old_texts_of = row_texts(tokenizer), row_texts(teacher.tokenizer)
    score = of_one_kind(score, [new_texts_of.get(row) for row in range(tokenizer.size)],
                        [old_texts_of.get(row) for row in range(wordpieces)])  # fmt: skip
    weights = with_twins(strongest(score), frequency_P - 1.0, _twins(tokenizer))
    weights = with_spelling(weights, frequency_P - 1.0, _spelled(teacher, tokenizer, old_texts_of))
    if inside:
        spelled = _spelled_inside(teacher, new_texts_of, tokenizer)
        weights = with_spelling(weights, frequency_P - 1.0, spelled, SPELLING_INSIDE)
    return weights, frequency_P


def row_texts(tokenizer: Tokenizer) -> dict[int, str]:
    """The text of every table row that has one, without marks of word boundaries."""
    return {token.row: token.text for token in open_vocabulary(tokenizer).tokens if token.text}


def own_words(encoder: Encoder) -> list[str]:
    """Texts that are one token of the encoder."""
    texts = row_texts(encoder.tokenizer)
    read = encoder.tokenizer.encode(list(texts.values()), 8)
    return [text for (row, text), ids in zip(texts.items(), read, strict=True) if ids[1:-1] == [row]]


def _twins(tokenizer: PieceTokenizer) -> dict[int, int]:
    """Tokens of other letters than Latin ones that are there both at the start of a word and inside words.

    In Latin scripts a token inside words is an ending or part of a name, which is rarely that word.
    """
    name = tokenizer.processor.id_to_piece
    number = {name(token): token for token in range(tokenizer.size)}
    twins: dict[int, int] = {}
    for text, inside in number.items():
        if (start := number.get(SPACE + text)) is not None and min(text) > LAST_LATIN and text[0].isalpha():
            twins |= {inside: start, start: inside}
    return twins


def _spelled(teacher: Encoder, tokenizer: PieceTokenizer, known_rows: Mapping[int, str]) -> dict[int, list[int]]:
    """The teacher's wordpieces (of `known_rows`) of every token that starts a word and has only Latin letters."""
    name = tokenizer.processor.id_to_piece
    starts = [token for token in range(tokenizer.size) if name(token).startswith(SPACE) and name(token) != SPACE]
    starts = [token for token in starts if all(c <= LAST_LATIN or not c.isalpha() for c in name(token)[1:])]
    read = teacher.tokenizer.encode([name(token)[1:] for token in starts], 32)
    rows_of_token = {
        token: [row for row in ids[1:-1] if row in known_rows] for token, ids in zip(starts, read, strict=True)
    }
    return {token: row for token, row in rows_of_token.items() if row}


def _spelled_inside(teacher: Encoder, texts: Mapping[int, str], tokenizer: PieceTokenizer) -> dict[int, list[int]]:
    """The teacher's WordPieces (`##owski`), longest first, of every token of Latin letters inside words."""
    tokens = open_vocabulary(teacher.tokenizer).tokens
    row_by_text = {token.text: token.row for token in tokens if token.text and token.name.startswith("##")}
    rows_of_token = {}
    for token, text in texts.items():
        rest = "".join(letter for letter in unicodedata.normalize("NFD", text) if not unicodedata.combining(letter))
        if tokenizer.processor.id_to_piece(token).startswith(SPACE) or max(text) > LAST_LATIN:
            continue
        rows = []
        while rest and (fits := [end for end in range(len(rest), 0, -1) if rest[:end] in row_by_text]):
            rows.append(row_by_text[rest[: fits[0]]])
            rest = rest[fits[0] :]
        if not rest:
            rows_of_token[token] = rows
    return rows_of_token


def transplant_rows(weights: sparse.csr_matrix, teacher_table_WH: Tensor) -> Tensor:
    """New table [P, H]: weighted means of the teacher's rows; a token without any weight gets the mean row."""
    table = teacher_table_WH.detach().float().numpy()
    rows = np.asarray(weights @ table, dtype=np.float32)
    unseen = np.asarray(weights.sum(1)).ravel() < 1e-6
    if unseen.any():
        rows[unseen] = table.mean(0)
    return torch.from_numpy(rows)


def transplant_code(
    weights: sparse.csr_matrix, teacher_table_WH: Tensor, nonzeros: int, own_rows: Mapping[int, Tensor]
) -> CodedRows:
    """The new table as a code over the teacher's rows that any token uses: `transplant_rows`, not multiplied out.

    `weights`, of `strongest`, have at most `nonzeros` entries per row. Tokens of `own_rows` get a base row each.
    """
    table_WH = teacher_table_WH.detach().float()
    tokens, wordpieces = weights.shape
    entries = weights.tocoo()
    order = np.lexsort((entries.col, -entries.data, entries.row))
    row, column, data = entries.row[order], entries.col[order], entries.data[order]
    rank = np.arange(len(row)) - np.searchsorted(row, row)
    if len(rank) and int(rank.max()) >= nonzeros:
        raise ValueError(f"a token has {int(rank.max()) + 1} nonzeros, more than {nonzeros}")
    # Tokens without an alignment share the mean row, after the teacher's rows; `own_rows` come after it.
    index_Pk, weight_Pk = np.full((tokens, nonzeros), wordpieces, np.int64), np.zeros((tokens, nonzeros), np.float32)
    weight_Pk[:, 0] = 1.0
    index_Pk[row, rank], weight_Pk[row, rank] = column, data
    for number, token in enumerate(sorted(own_rows)):
        index_Pk[token], weight_Pk[token] = wordpieces + 1 + number, 0.0
        weight_Pk[token, 0] = 1.0
    base = torch.cat(
        [table_WH, table_WH.mean(0, keepdim=True), *(own_rows[token].float()[None] for token in sorted(own_rows))]
    )
    code, kept_R = prune(torch.from_numpy(index_Pk), torch.from_numpy(weight_Pk))
    return CodedRows(base[kept_R], torch.from_numpy(weight_Pk), code)
