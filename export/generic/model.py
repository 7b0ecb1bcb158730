"""A sentence-transformers model as one torch module of ids and mask, for `torch.export`.

Its own modules compute everything but pooling, which is written here without branches on the mask's values.

Shapes: B batch, T tokens, H hidden, D sentence width.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from msdc.errors import InputError
from msdc.export.generic.attention import NAME, register

# Modules of sentence-transformers that work under torch.export as they are.
PLAIN = ("Dense", "Normalize", "LayerNorm", "Dropout")
POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
LOWEST = -3.0e38


def pool_after(mode: str, hidden_BTH: Tensor, mask_BT: Tensor | None, prompt_B: Tensor) -> Tensor:
    """[B, H] of one pooling mode over the tokens after the first `prompt_B` of each text."""
    T = hidden_BTH.shape[1]
    place_1T1 = torch.arange(0, T, dtype=torch.float32).view(1, T, 1)
    prompt_B11 = prompt_B.to(torch.float32).view(-1, 1, 1)
    real_BT1 = torch.ones_like(hidden_BTH[:, :, :1]) if mask_BT is None else mask_BT.unsqueeze(-1).to(torch.float32)
    weight_BT1 = real_BT1 * (place_1T1 >= prompt_B11).to(torch.float32)
    if mode == "max":
        return (hidden_BTH + (1.0 - weight_BT1) * LOWEST).amax(1)
    if mode == "cls":
        # The first token after the prompt, as in sentence-transformers; the first of all where there is none.
        first_B11 = prompt_B11 * (prompt_B11 < T).to(torch.float32)
        return (hidden_BTH * (place_1T1 == first_B11).to(torch.float32)).sum(1)
    if mode == "lasttoken":
        last_BT1 = (place_1T1 + 1.0 == real_BT1.sum(1, keepdim=True)).to(torch.float32)
        return (hidden_BTH * last_BT1 * weight_BT1).sum(1)
    if mode == "weightedmean":
        weight_BT1 = weight_BT1 * (place_1T1 + 1.0)
    count_B1 = weight_BT1.sum(1).clamp(min=1e-9)
    return (hidden_BTH * weight_BT1).sum(1) / (count_B1.sqrt() if mode == "mean_sqrt_len_tokens" else count_B1)


def pool(mode: str, hidden_BTH: Tensor, mask_BT: Tensor | None, prompt_B: Tensor | None = None) -> Tensor:
    """[B, H] of one pooling mode; mask None: no padding. Padding is on the right.

    With `prompt_B` the first tokens of each text, as many as it says, are left out.
    """
    if prompt_B is not None:
        return pool_after(mode, hidden_BTH, mask_BT, prompt_B)
    if mode == "cls":
        return hidden_BTH[:, 0]
    if mask_BT is None:
        if mode == "lasttoken":
            return hidden_BTH[:, -1]
        if mode == "max":
            return hidden_BTH.amax(1)
        if mode == "mean":
            return hidden_BTH.mean(1)
    T = hidden_BTH.shape[1]
    weight_BT1 = torch.ones_like(hidden_BTH[:, :, :1]) if mask_BT is None else mask_BT.unsqueeze(-1).to(torch.float32)
    if mode == "max":
        return (hidden_BTH + (1.0 - weight_BT1) * LOWEST).amax(1)
    if mode == "lasttoken":
        place_T1 = torch.arange(1, T + 1, dtype=torch.float32).unsqueeze(-1)
        # 1 at the last token: its number is the count of tokens.
        weight_BT1 = (place_T1 == weight_BT1.sum(1, keepdim=True)).to(torch.float32)
        return (hidden_BTH * weight_BT1).sum(1)
    if mode == "weightedmean":
        weight_BT1 = weight_BT1 * torch.arange(1, T + 1, dtype=torch.float32).unsqueeze(-1)
    count_B1 = weight_BT1.sum(1).clamp(min=1e-9)
    return (hidden_BTH * weight_BT1).sum(1) / (count_B1.sqrt() if mode == "mean_sqrt_len_tokens" else count_B1)


class Pool(nn.Module):
    """sentence-transformers' Pooling."""

    def __init__(self, modes: Sequence[str], include_prompt: bool = True) -> None:
        super().__init__()
        self.modes = tuple(modes)
        self.include_prompt = include_prompt

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        """Add `sentence_embedding` [B, D]."""
        hidden_BTH, mask_BT = features["token_embeddings"], features.get("attention_mask")
        prompt_B = None if self.include_prompt else features.get("prompt_tokens")
        parts = [pool(mode, hidden_BTH, mask_BT, prompt_B) for mode in self.modes]
        features["sentence_embedding"] = torch.cat(parts, dim=-1)
        return features


class Table(nn.Module):
    """StaticEmbedding: the mean of token rows, as a look-up and a masked mean."""

    def __init__(self, weight_VD: Tensor) -> None:
        super().__init__()
        self.tokens = nn.Embedding.from_pretrained(weight_VD.detach().float().clone())

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        """Add `sentence_embedding` [B, D]."""
        rows_BTD = self.tokens(features["input_ids"])
        features["sentence_embedding"] = pool("mean", rows_BTD, features.get("attention_mask"))
        return features


class GenericModel(nn.Module):
    """(ids_BT, mask_BT, prompt_B) -> sentence_BD; without a mask, every id is a real token.

    `prompt_B` (int64) is given where `takes_prompt`: the first tokens of each text that pooling leaves out.
    """

    def __init__(self, steps: Sequence[nn.Module], name: str = "model") -> None:
        super().__init__()
        self.steps = nn.ModuleList(steps)
        self.name = name

    def forward(self, ids_BT: Tensor, mask_BT: Tensor | None = None, prompt_B: Tensor | None = None) -> Tensor:
        """Shapes as in the class docstring."""
        features: dict[str, Any] = {"input_ids": ids_BT, "modality": "text"}
        if mask_BT is not None:
            features["attention_mask"] = mask_BT
        if prompt_B is not None:
            features["prompt_tokens"] = prompt_B
        for step in self.steps:
            features = step(features)
        sentence_BD: Tensor = features["sentence_embedding"]
        return sentence_BD

    @property
    def body(self) -> Any:
        """The transformers model; None for a static embedding."""
        return getattr(self.steps[0], "model", None)

    @property
    def tokens(self) -> nn.Embedding:
        """The token table."""
        first = self.steps[0]
        if isinstance(first, Table):
            return first.tokens
        body = text_part(self.body)
        return body.get_input_embeddings()  # type: ignore[no-any-return]

    @property
    def architecture(self) -> str:
        """`model_type` of the body."""
        return "static" if self.body is None else str(text_part(self.body).config.model_type)

    @property
    def takes_prompt(self) -> bool:
        """Does its pooling leave the prompt's tokens out (`include_prompt: false`)? It then needs their number."""
        return any(isinstance(step, Pool) and not step.include_prompt for step in self.steps)

    @property
    def normalized(self) -> bool:
        """Is the last step a normalisation?"""
        return type(self.steps[-1]).__name__ == "Normalize"


def text_part(body: Any) -> Any:
    """The text tower of a model that also has others (CLIP)."""
    return getattr(body, "text_model", body)


def _step(module: nn.Module, first: bool, name: str) -> nn.Module:
    kind = type(module).__name__
    if kind == "StaticEmbedding" and first:
        bag: Any = module.embedding
        return Table(bag.weight)
    if kind == "Pooling":
        modes: Any = module.pooling_mode
        modes = (modes,) if isinstance(modes, str) else tuple(modes)
        unknown = [mode for mode in modes if mode not in POOLINGS]
        if unknown:
            raise InputError(f"{name}: pooling {unknown[0]!r} cannot be exported; known: {', '.join(POOLINGS)}")
        return Pool(modes, bool(module.include_prompt))
    if kind in PLAIN or (first and hasattr(module, "model")):
        return module
    raise InputError(f"{name}: a module of kind {kind} cannot be exported")


def generic_model(modules: Sequence[nn.Module], name: str = "model") -> GenericModel:
    """Copies of the modules of a SentenceTransformer as a `GenericModel`: float32, attention that exports.

    Raises:
        InputError: a module that cannot be exported.
    """
    register()
    steps = [_step(module, i == 0, name) for i, module in enumerate(copy.deepcopy(list(modules)))]
    model = GenericModel(steps, name)
    body = model.body
    if body is not None:
        for config in {id(part.config): part.config for part in (body, text_part(body))}.values():
            config.use_cache = False
        body.set_attn_implementation(NAME if getattr(body, "_supports_sdpa", False) else "eager")
    return model.float().eval().requires_grad_(False)


@torch.inference_mode()
def reference_vectors(
    modules: Sequence[nn.Module], rows: Sequence[Sequence[int]], prompt_tokens: int = 0
) -> np.ndarray:
    """Vectors of the untouched modules, float32 [N, D], one row of ids at a time; see `Runner.run`."""
    vectors = []
    for row in rows:
        ids_1T = torch.tensor([list(row)], dtype=torch.int64)
        features: dict[str, Any] = {"input_ids": ids_1T, "attention_mask": torch.ones_like(ids_1T), "modality": "text"}
        if type(modules[0]).__name__ == "StaticEmbedding":
            features = {"input_ids": ids_1T[0], "offsets": torch.zeros(1, dtype=torch.int64)}
        if prompt_tokens:
            features["prompt_length"] = prompt_tokens
        for module in modules:
            features = module(features)
        vectors.append(features["sentence_embedding"][0].float().numpy())
    return np.stack(vectors)
