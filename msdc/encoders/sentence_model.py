"""A sentence-transformers model as one torch module over token ids: its own modules, run in its own order.

Shapes: B batch, T tokens, H hidden, D sentence width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from msdc.encoders.layout import POSITIONS_AFTER_PAD, Layout, check_layout, read_layout
from msdc.errors import InputError
from msdc.extras import require

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from msdc.encoders.encoder import Encoder

# max_length of models that state none (static embeddings, T5's relative positions).
UNLIMITED = 2**20


def folder_modules(module: Any, where: str) -> list[nn.Module]:
    """The modules of the folder as sentence-transformers made them.

    Raises:
        InputError: a model that only this project loads.
    """
    if not isinstance(module, SentenceModel | StaticModel):
        raise InputError(f"{where}: not a model of sentence-transformers' own modules")
    return [module.first[0], *module.after]


class SentenceModel(nn.Module):
    """(ids_BT, mask_BT) -> sentence_BD for any text model that sentence-transformers loads.

    `transformer` is its first module, `after` the others: pooling, dense layers, normalisation.
    """

    def __init__(self, transformer: nn.Module, after: Sequence[nn.Module], width: int) -> None:
        super().__init__()
        self.transformer = transformer
        self.first = (transformer,)
        self.after = nn.ModuleList(after)
        self.width = width

    @property
    def body(self) -> Any:
        """The model of `transformers`."""
        return self.transformer.model

    def embed(self, ids_BT: Tensor) -> Tensor:
        """Output of the embedding layer, [B, T, H or E]."""
        hidden_BTH: Tensor = self.body.embeddings(ids_BT)
        return hidden_BTH

    def hidden(self, ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Last hidden states, [B, T, H]."""
        hidden_BTH: Tensor = self.body(input_ids=ids_BT, attention_mask=mask_BT.long()).last_hidden_state
        return hidden_BTH

    def states(self, ids_BT: Tensor, mask_BT: Tensor) -> tuple[Tensor, ...]:
        """Hidden states after the embedding and after every layer, each [B, T, H]."""
        output = self.body(input_ids=ids_BT, attention_mask=mask_BT.long(), output_hidden_states=True)
        states: tuple[Tensor, ...] = output.hidden_states
        return states

    def _finish(self, features: dict[str, Any], skip: int = 0) -> Tensor:
        if skip:
            features["prompt_length"] = skip
        for module in self.after:
            features = module(features)
        sentence_BD: Tensor = features["sentence_embedding"]
        return sentence_BD

    def head(self, hidden_BTH: Tensor, mask_BT: Tensor) -> Tensor:
        """Pooling, dense layers and normalisation: [B, T, H] -> [B, D]."""
        return self._finish({"token_embeddings": hidden_BTH, "attention_mask": mask_BT.long()})

    def forward(self, ids_BT: Tensor, mask_BT: Tensor, skip: int = 0) -> Tensor:
        """Sentence vectors [B, D] of token ids [B, T] whose mask is 1 on real tokens.

        `skip` is the number of first tokens that a pooling with `include_prompt: false` leaves out.
        """
        features = {"input_ids": ids_BT, "attention_mask": mask_BT.long(), "modality": "text"}
        return self._finish(self.transformer(features), skip)


class StaticModel(nn.Module):
    """(ids_BT, mask_BT) -> sentence_BD: the mean of table rows, then what follows in the folder. No token: zeros."""

    def __init__(self, embedding: nn.Module, after: Sequence[nn.Module], width: int) -> None:
        super().__init__()
        # In a tuple, so that its weights are not counted twice.
        self.first = (embedding,)
        bag: Any = embedding.embedding
        table_VH = bag.weight.detach()
        self.table = nn.Embedding(table_VH.shape[0], table_VH.shape[1], _weight=table_VH.float())
        self.after = nn.ModuleList(after)
        self.width = width

    def forward(self, ids_BT: Tensor, mask_BT: Tensor, skip: int = 0) -> Tensor:
        """Sentence vectors [B, D] of token ids [B, T] whose mask is 1 on real tokens."""
        del skip
        mask_BT1 = mask_BT.unsqueeze(-1).float()
        rows_BTH = F.embedding(ids_BT, self.table.weight)
        features = {"sentence_embedding": (rows_BTH * mask_BT1).sum(1) / mask_BT1.sum(1).clamp(min=1.0)}
        for module in self.after:
            features = module(features)
        return features["sentence_embedding"]


def open_sentence_transformer(layout: Layout, trust_remote_code: bool = False) -> SentenceTransformer:
    """The folder as sentence-transformers loads it, in float32 on the CPU, after `check_layout`.

    Raises:
        InputError: weights that are not safetensors, damaged files, or an architecture that needs remote code.
    """
    import logging

    require("sentence_transformers", f"{layout.folder.name}, a stock model,")
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]
    check_layout(layout)
    from sentence_transformers import SentenceTransformer

    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    try:
        return SentenceTransformer(
            str(layout.folder),
            device="cpu",
            trust_remote_code=trust_remote_code,
            local_files_only=True,
            model_kwargs={"use_safetensors": True, "dtype": torch.float32},
        ).eval()
    except Exception as error:
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise InputError(f"{layout.folder}: sentence-transformers cannot load it: {reason}") from error


def wrap(model: SentenceTransformer, where: str) -> SentenceModel | StaticModel:
    """The torch module of a loaded model.

    Raises:
        InputError: a model that gives no sentence vector, or is no text model.
    """
    first, *after = list(model)
    width = model.get_embedding_dimension()
    if type(first).__name__ == "StaticEmbedding":
        return StaticModel(first, after, int(width or cast(Any, first).embedding_dim))
    modalities: Any = getattr(first, "modality_config", {})
    if "text" not in modalities:
        raise InputError(f"{where}: not a text model (it takes {', '.join(map(str, modalities)) or 'nothing known'})")
    if width is None:
        raise InputError(f"{where}: the width of its vectors is unknown")
    return SentenceModel(first, after, int(width)).float().eval()


def includes_prompt(model: SentenceTransformer) -> bool:
    """Are the prompt's tokens pooled? False if a pooling module has `include_prompt: false`."""
    return all(getattr(module, "include_prompt", True) for module in model)


def longest_input(model: SentenceTransformer) -> int:
    """Tokens per text, special ids included; positions that do not exist are never used."""
    first: Any = model[0]
    limit = first.max_seq_length
    longest = UNLIMITED if limit is None or limit > UNLIMITED else int(limit)
    config = getattr(getattr(first, "model", None), "config", None)
    if config is None:
        return longest
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    positions = getattr(config, "max_position_embeddings", None) or 0
    if positions <= 0:
        return longest
    pad = int(getattr(config, "pad_token_id", 0) or 0)
    return min(longest, positions - (pad + 1 if config.model_type in POSITIONS_AFTER_PAD else 0))


def own_vectors(encoder: Encoder, texts: Sequence[str], max_length: int, prompt: str = "") -> np.ndarray | None:
    """Vectors [N, D] of `texts` by `SentenceTransformer.encode` of the encoder's folder, at full width.

    `prompt` is put before each of them, and no other one. None for a folder that only this project loads.
    """
    if encoder.folder is None or not isinstance(encoder.module, SentenceModel | StaticModel):
        return None
    model = open_sentence_transformer(read_layout(encoder.folder))
    model.truncate_dim = None
    if isinstance(encoder.module, SentenceModel):
        model.max_seq_length = max_length
    else:
        first: Any = model[0]
        first.tokenizer.enable_truncation(max_length)
    vectors_ND: np.ndarray = model.encode(list(texts), prompt=prompt, batch_size=8, show_progress_bar=False)
    return vectors_ND.astype(np.float32)
