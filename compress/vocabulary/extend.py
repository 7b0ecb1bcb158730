"""New tokens in an existing vocabulary: their names and scores, their table rows, and the larger model.

Shapes: V old rows, N new rows, E width of a row, k nonzeros of a coded row, C texts, T tokens, D sentence width.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from msdc.compress.student.coded_table import index_type
from msdc.compress.student.config import CODE, INDEX, TABLE, StudentConfig
from msdc.compress.student.model import Student, with_state
from msdc.compress.student.plan import dequantize_rows, quantize_block, scale_dtype
from msdc.compress.student.stock import decode
from msdc.compress.vocabulary.spelling import (
    FOLDED,
    UNFOLDED,
    compile_rules,
    marks_apart,
    one_spelling,
    read_character_map,
    readable,
    standard_rules,
)
from msdc.compress.vocabulary.tokens import (
    NORMAL,
    SPACE,
    JsonVocabulary,
    PieceVocabulary,
    Token,
    Vocabulary,
    read_proto,
)
from msdc.compress.vocabulary.train import FULL_COVERAGE, PREFERENCE, RUN, SPECIAL, train_unigram
from msdc.compress.vocabulary.trim import with_rows
from msdc.encoders.encoder import Encoder
from msdc.errors import GateError, InputError
from msdc.progress import track, warn
from msdc.text.tokenizer import MODEL_FILE, PieceTokenizer, Tokenizer, load_tokenizer, pad

# Letters of scripts without spaces between words: such a token must be found inside a text too.
UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u9fff]+")
UNKNOWN_COST = 10.0  # nats that SentencePiece takes for an unknown character, below the lowest score
# Fitting the rows: on 54 drug names and machine parts, in sentences that were not used, the mean cosine rises from 0.86
# (the mean of the rows of the tokens before) to 0.96 in msdc-mini and from 0.76 to 0.87 in all-MiniLM-L6-v2.
SHARE = 0.1  # of the texts that a vocabulary was made for: the probability that trained tokens get in it
TRAINED_TOO = 1000  # tokens trained besides the new ones: those that the vocabulary has already
STEPS, BATCH, RATE = 20, 512, 0.05  # RATE: of the rows' standard deviation, per step


@dataclass(frozen=True)
class Extension:
    """A model with new tokens: its encoder, the tokenizer's file, and the row of each id (new ones from V on)."""

    encoder: Encoder
    student: Student
    file: Path
    rows: list[int]


def inner_ids(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Ids of each text without special ids."""
    special = set(tokenizer.encode([""], 16)[0])
    return [[index for index in row if index not in special] for row in tokenizer.encode(texts, 512)]


class Scores:
    """Scores of new tokens of a unigram vocabulary: above that of their parts, so that a word is read as its token."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.by_name = {token.name: token.score for token in vocabulary.tokens}
        self.by_row = {token.row: token.score for token in vocabulary.tokens if token.text is not None}
        self.names = {token.row: token.name for token in vocabulary.tokens}
        # A lower one would change the score of unknown characters.
        self.lowest = min(self.by_row.values(), default=0.0)

    def of(self, name: str, parts: Sequence[int]) -> float:
        """The score of a token whose word at the start of a word is read as the rows `parts`."""
        unknown = self.lowest - UNKNOWN_COST
        cost = sum(self.by_row.get(row, unknown) for row in parts)
        if not name.startswith(SPACE):  # inside a text the first part is without the mark of a start
            first = self.names.get(parts[0], SPACE)
            inside = 0.0 if first == SPACE else self.by_name.get(first.removeprefix(SPACE), unknown)
            cost += inside - self.by_row.get(parts[0], unknown)
        return max(cost + PREFERENCE, self.lowest)


def require_extendable(vocabulary: Vocabulary) -> None:
    """Refuse a vocabulary that takes no new tokens."""
    if isinstance(vocabulary, JsonVocabulary) and vocabulary.kind not in ("WordPiece", "Unigram"):
        raise InputError(
            f"{vocabulary.path}: a tokenizer of kind {vocabulary.kind} takes no new tokens: its words are merged from "
            "pairs; SentencePiece unigram, Unigram and WordPiece ones do"
        )


def new_tokens(vocabulary: Vocabulary, names: Iterable[str], first_row: int) -> list[Token]:
    """Tokens of these names (`Vocabulary.words`), with rows from `first_row` on; names that exist are left out.

    A word in a script without spaces gets a second token for the inside of a text.
    """
    require_extendable(vocabulary)
    existing = {token.name for token in vocabulary.tokens}
    unigram = isinstance(vocabulary, PieceVocabulary) or vocabulary.kind == "Unigram"
    word_by_token: dict[str, str] = {}
    for name in names:
        word = name.removeprefix(SPACE) if unigram else name
        word_by_token |= dict.fromkeys([name, word] if unigram and UNSPACED.fullmatch(word) else [name], word)
    word_by_token = {name: word for name, word in word_by_token.items() if name not in existing}
    parts = inner_ids(vocabulary.tokenizer, list(word_by_token.values()))
    scores = Scores(vocabulary) if unigram else None
    return [Token(name, word, first_row + number, 0.0 if scores is None else scores.of(name, row))
            for number, ((name, word), row) in enumerate(zip(word_by_token.items(), parts, strict=True))]  # fmt: skip


def with_new_rows(student: Student, rows_NE: Tensor) -> Student:
    """The student with rows after its own; in a coded table each is a base row of its own.

    A code over the base as it is keeps less: of 54 terms' mean rows in msdc-mini, three base rows lose 3 points of the
    terms' mean cosine of 0.61.
    """
    config, state, scales = student.config, dict(student.state_dict()), dict(student.stored_scales)
    count = len(rows_NE)
    rows_NE = rows_NE.detach().float()
    changes = {"vocabulary": config.vocabulary + count}
    if config.coded:
        base_rows = config.table_rows
        changes["base_rows"] = base_rows + count
        weight_Nk = torch.zeros(count, state[CODE].shape[1])
        weight_Nk[:, 0] = weight = _largest_weight(student)
        rows_NE = rows_NE / weight
        index_Nk = torch.arange(base_rows, base_rows + count)[:, None].expand(weight_Nk.shape)
        state[CODE] = torch.cat([state[CODE], weight_Nk])
        state[INDEX] = torch.cat([state[INDEX].long(), index_Nk]).to(index_type(base_rows + count))
    if TABLE in scales and student.stored_plan is not None:
        dtype = student.stored_plan.dtype(TABLE)
        columns = rows_NE.shape[1] // scales[TABLE].shape[1]
        values_NE, scale_NG = quantize_block(rows_NE.numpy(), columns, dtype, scale_dtype(TABLE, dtype))
        rows_NE = torch.from_numpy(dequantize_rows(values_NE, scale_NG))
        scales[TABLE] = np.concatenate([scales[TABLE], scale_NG])
    state[TABLE] = torch.cat([state[TABLE], rows_NE])
    larger = with_state(StudentConfig(**(config.model_dump() | changes)), state)
    larger.stored_scales, larger.stored_plan = scales, student.stored_plan
    return larger


def _largest_weight(student: Student) -> float:
    """The weight of a new base row in its code: 1, or what the integers of a quantized code can hold of it."""
    scale_1k = student.stored_scales.get(CODE)
    if scale_1k is None:
        return 1.0
    scale = np.float32(scale_1k[0, 0])
    return float(np.float32(min(127, int(1 / scale))) * scale)


def token_rows(student: Student) -> Tensor:
    """One row per token, [V, E]."""
    with torch.no_grad():
        return student.embedding.rows().detach()


def mean_rows(table_VE: Tensor, parts: Sequence[Sequence[int]]) -> Tensor:
    """The mean of the rows of each token's parts, [N, E]; a token without parts gets the mean of the table."""
    return torch.stack([table_VE[list(row)].mean(0) if row else table_VE.mean(0) for row in parts])


def fit_rows(
    student: Student, rows_NE: Tensor, before: Sequence[Sequence[int]], after: Sequence[Sequence[int]], pad_id: int
) -> Tensor:
    """New rows [N, E] with which the student gives the texts `after` the vectors that it gives them as `before`.

    Both are the same texts as table rows: without the new tokens, and with them (rows from V on). The other weights
    stay; texts are drawn in a fixed order.
    """
    used = sorted({row for ids in (*before, *after) for row in ids if row < student.config.vocabulary} | {pad_id})
    small_row = {row: number for number, row in enumerate(used)}
    small_row |= {student.config.vocabulary + number: len(used) + number for number in range(len(rows_NE))}
    small = decode(with_rows(student, used, small_row[pad_id])).eval()
    texts = [([small_row[row] for row in old], [small_row[row] for row in new])
             for old, new in zip(before, after, strict=True)]  # fmt: skip
    table_UE = small.embedding.table.weight.detach()
    fitted_NE = rows_NE.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([fitted_NE], lr=RATE * float(table_UE.std()))
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(1)).tolist()
    batches = [order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    with torch.no_grad():
        targets = [small(*pad([texts[i][0] for i in batch], small_row[pad_id])) for batch in batches]
    for _ in track(range(STEPS), "fit the new rows"):
        for batch, target_CD in zip(batches, targets, strict=True):
            inputs = pad([texts[i][1] for i in batch], small_row[pad_id])
            vectors_CD = functional_call(small, {TABLE: torch.cat([table_UE, fitted_NE])}, inputs)
            optimizer.zero_grad()
            (1 - F.cosine_similarity(vectors_CD, target_CD)).mean().backward()
            optimizer.step()
    return fitted_NE.detach()


def require_one_token(tokenizer: Tokenizer, tokens: Sequence[Token], rows: Sequence[int]) -> None:
    """Refuse tokens whose word the new tokenizer does not read as that token alone.

    Raises:
        GateError: naming some of the words.
    """
    number = {row: index for index, row in enumerate(rows)}
    starts = [token for token in tokens if token.name != token.text or not isinstance(tokenizer, PieceTokenizer)]
    ids_by_token = inner_ids(tokenizer, [token.text or "" for token in starts])
    wrong = [token.text or "" for token, ids in zip(starts, ids_by_token, strict=True) if ids != [number[token.row]]]
    if wrong:
        raise GateError(f"the extended tokenizer does not read {len(wrong)} words as one token each: leave out "
                        f"{', '.join(wrong[:8])}{', ...' if len(wrong) > 8 else ''}")  # fmt: skip


def extend(
    encoder: Encoder, student: Student, vocabulary: Vocabulary, tokens: Sequence[Token], rows_NE: Tensor, folder: Path
) -> Extension:
    """The model with new tokens and their rows; its tokenizer is written to `folder`."""
    file, rows, pad_id = vocabulary.write(range(len(vocabulary.tokens)), folder, tokens)
    tokenizer = load_tokenizer(file.parent, pad_id)
    larger = with_rows(with_new_rows(student, rows_NE), rows, pad_id)
    after = Encoder(larger, tokenizer, student.config.positions, "after", None, encoder.defaults)
    return Extension(after, larger, file, rows)


def train_tokens(
    tokenizer: PieceTokenizer, texts: Sequence[str], count: int, first_row: int, folder: Path
) -> tuple[PieceVocabulary, list[Token]]:
    """A vocabulary that also spells the characters of `texts`, and `count` tokens trained on them that it lacks.

    The character map gets the rules of SentencePiece for the new characters, such as folding their case: maps of
    students have those alone that end in characters of the vocabulary. Rows of the tokens start at `first_row`; their
    scores are those of the texts as SHARE of all. The changed `.model` is written to `folder`.

    Raises:
        InputError: the texts need no new token, or SentencePiece cannot be trained on them.
    """
    vocabulary = PieceVocabulary(tokenizer)
    letters_of_tokens = {letter for token in vocabulary.tokens if token.text for letter in token.text}
    spec = vocabulary.proto.normalizer_spec
    rules, standard = read_character_map(spec.precompiled_charsmap), {}
    if spec.name in (FOLDED, UNFOLDED):
        standard = standard_rules(spec.name)
        if rules.get("!") == " ! ":
            standard = marks_apart(one_spelling(standard))
    extra = {key: text for key, text in standard.items() if key not in rules and not letters_of_tokens.issuperset(text)}
    spelling = _with_rules(vocabulary, {**rules, **extra} if extra else rules, folder)
    rows = [spelling.tokenizer.processor.normalize(text).replace(SPACE, " ") for text in texts]
    settings = {**SPECIAL, "character_coverage": FULL_COVERAGE, "normalization_rule_name": "identity"}
    trained = read_proto(train_unigram(rows, count + TRAINED_TOO, num_threads=1, **settings))
    existing = {token.name for token in vocabulary.tokens}
    added = [piece for piece in trained.pieces
             if piece.type == NORMAL and piece.piece not in existing and not RUN.fullmatch(piece.piece)]  # fmt: skip
    # Single characters first: without one a word that has it is unknown.
    added = sorted(added, key=lambda piece: (len(piece.piece.strip(SPACE)) > 1, -piece.score))[:count]
    if not added:
        raise InputError("the text needs no new token: the vocabulary has all that are trained on it")
    if len(added) < count:
        warn(f"vocabulary: only {len(added):,} of {count:,} new tokens: {len(texts):,} sentences are too few for more")
    letters = letters_of_tokens | {letter for piece in added for letter in piece.piece} - {SPACE}
    new_rules = readable(extra, letters)
    vocabulary = _with_rules(vocabulary, {**rules, **new_rules}, folder) if new_rules else vocabulary
    lowest = Scores(vocabulary).lowest
    tokens = [Token(piece.piece, piece.piece.replace(SPACE, ""), first_row + number,
                    max(piece.score + math.log(SHARE), lowest)) for number, piece in enumerate(added)]  # fmt: skip
    return vocabulary, tokens


def _with_rules(vocabulary: PieceVocabulary, rules: dict[str, str], folder: Path) -> PieceVocabulary:
    """The vocabulary with another character map, as a file in `folder`."""
    proto = copy.deepcopy(vocabulary.proto)
    proto.normalizer_spec.precompiled_charsmap = compile_rules(rules) if rules else b""
    (folder / MODEL_FILE).write_bytes(proto.SerializeToString())
    return PieceVocabulary(PieceTokenizer(folder / MODEL_FILE))
