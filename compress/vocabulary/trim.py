"""`msdc compress vocabulary`: drop table rows and tokenizer pieces together, and prove that nothing else changed.

Shapes: V old rows, K kept rows, N texts, D sentence width.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict

from msdc.compress.quantization.plan import read_plan
from msdc.compress.student.coded_table import prune
from msdc.compress.student.from_transformers import to_student
from msdc.compress.student.io import MODEL_TYPE, save_stock, save_student, tokenizer_file
from msdc.compress.student.model import Student, StudentConfig
from msdc.compress.student.shapes import CODE, INDEX, TABLE
from msdc.compress.student.to_transformers import stock_type
from msdc.compress.texts import quickstart_texts, read_texts
from msdc.compress.vocabulary.sentencepiece import PieceVocabulary, Vocabulary, Wish, choose
from msdc.compress.vocabulary.tokenizer_json import JsonVocabulary
from msdc.encoders.encoder import Encoder, load_encoder
from msdc.encoders.folder import EncodeDefaults, Layout, locate_model, read_layout
from msdc.errors import GateError, InputError
from msdc.files import refuse_existing
from msdc.progress import track
from msdc.text.tokenizer import FastTokenizer, PieceTokenizer, Tokenizer, load_tokenizer

# What tokenizers of the hub call the SentencePiece model that their tokenizer.json was made from.
PIECE_FILES = ("sentencepiece.bpe.model", "spiece.model", "sentencepiece.model")
PROOF_TEXTS = 200
# Same rows through the same layers: differences can only come from the order of additions in another batch.
PROOF_MAX_ABS = 1e-5
# A `.model` replaces its tokenizer.json where both tokenize equally; unusual white space may differ.
TWIN_SHARE = 0.99


class TrimRequest(BaseModel):
    """What to trim, and on which texts to prove it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    out: Path
    languages: tuple[str, ...] = ()
    corpus: tuple[Path, ...] = ()
    size: int | None = None
    check: tuple[Path, ...] = ()
    force: bool = False


class Proof(BaseModel):
    """One set of texts before and after: how many are tokenized differently, and how much the vectors change."""

    model_config = ConfigDict(frozen=True)

    texts: int
    source: str
    changed_share: float
    unchanged_max_abs: float
    changed_mean_cosine: float | None
    tokens_before: float
    tokens_after: float


class TrimReport(BaseModel):
    """What was dropped and what it changed."""

    model_config = ConfigDict(frozen=True)

    model: str
    out: str
    vocabulary_before: int
    vocabulary_after: int
    parameters_before: int
    parameters_after: int
    tokenizer: str
    proofs: list[Proof]


@dataclass(frozen=True)
class _Opened:
    student: Student
    tokenizer: Tokenizer
    layout: Layout
    body: Path
    name: str
    defaults: EncodeDefaults

    @property
    def own(self) -> bool:
        return self.layout.model_type == MODEL_TYPE


def _open(name: str) -> _Opened:
    folder = locate_model(name)
    layout = read_layout(folder)
    encoder = load_encoder(folder)
    student, body = to_student(encoder), layout.body
    tokenizer = load_tokenizer(body, student.config.pad_id)
    if isinstance(encoder.tokenizer, FastTokenizer) and encoder.tokenizer.files[0].parent != body:
        # The model does not tokenize as its tokenizer.json says (do_lower_case): what it does is trimmed.
        tokenizer, body = encoder.tokenizer, encoder.tokenizer.files[0].parent
    return _Opened(student, tokenizer, layout, body, Path(name).name, encoder.defaults)


def _vocabulary(opened: _Opened, texts: Sequence[str]) -> Vocabulary:
    """The `.model` where the model is known by one (its own, or one that segments as its tokenizer.json does)."""
    body, tokenizer = opened.body, opened.tokenizer
    if isinstance(tokenizer, PieceTokenizer):
        return PieceVocabulary(tokenizer.path, tokenizer)
    if not isinstance(tokenizer, FastTokenizer):
        raise InputError(f"{body}: a tokenizer of this kind cannot be trimmed")
    for name in PIECE_FILES:
        if (body / name).is_file():
            try:
                pieces = PieceVocabulary(body / name, tokenizer, tokenizer.backend.get_vocab(with_added_tokens=True))
            except InputError:
                continue
            if _segments_alike(pieces, tokenizer, texts):
                return pieces
    return JsonVocabulary(tokenizer_file(body), tokenizer)


def _segments_alike(pieces: PieceVocabulary, tokenizer: FastTokenizer, texts: Sequence[str]) -> bool:
    """Whether `.model` and tokenizer.json give the same rows; a lower-casing or other step outside it shows here."""
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=pieces.model_file.read_bytes())
    # An earlier call may have left a length to cut at.
    tokenizer.backend.no_truncation()
    same = 0
    for text in texts:
        expected = tokenizer.backend.encode(text, add_special_tokens=False).ids
        unknown = pieces.row_of.get(processor.id_to_piece(processor.unk_id()), -1)
        found = [pieces.row_of.get(piece, unknown) for piece in processor.encode(text, out_type=str)]
        same += found == expected
    return same >= TWIN_SHARE * len(texts)


def _counts(vocabulary: Vocabulary, files: Sequence[Path], max_length: int) -> dict[int, int] | None:
    if not files:
        return None
    found: Counter[int] = Counter()
    for path in files:
        texts = read_texts(path)
        for start in track(range(0, len(texts), 4096), f"count {path.name}"):
            for row in vocabulary.rows(texts[start : start + 4096], max_length):
                found.update(row)
    return dict(found)


def with_rows(student: Student, rows: Sequence[int], pad_id: int) -> Student:
    """The student whose table holds `rows` of the old one, in that order; base rows that none of them uses are dropped.

    Raises:
        InputError: a row that the table does not have.
    """
    config = student.config
    if rows and not 0 <= min(rows) <= max(rows) < config.vocabulary:
        raise InputError(f"the tokenizer names row {max(rows)}, the table has {config.vocabulary}")
    index_K = torch.tensor(list(rows), dtype=torch.int64)
    state = dict(student.state_dict())
    changes = {"vocabulary": len(rows), "pad_id": pad_id}
    if config.coded:
        state[CODE] = state[CODE][index_K].clone()
        state[INDEX], index_K = prune(state[INDEX][index_K], state[CODE])
        changes["base_rows"] = len(index_K)
    state[TABLE] = state[TABLE][index_K].clone()
    with torch.device("meta"):
        trimmed = Student(StudentConfig(**(config.model_dump() | changes)))
    trimmed.load_state_dict(state, assign=True)
    trimmed.stored_scales = dict(student.stored_scales)
    if TABLE in trimmed.stored_scales:
        trimmed.stored_scales[TABLE] = trimmed.stored_scales[TABLE][index_K]
    return trimmed.eval()


def prove(before: Encoder, after: Encoder, rows: Sequence[int], texts: Sequence[str], source: str) -> Proof:
    """Compare two encoders text by text; `rows` are the old table rows of the new ids.

    Raises:
        GateError: a text whose segmentation is unchanged has another vector.
    """
    old_ids, new_ids = before.tokenize(texts), after.tokenize(texts)
    same = [[rows[i] for i in new] == old for old, new in zip(old_ids, new_ids, strict=True)]
    unchanged = [text for text, equal in zip(texts, same, strict=True) if equal][:PROOF_TEXTS]
    changed = [text for text, equal in zip(texts, same, strict=True) if not equal][:PROOF_TEXTS]
    largest = 0.0
    if unchanged:
        largest = float(np.abs(before.encode(unchanged) - after.encode(unchanged)).max())
    if largest > PROOF_MAX_ABS:
        raise GateError(f"{source}: vectors of unchanged texts differ by {largest:.1e}; nothing was written")
    cosine = None
    if changed:
        old_ND, new_ND = before.encode(changed), after.encode(changed)
        norms = np.linalg.norm(old_ND, axis=1) * np.linalg.norm(new_ND, axis=1)
        cosine = float(((old_ND * new_ND).sum(1) / np.maximum(norms, 1e-12)).mean())
    return Proof(
        texts=len(texts),
        source=source,
        changed_share=1 - sum(same) / len(same),
        unchanged_max_abs=largest,
        changed_mean_cosine=cosine,
        tokens_before=sum(map(len, old_ids)) / len(texts),
        tokens_after=sum(map(len, new_ids)) / len(texts),
    )


def trim(request: TrimRequest) -> TrimReport:
    """Trim a model's vocabulary into the folder `out`; stock models stay stock (RoBERTa becomes the equal BertModel).

    Raises:
        InputError: no such model, a tokenizer kind that cannot be trimmed, or a wish that cannot be met.
        GateError: the proof failed; nothing is written.
    """
    refuse_existing(request.out, request.force)
    opened = _open(request.model)
    student, config = opened.student, opened.student.config
    # Without a language of the embedded corpus, all of it is used: an empty text would verify nothing.
    samples = quickstart_texts(request.languages, limit=400)
    vocabulary = _vocabulary(opened, samples)
    counts = _counts(vocabulary, request.corpus, config.positions)
    keep = choose(vocabulary, Wish(request.languages, counts, request.size))
    with tempfile.TemporaryDirectory(prefix="msdc-vocabulary-") as place:
        file, rows, pad_id = vocabulary.write(keep, Path(place))
        small = with_rows(student, rows, pad_id)
        before = Encoder(student, opened.tokenizer, config.positions, "before")
        after = Encoder(small, load_tokenizer(file.parent, pad_id), config.positions, "after")
        proofs = [prove(before, after, rows, samples, "embedded corpus")]
        for path in [*request.corpus, *request.check]:
            proofs.append(prove(before, after, rows, read_texts(path, limit=20_000), path.name))
        card = _card(opened.name, request, config.vocabulary, len(rows), proofs)
        settings: dict[str, Any] = {"card": card, "force": request.force, "defaults": opened.defaults}
        if opened.own or not stock_type(small.config):
            save_student(small, file, request.out, plan=read_plan(opened.layout.folder), **settings)
        else:
            save_stock(small, file, request.out, **settings)
    return TrimReport(
        model=opened.name,
        out=str(request.out),
        vocabulary_before=config.vocabulary,
        vocabulary_after=len(rows),
        parameters_before=sum(p.numel() for p in student.parameters()),
        parameters_after=sum(p.numel() for p in small.parameters()),
        tokenizer=file.name,
        proofs=proofs,
    )


def _card(name: str, request: TrimRequest, before: int, after: int, proofs: Sequence[Proof]) -> str:
    wish = []
    if request.languages:
        wish.append("languages " + ", ".join(request.languages))
    if request.corpus:
        wish.append("pieces of " + ", ".join(path.name for path in request.corpus))
    if request.size:
        wish.append(f"at most {request.size} pieces")
    lines = [
        f"# {request.out.name}",
        "",
        f"{name} with {after} of its {before} vocabulary rows: {'; '.join(wish)}.",
        "",
    ]
    for proof in proofs:
        lines.append(
            f"* {proof.source}: {proof.texts} texts, {proof.changed_share:.2%} tokenized differently; "
            f"vectors of the others differ by at most {proof.unchanged_max_abs:.1e}."
        )
    return "\n".join(lines) + "\n"
