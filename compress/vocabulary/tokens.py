"""The tokens of a vocabulary, tied to table rows, and the same tokenizer with fewer or more of them.

A SentencePiece `.model` and the table are renumbered together: new ids are the new `.model`'s own, `<pad> <unk> <s>
</s>` first, so no offset between tokenizer and table (fairseq's + 1 in XLM-R) remains. A unigram segmentation that
uses only kept tokens remains the best one, because every other candidate is either kept or removed. In a
`tokenizer.json` (WordPiece, BPE and Unigram models of the `tokenizers` library) ids are renumbered everywhere they
occur: model, added tokens, post-processor template, padding.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import decoders

from msdc.errors import InputError
from msdc.files import read_json, write_json
from msdc.text.tokenizer import JSON_FILE, MODEL_FILE, FastTokenizer, PieceTokenizer, Tokenizer

SPACE = "▁"
NORMAL, UNKNOWN, CONTROL, UNUSED = 1, 2, 3, 5


@dataclass(frozen=True)
class Token:
    """One entry: its text without word-boundary marks (None: not text), its old table row, and its score."""

    name: str
    text: str | None
    row: int
    score: float
    fixed: bool = False
    parts: tuple[int, ...] = ()


def read_proto(packed: bytes) -> Any:
    """The message inside a SentencePiece `.model`."""
    from sentencepiece import sentencepiece_model_pb2 as pb

    proto = pb.ModelProto()  # type: ignore[attr-defined]
    proto.ParseFromString(packed)
    return proto


class PieceVocabulary:
    """The tokens of a SentencePiece unigram `.model`; the table row of a token is its id."""

    def __init__(self, tokenizer: PieceTokenizer) -> None:
        self.tokenizer = tokenizer
        model_file = tokenizer.path
        try:
            self.proto = read_proto(tokenizer.content)
        except Exception as error:
            raise InputError(f"{model_file}: not a SentencePiece model ({error})") from error
        if self.proto.trainer_spec.model_type != 1:
            raise InputError(f"{model_file}: only unigram SentencePiece models can be trimmed")
        self.tokens = [self._token(row, entry) for row, entry in enumerate(self.proto.pieces)]
        # Rows and names of pad, unk, first and last, in their new order; a model without a pad gets one.
        self.special = [tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id]
        self.names = [self.tokens[row].name for row in self.special]
        if self.names[0] in self.names[1:]:
            self.names[0] = "<pad>"
        # Rows that `write` adds to the kept ones.
        self.extra = int(all(token.name != self.names[0] for token in self.tokens))

    def _token(self, row: int, entry: Any) -> Token:
        text = entry.piece.replace(SPACE, "")
        normal = entry.type == NORMAL
        return Token(entry.piece, text if normal else None, row, entry.score, fixed=not normal or not text)

    def words(self, text: str) -> list[str]:
        """The names that a text's words have as tokens."""
        return [SPACE + word for word in self.tokenizer.processor.normalize(text).split(SPACE) if word]

    def write(self, keep: Sequence[int], folder: Path, new: Sequence[Token] = ()) -> tuple[Path, list[int], int]:
        """Write the tokenizer with the tokens `keep`, then `new` ones.

        Returns its file, the table row of each new id, and the pad id.
        """
        proto = type(self.proto)()
        proto.CopyFrom(self.proto)
        del proto.pieces[:]
        for name in self.names:
            proto.pieces.add(piece=name, score=0.0, type=UNKNOWN if name == self.names[1] else CONTROL)
        rows = list(self.special)
        for row in keep:
            entry = self.proto.pieces[row]
            if entry.piece not in self.names and entry.type not in (CONTROL, UNKNOWN, UNUSED):
                # The default type, stated, takes two bytes per token.
                proto.pieces.add(
                    piece=entry.piece, score=entry.score, **({} if entry.type == NORMAL else {"type": entry.type})
                )
                rows.append(row)
        for token in new:
            proto.pieces.add(piece=token.name, score=token.score)
            rows.append(token.row)
        spec = proto.trainer_spec
        spec.vocab_size = len(rows)
        spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = 0, 1, 2, 3
        spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = self.names
        target = folder / MODEL_FILE
        target.write_bytes(proto.SerializeToString())
        PieceTokenizer(target)  # refuses a model that cannot be read back
        return target, rows, 0


class JsonVocabulary:
    """The tokens of a `tokenizer.json`; the table row of a token is its id."""

    def __init__(self, tokenizer: FastTokenizer) -> None:
        self.path = path = tokenizer.path
        self.tokenizer = tokenizer
        self.extra = 0
        self.raw: dict[str, Any] = tokenizer.parsed()
        model = self.raw["model"]
        self.kind = type(tokenizer.backend.model).__name__
        if self.kind not in ("WordPiece", "BPE", "Unigram"):
            raise InputError(f"{path}: a tokenizer of kind {self.kind} cannot be trimmed")
        self.added = {token["content"]: int(token["id"]) for token in self.raw.get("added_tokens") or []}
        ids = tokenizer.backend.get_vocab(with_added_tokens=False)
        # WordPiece and BPE number their tokens by frequency, the most frequent first.
        scores = dict(model["vocab"]) if self.kind == "Unigram" else {name: -index for name, index in ids.items()}
        self.byte_level = self.kind == "BPE" and "ByteLevel" in json.dumps(self.raw.get("pre_tokenizer") or {})
        fixed = {*self.added, model.get("unk_token"), *_template_tokens(self.raw.get("post_processor"))}
        if self.kind == "Unigram" and model.get("unk_id") is not None:
            fixed.add(model["vocab"][model["unk_id"]][0])
        names = sorted([*ids, *(set(self.added) - set(ids))], key=lambda name: ids.get(name, self.added.get(name, 0)))
        self.in_model = set(ids)
        self.index = {name: index for index, name in enumerate(names)}
        parents = self._merge_parts() if self.kind == "BPE" else {}
        self.tokens = []
        for name in names:
            text = None if name in fixed else self._text(name)
            special = name in fixed or (self.byte_level and len(name) == 1) or text == ""
            row = ids.get(name, self.added.get(name, -1))
            self.tokens.append(Token(name, text, row, scores.get(name, 0.0), special, parents.get(name, ())))

    def _text(self, name: str) -> str | None:
        if self.byte_level:
            text = str(decoders.ByteLevel().decode([name])).strip()
            return None if "\ufffd" in text else text  # a part of a character
        prefix = self.raw["model"].get("continuing_subword_prefix") or ""
        if self.kind == "WordPiece" and prefix and name.startswith(prefix) and name != prefix:
            return name[len(prefix) :]
        return name.replace(SPACE, "")

    def _merges(self) -> list[list[str]]:
        return [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in self.raw["model"]["merges"]]

    def _merge_parts(self) -> dict[str, tuple[int, ...]]:
        """Tokens that a BPE token is merged from, recursively: it needs all of them."""
        direct: dict[str, tuple[str, str]] = {}
        for first, second in self._merges():
            direct.setdefault(first + second, (first, second))
        parts: dict[str, frozenset[int]] = {}
        # A merged token is longer than its parts, so in order of length the parts come first.
        for name in sorted(direct, key=len):
            indices: set[int] = set()
            for part in direct[name]:
                if part in self.index:
                    indices |= {self.index[part], *parts.get(part, frozenset())}
            parts[name] = frozenset(indices)
        return {name: tuple(sorted(indices)) for name, indices in parts.items()}

    def words(self, text: str) -> list[str]:
        """The names that a text's words have as tokens."""
        backend: Any = self.tokenizer.backend
        text = backend.normalizer.normalize_str(text) if backend.normalizer else text
        return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text)] if backend.pre_tokenizer else [text]

    def write(self, keep: Sequence[int], folder: Path, new: Sequence[Token] = ()) -> tuple[Path, list[int], int]:
        """Write the tokenizer with the tokens `keep` and `new` ones, which a BPE does not take.

        Returns its file, the table row of each new id, and the pad id.
        """
        kept_tokens = [self.tokens[index] for index in keep]
        # Added tokens that the model does not know are numbered after its own.
        ordered = [p for p in kept_tokens if p.name in self.in_model] + [*new]
        ordered += [p for p in kept_tokens if p.name not in self.in_model]
        new_id = {token.name: index for index, token in enumerate(ordered)}
        raw = copy.deepcopy(self.raw)
        model = raw["model"]
        if self.kind == "Unigram":
            unk = None if model.get("unk_id") is None else model["vocab"][model["unk_id"]][0]
            model["vocab"] = [[name, score] for name, score in model["vocab"] if name in new_id]
            model["vocab"] += [[token.name, token.score] for token in new]
            model["unk_id"] = None if unk is None else new_id[unk]
        else:
            in_model = self.in_model.union(token.name for token in new)
            model["vocab"] = {token.name: new_id[token.name] for token in ordered if token.name in in_model}
        if self.kind == "BPE":
            model["merges"] = [
                merge
                for merge, parts in zip(model["merges"], self._merges(), strict=True)
                if new_id.keys() >= {*parts, "".join(parts)}
            ]
        for token in raw.get("added_tokens") or []:
            token["id"] = new_id[token["content"]]
        _renumber(raw.get("post_processor"), new_id)
        pad_name = next((p.name for p in self.tokens if p.row == self.tokenizer.pad_id), None)
        if isinstance(raw.get("padding"), dict):
            raw["padding"]["pad_id"] = new_id.get(raw["padding"].get("pad_token", pad_name), 0)
        target = folder / JSON_FILE
        target.write_text(json.dumps(raw, ensure_ascii=False), encoding="utf-8", newline="\n")
        for name in ("tokenizer_config.json", "special_tokens_map.json"):
            if (self.path.parent / name).is_file():
                settings = read_json(self.path.parent / name)
                # Old ids by token; tokenizer.json has the new ones.
                settings.pop("added_tokens_decoder", None)
                write_json(folder / name, settings)
        pad_id = new_id.get(pad_name, 0) if pad_name else 0
        FastTokenizer(target, pad_id)  # refuses a file that cannot be read back
        return target, [token.row for token in ordered], pad_id


def _inner_objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object inside a JSON value, outermost first."""
    if isinstance(value, dict):
        yield value
    if isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _inner_objects(item)


def _template_tokens(post_processor: Any) -> set[str]:
    """The special tokens that a post-processor adds."""
    tokens: set[str] = set()
    for part in _inner_objects(post_processor):
        if isinstance(part.get("special_tokens"), dict):
            tokens.update(part["special_tokens"])
        tokens.update(part[key][0] for key in ("sep", "cls") if isinstance(part.get(key), list))
    return tokens


def _renumber(post_processor: Any, new_id: dict[str, int]) -> None:
    """Replace the ids in a post-processor, in place."""
    for part in _inner_objects(post_processor):
        if isinstance(part.get("special_tokens"), dict):
            for name, entry in part["special_tokens"].items():
                entry["ids"] = [new_id[token] for token in entry.get("tokens", [name])]
        for key in ("sep", "cls"):
            if isinstance(part.get(key), list):
                part[key][1] = new_id[part[key][0]]


Vocabulary = PieceVocabulary | JsonVocabulary


def open_vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    """The tokens of a tokenizer, tied to table rows."""
    if isinstance(tokenizer, PieceTokenizer):
        return PieceVocabulary(tokenizer)
    if isinstance(tokenizer, FastTokenizer):
        return JsonVocabulary(tokenizer)
    raise InputError(f"{tokenizer.path}: the tokens of a tokenizer of this kind cannot be listed")
