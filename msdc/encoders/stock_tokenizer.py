"""The tokenizer of a stock model as it tokenizes in `transformers`, in a form that can be saved, exported and trimmed.

`transformers` may change what `tokenizer.json` says (lower-casing, a class that builds its own normalizer). Where it
does, or where the model is known by a SentencePiece file under other ids, the tokenizer is written to the user's cache
and opened from there, so that whoever copies its file copies what the model does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msdc.errors import InputError
from msdc.files import staged_folder, user_cache
from msdc.text.quickstart import golden_lines
from msdc.text.tokenizer import JSON_FILE, MODEL_FILE, FastTokenizer, PieceTokenizer, Tokenizer

# Names under which stock folders hold a SentencePiece model, ours first.
PIECE_FILES = (MODEL_FILE, "sentencepiece.bpe.model", "spiece.model", "sentencepiece.model")
SPACES = ["", "  two  spaces ", "no-break\u00a0space and \u3000 more", "\ufb01ne \uff26\uff35 \u2460", "cafe\u0301"]


def cached_file(name: str, content: bytes, beside: dict[str, bytes] | None = None) -> Path:
    """`content` as a file called `name` in a folder of the user's cache that belongs to this content."""
    key = hashlib.sha256(content + b"".join((beside or {}).values())).hexdigest()[:32]
    folder = user_cache() / "tokenizers" / key
    if not (folder / name).is_file():
        with staged_folder(folder, force=True) as stage:
            for file, data in {name: content, **(beside or {})}.items():
                (stage / file).write_bytes(data)
    return folder / name


def model_with_ids(piece_file: Path, backend: Any) -> bytes | None:
    """The SentencePiece model with the pieces in the order of the `tokenizers` library's ids; None where it cannot be.

    XLM-R's ids are those of its `sentencepiece.bpe.model` moved by one, behind special ids of its own. A model whose
    pieces stand in the order of the ids needs no such offset: the phone reads it as it is, and the table stays.
    """
    from sentencepiece import sentencepiece_model_pb2

    pb: Any = sentencepiece_model_pb2  # generated, without types
    found = json.loads(backend.to_str())
    rows = found["model"].get("vocab")
    if found["model"].get("type") != "Unigram" or not isinstance(rows, list):
        return None
    names = [str(name) for name, _ in rows]
    added = {int(token["id"]): str(token["content"]) for token in found.get("added_tokens", [])}
    for number in range(len(names), backend.get_vocab_size(with_added_tokens=True)):
        if number not in added:
            return None
        names.append(added[number])
    ends = backend.encode("").ids
    proto = pb.ModelProto()
    try:
        proto.ParseFromString(piece_file.read_bytes())
    except Exception:
        return None
    pieces = {piece.piece: piece for piece in proto.pieces}
    if len(ends) != 2 or len(set(names)) != len(names) or sum(name in pieces for name in names) < len(pieces):
        return None
    ordered = []
    for name in names:
        piece = pb.ModelProto.SentencePiece(piece=name, score=0.0, type=pb.ModelProto.SentencePiece.CONTROL)
        if name in pieces:
            piece.CopyFrom(pieces[name])
        ordered.append(piece)
    del proto.pieces[:]
    proto.pieces.extend(ordered)
    trainer, id_of = proto.trainer_spec, {name: i for i, name in enumerate(names)}
    unknown = next((p.piece for p in ordered if p.type == pb.ModelProto.SentencePiece.UNKNOWN), None)
    if unknown is None:
        return None
    trainer.bos_piece, trainer.eos_piece, trainer.unk_piece = names[ends[0]], names[ends[1]], unknown
    trainer.bos_id, trainer.eos_id, trainer.unk_id = ends[0], ends[1], id_of[unknown]
    trainer.pad_id = id_of.get("<pad>", -1)
    trainer.vocab_size = len(names)
    content: bytes = proto.SerializeToString()
    return content


def _same_ids(one: Tokenizer, other: Tokenizer, texts: Sequence[str]) -> bool:
    return one.encode(texts, 512) == other.encode(texts, 512)


def _pieces(folder: Path, fast: FastTokenizer) -> PieceTokenizer | None:
    """The folder's SentencePiece model where it gives exactly the ids of `fast`, but for names of special ids."""
    # Names of special ids are ordinary text to SentencePiece, which is what an app wants of a user's text.
    special = [token.content for token in fast.backend.get_added_tokens_decoder().values()]
    texts = [text for text in [*golden_lines(), *SPACES] if not any(name in text for name in special)]
    for name in PIECE_FILES:
        file = folder / name
        if not file.is_file():
            continue
        try:
            # Our own files hold the ids already; a stock file is written again with the model's.
            contents = [] if name != MODEL_FILE else [PieceTokenizer(file)]
            rewritten = model_with_ids(file, fast.backend)
            contents += [] if rewritten is None else [PieceTokenizer(cached_file(MODEL_FILE, rewritten))]
        except InputError:
            continue
        for tokenizer in contents:
            if tokenizer.size >= fast.size and tokenizer.pad_id == fast.pad_id and _same_ids(tokenizer, fast, texts):
                return tokenizer
    return None


def _settings(folder: Path) -> dict[str, bytes]:
    names = ("tokenizer_config.json", "special_tokens_map.json")
    return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}


def stock_tokenizer(folder: Path, first: Any) -> Tokenizer:
    """The tokenizer of the first module of a sentence-transformers model in `folder`.

    Raises:
        InputError: a tokenizer that the `tokenizers` library does not run.
    """
    from tokenizers import Tokenizer as Backend

    static = type(first).__name__ == "StaticEmbedding"
    source = first.tokenizer
    backend = source if static else getattr(source, "backend_tokenizer", None)
    if not isinstance(backend, Backend):
        raise InputError(f"{folder}: a tokenizer of class {type(source).__name__} is not supported; save its fast form")
    pad_id = 0 if static else int(source.pad_token_id or 0)
    text = json.loads(backend.to_str())
    text["padding"] = text["truncation"] = None
    if static:
        # A static model adds no special ids.
        text["post_processor"] = None
    file = folder / JSON_FILE
    if file.is_file():
        stored = Backend.from_file(str(file))
        stored.no_padding()
        stored.no_truncation()
        if json.loads(stored.to_str()) != text:
            file = folder / "changed"
    if not file.is_file():
        content = json.dumps(text, ensure_ascii=False).encode("utf-8")
        file = cached_file(JSON_FILE, content, _settings(folder))
    fast = FastTokenizer(file, pad_id)
    return fast if static else _pieces(folder, fast) or fast
