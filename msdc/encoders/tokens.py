"""Whether a loaded model and the tokenizer that msdc runs for it fit: the same ids, and a row for each of them.

Settings of the call are in many places (tokenizer.json, tokenizer_config.json, sentence_bert_config.json, the classes
of two libraries). So the ids of sentence-transformers' own call are compared, and the setting is named afterwards.

Shapes: T tokens.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer as Backend
from torch import nn

from msdc.encoders.stock import StaticModel
from msdc.errors import InputError, MsdcError, first_line
from msdc.text.quickstart import golden_lines
from msdc.text.tokenizer import FastTokenizer, Tokenizer

# A longer limit is not reached with texts of a test.
LONGEST_PROBE = 16_384
PASSED = {"input_ids", "attention_mask", "token_type_ids", "modality", "special_tokens_mask", "offsets"}


def check_ids(tokenizer: Tokenizer, module: nn.Module, where: Path) -> None:
    """Refuse a tokenizer with ids that have no row in the model's table: a text with one of them has no vector."""
    network: Any = module
    if isinstance(module, StaticModel):
        table: Any = module.table
    else:
        table = getattr(network.body, "text_model", network.body).get_input_embeddings()
    weight = getattr(table, "weight", None)
    ids = tokenizer.size
    if isinstance(tokenizer, FastTokenizer):
        ids = max(tokenizer.backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    if weight is not None and max(ids, tokenizer.pad_id + 1) > (rows := int(weight.shape[0])):
        raise InputError(
            f"{where}: the tokenizer has {max(ids, tokenizer.pad_id + 1)} ids, the model's table {rows} rows: tokens "
            "were added to the tokenizer alone; call the model's `resize_token_embeddings(len(tokenizer))` and save "
            "it, or remove them"
        )


def check_tokens(first: Any, tokenizer: Tokenizer, longest: int, where: Path) -> None:
    """Compare the ids of the first module's own call with those of `tokenizer`.

    Raises:
        InputError: they differ on an empty text, a word, capitals and marks, a special id's name, or a text longer
            than any input.
    """
    words = " ".join(golden_lines())
    # The two ends differ, so truncation on the left shows.
    copies = 1 if longest > LONGEST_PROBE else 2 + longest // len(words.split())
    texts = ["", "a", "Caf\u00e9 STRASSE, 42 & \u0130l.", f"{words} " * copies]
    if isinstance(tokenizer, FastTokenizer):
        # SentencePiece reads the name of a special id as ordinary text, by design.
        texts += [f"a {token.content} b" for token in list(tokenizer.backend.get_added_tokens_decoder().values())[:1]]
    for text in texts:
        try:
            expected = _own_ids(first, text, longest)
        except MsdcError as error:
            raise InputError(f"{where}: {error}") from error
        except Exception as error:
            if not text:
                continue  # where no id is added, the library may have no tensor for it
            raise InputError(f"{where}: its tokenizer fails on a text: {first_line(error)}") from error
        (row,) = tokenizer.encode([text], longest)
        if expected != row:
            raise InputError(f"{where}: {_lost_setting(first, expected, row)}")


def _own_ids(first: Any, text: str, longest: int) -> list[int]:
    static = type(first).__name__ == "StaticEmbedding"
    length = first.max_seq_length
    try:
        if not static:
            first.max_seq_length = longest
        features = first.preprocess([text])
    finally:
        if not static:
            first.max_seq_length = length
    if unknown := sorted(set(features) - PASSED):
        raise InputError(f"its tokenizer also gives {', '.join(unknown)}, which msdc does not pass to a model")
    types = features.get("token_type_ids")
    if (
        types is not None
        and bool(types.any())
        and "token_type_ids" in inspect.signature(first.model.forward).parameters
    ):
        raise InputError("token types other than 0 (post_processor of tokenizer.json) are not supported")
    if static:
        return [int(i) for i in features["input_ids"]]
    ids_T = features["input_ids"][0]
    mask_T = features["attention_mask"][0] if "attention_mask" in features else torch.ones_like(ids_T)
    return [int(i) for i in ids_T[mask_T.bool()]]


def _lost_setting(first: Any, expected: Sequence[int], row: Sequence[int]) -> str:
    """The setting for which the ids of sentence-transformers differ from ours, in words."""
    of: Any = first.tokenizer
    truncation = (of.truncation or {}) if isinstance(of, Backend) else {}
    side = truncation.get("direction", getattr(of, "truncation_side", "right"))
    if str(side).lower() == "left":
        return "truncation on the left (truncation_side, or truncation in tokenizer.json) is not supported, only right"
    if "message" in getattr(first, "modality_config", {}):
        return "its chat template is applied to every text, which is not supported; remove chat_template"
    if getattr(of, "split_special_tokens", False):
        return "split_special_tokens (tokenizer_config.json) is not supported"
    return (
        "a setting of its tokenizer is not supported: sentence-transformers reads a text as ids "
        f"{', '.join(map(str, expected[:6]))} ..., tokenizer.json as {', '.join(map(str, row[:6]))} ..."
    )
