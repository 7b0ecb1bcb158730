"""Any encoder as one torch module of ids and mask, for `torch.export`, computed by sentence-transformers' modules.

Written here: pooling, without branches on the mask's values; attention and masks in operators that both runtimes have
(registered with transformers under the name "msdc": stock attention decomposes into a safe softmax on portable kernels
of ExecuTorch); smoothing (`msdc.export.smoothing` without knowing the architecture) and int8 weights.

Shapes: B batch, T tokens, H hidden, N heads, K heads of keys and values (or inputs of a linear map), d width of a head,
V vocabulary, D sentence width.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from msdc.compress.quantization.rounding import torchao_weight
from msdc.compress.student.plan import int8_rows
from msdc.errors import InputError
from msdc.export.executorch.lower import TableInt8, from_int8
from msdc.export.smoothing import PowerMean, scales_for

# Attention's name, and what is added to the scores of padding.
NAME, NEGATIVE = "msdc", -1e9
# Modules of sentence-transformers that work under torch.export as they are.
PLAIN = ("Dense", "Normalize", "LayerNorm", "Dropout")
POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
LOWEST = -3.0e38
# Smaller tables stay in float.
LEAST_ROWS, LEAST_WIDTH = 8, 16


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    **unused: Any,
) -> tuple[Tensor, None]:
    """Attention of query [B, N, T, d] over key and value [B, K, T, d]: [B, T, N, d], and no weights.

    `attention_mask` is additive, [B or 1, 1, T or 1, T]; `position_bias` is added to the scores, [1, N, T, T].
    """
    del module, dropout, unused
    B, N, _, head_width = query.shape
    K = key.shape[1]
    scale = head_width**-0.5 if scaling is None else scaling
    query = query * scale if scale != 1.0 else query
    # A symbolic batch is no int.
    if isinstance(B, int) and B == 1:
        query, key, value = query.squeeze(0), key.squeeze(0), value.squeeze(0)
        if K != N:
            # A stack has known strides: a reshape would make torch.export guess them from the example.
            key, value = (torch.stack([x] * (N // K), dim=1).view(N, -1, head_width) for x in (key, value))
        scores = torch.bmm(query, key.transpose(1, 2))
        for extra in (position_bias, attention_mask):
            scores = scores if extra is None else scores + extra.squeeze(0)
        if softcap is not None:
            scores = torch.tanh(scores / softcap) * softcap
        return torch.bmm(scores.softmax(-1), value).permute(1, 0, 2).contiguous().unsqueeze(0), None
    if K != N:
        key, value = (x.repeat_interleave(N // K, dim=1) for x in (key, value))
    scores = torch.matmul(query, key.transpose(2, 3))
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    for extra in (position_bias, attention_mask):
        scores = scores if extra is None else scores + extra
    return torch.matmul(scores.softmax(-1), value).transpose(1, 2).contiguous(), None


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    *,
    mask_function: Any,
    attention_mask: Tensor | None = None,
    allow_is_bidirectional_skip: bool = False,
    **options: Any,
) -> Tensor | None:
    """The additive float mask that transformers asks for, [B, 1, T, T]; None where nothing is masked."""
    from transformers.masking_utils import sdpa_mask

    if attention_mask is None and allow_is_bidirectional_skip and not options.get("local_size"):
        return None
    options = {key: options[key] for key in ("q_offset", "kv_offset", "device", "use_vmap") if key in options}
    allowed = sdpa_mask(
        batch_size, q_length, kv_length, mask_function=mask_function, attention_mask=attention_mask,
        allow_is_causal_skip=False, allow_is_bidirectional_skip=False, **options,
    )  # fmt: skip
    assert allowed is not None
    return (1.0 - allowed.to(torch.float32)) * NEGATIVE


def pool(mode: str, hidden_BTH: Tensor, mask_BT: Tensor | None, prompt_B: Tensor | None = None) -> Tensor:
    """[B, H] of one pooling mode. Padding is on the right; with `prompt_B` the first tokens of each text, as many as it
    states, are left out.
    """
    if prompt_B is None:
        if mode == "cls":
            return hidden_BTH[:, 0]
        if mask_BT is None and mode == "lasttoken":
            return hidden_BTH[:, -1]
        if mask_BT is None and mode == "max":
            return hidden_BTH.amax(1)
        if mask_BT is None and mode == "mean":
            return hidden_BTH.mean(1)
    T = hidden_BTH.shape[1]
    number_T1 = torch.arange(1, T + 1, dtype=torch.float32).unsqueeze(-1)
    real_BT1 = torch.ones_like(hidden_BTH[:, :, :1]) if mask_BT is None else mask_BT.unsqueeze(-1).to(torch.float32)
    weight_BT1 = real_BT1
    if prompt_B is not None:
        prompt_B11 = prompt_B.to(torch.float32).view(-1, 1, 1)
        weight_BT1 = real_BT1 * (number_T1 > prompt_B11).to(torch.float32)
        if mode == "cls":
            # The first token after the prompt, as in sentence-transformers; the first of all where there is none.
            first_B11 = prompt_B11 * (prompt_B11 < T).to(torch.float32) + 1.0
            return (hidden_BTH * (number_T1 == first_B11).to(torch.float32)).sum(1)
    if mode == "max":
        return (hidden_BTH + (1.0 - weight_BT1) * LOWEST).amax(1)
    if mode == "lasttoken":
        # 1 at the last token: its number is the count of tokens.
        last_BT1 = (number_T1 == real_BT1.sum(1, keepdim=True)).to(torch.float32)
        return (hidden_BTH * (last_BT1 if prompt_B is None else last_BT1 * weight_BT1)).sum(1)
    if mode == "weightedmean":
        weight_BT1 = weight_BT1 * number_T1
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


class EmbeddingTable(nn.Module):
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
        self.width = 0
        # Its vectors depend on the padding of a batch (ConvBERT's convolutions): texts are run one by one.
        self.reads_padding = False

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
        if isinstance(first, EmbeddingTable):
            return first.tokens
        body = text_part(self.body)
        return body.get_input_embeddings()  # type: ignore[no-any-return]

    @property
    def architecture(self) -> str:
        """`model_type` of the body."""
        return "static" if self.body is None else str(text_part(self.body).config.model_type)

    @property
    def vocabulary(self) -> int:
        """Rows of the token table."""
        return int(self.tokens.weight.shape[0])

    @property
    def takes_prompt(self) -> bool:
        """Does its pooling leave the prompt's tokens out (`include_prompt: false`)? It then needs their number."""
        return any(isinstance(step, Pool) and not step.include_prompt for step in self.steps)

    @property
    def normalized(self) -> bool:
        """Whether the last step normalises."""
        return type(self.steps[-1]).__name__ == "Normalize"


def text_part(body: Any) -> Any:
    """The text tower of a model that also has others (CLIP)."""
    return getattr(body, "text_model", body)


def _step(module: nn.Module, first: bool, name: str) -> nn.Module:
    kind = type(module).__name__
    if kind == "StaticEmbedding" and first:
        bag: Any = module.embedding
        return EmbeddingTable(bag.weight)
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

    Attention and masks are made known to transformers as `attn_implementation="msdc"`.
    """
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(NAME, attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, mask)
    steps = [_step(module, i == 0, name) for i, module in enumerate(copy.deepcopy(list(modules)))]
    model = GenericModel(steps, name)
    _replace(model, _as_linear)
    body = model.body
    if body is not None:
        for config in {id(part.config): part.config for part in (body, text_part(body))}.values():
            config.use_cache = False
        body.set_attn_implementation(NAME if getattr(body, "_supports_sdpa", False) else "eager")
    model.width = int(reference_vectors(modules, [[min(3, model.vocabulary - 1)]]).shape[1])
    return model.float().eval().requires_grad_(False)


def _replace(model: nn.Module, other: Callable[[nn.Module], nn.Module | None]) -> None:
    """Put the `other` of every module inside `model` in its place; None keeps it."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if (new := other(child)) is not None:
                setattr(parent, name, new)


def _as_linear(module: nn.Module) -> nn.Module | None:
    """GPT-2's Conv1D, a linear map with a transposed weight, as the class that is smoothed and quantized."""
    from transformers.pytorch_utils import Conv1D

    if not isinstance(module, Conv1D):
        return None
    linear = nn.Linear(*module.weight.shape)
    linear.weight, linear.bias = nn.Parameter(module.weight.detach().T.contiguous()), module.bias
    return linear


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


class SmoothedLinear(nn.Module):
    """A linear map of `x * inverse`, its weight multiplied by 1 / `inverse`."""

    inverse: Tensor

    def __init__(self, linear: nn.Linear, scale_K: Tensor) -> None:
        super().__init__()
        self.linear = copy.copy(linear)
        self.linear._parameters = dict(linear._parameters)
        self.linear.weight = nn.Parameter(linear.weight.detach() * scale_K, requires_grad=False)
        self.register_buffer("inverse", 1.0 / scale_K)

    @property
    def weight(self) -> Tensor:
        """The smoothed weight; some models look at its type."""
        return self.linear.weight

    def forward(self, inputs: Tensor) -> Tensor:
        """[.., K] -> [.., N]."""
        product: Tensor = self.linear(inputs * self.inverse)
        return product


@torch.inference_mode()
def _sizes(model: GenericModel, rows: Sequence[Sequence[int]]) -> tuple[dict[str, PowerMean], dict[str, int]]:
    """Power mean of |x| per channel for each linear that reads a norm; a number that linears with one input share."""
    means: dict[str, PowerMean] = {}
    groups: dict[str, int] = {}
    # Kept alive until the end of the first row, so that no two inputs have one id.
    inputs_seen: list[Tensor] = []
    normed: list[Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            normed.append(output)

    def watch(name: str) -> Any:
        def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            if name not in groups:
                if not any(tensor is inputs[0] for tensor in normed):
                    return
                groups[name] = next(
                    (i for i, tensor in enumerate(inputs_seen) if tensor is inputs[0]), len(inputs_seen)
                )
                inputs_seen.append(inputs[0])
            means.setdefault(name, PowerMean()).add(inputs[0].numpy())

        return note

    hooks = [linear.register_forward_pre_hook(watch(name)) for name, linear in linears(model).items()]
    hooks += [m.register_forward_hook(keep) for m in model.modules() if type(m).__name__.endswith("Norm")]
    try:
        for row in rows:
            normed.clear()
            model(torch.tensor([list(row)], dtype=torch.int64))
    finally:
        for hook in hooks:
            hook.remove()
    return means, groups


def smooth_generic(model: GenericModel, rows: Sequence[Sequence[int]]) -> GenericModel:
    """A copy of `model` that computes the same, with smoothed inputs of its linear maps; `rows` calibrate.

    x W^T = (x / s) (s W)^T. Where the canonical exporter divides inside the norm before, the division is an operator of
    its own: one product per number of an activation. Only what comes out of a norm is smoothed, as there.
    """
    means, groups = _sizes(model, [row for row in rows if row])
    smoothed_model = _copy(model)
    smoothed = {name: smoothed_model.get_submodule(name) for name in means}
    for name, linear in smoothed.items():
        weights: list[Any] = [smoothed[other].weight for other in means if groups[other] == groups[name]]
        scale_K = scales_for(means[name].value, [weight.detach().float().cpu().numpy() for weight in weights])
        parent, _, leaf = name.rpartition(".")
        assert isinstance(linear, nn.Linear)
        setattr(smoothed_model.get_submodule(parent), leaf, SmoothedLinear(linear, torch.from_numpy(scale_K)))
    return smoothed_model


def _copy(model: GenericModel) -> GenericModel:
    """A copy that shares the weights."""
    return copy.deepcopy(model, {id(value): value for value in [*model.parameters(), *model.buffers()]})


class ScaledTable(nn.Module):
    """An int8 token table, times the factor that some models apply to its rows (Gemma)."""

    def __init__(self, tokens: nn.Embedding) -> None:
        super().__init__()
        part = int8_rows(tokens.weight.detach().cpu().numpy(), "tokens")
        factor: Any = getattr(tokens, "embed_scale", None)
        # Into the scales: one product less per token.
        scale_V1 = torch.from_numpy(part.scale)
        self.table = TableInt8(torch.from_numpy(part.values), scale_V1 if factor is None else scale_V1 * float(factor))

    def forward(self, ids_BT: Tensor) -> Tensor:
        """Rows [B, T, H] of ids [B, T]."""
        rows_BTH: Tensor = self.table(ids_BT)
        return rows_BTH


class RootMeanSquareNorm(nn.Module):
    """x * weight / sqrt(mean(x^2) + eps) in operators that XNNPACK delegates; the mean is a product with 1 / H."""

    mean: Tensor

    def __init__(self, weight_H: Tensor, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight_H.detach().clone(), requires_grad=False)
        self.register_buffer("mean", torch.full((1, len(weight_H)), 1.0 / len(weight_H)))
        self.eps = eps

    def forward(self, hidden: Tensor) -> Tensor:
        """The same shape, [.., H]."""
        square = nn.functional.linear(hidden * hidden, self.mean)
        return hidden * torch.rsqrt(square + self.eps) * self.weight


def _norm(module: nn.Module) -> nn.Module | None:
    kind = type(module).__name__
    weight: Any = getattr(module, "weight", None)
    if not kind.endswith(("RMSNorm", "T5LayerNorm")) or weight is None or weight.ndim != 1:
        return None
    eps: Any = next(value for value in (getattr(module, n, None) for n in ("eps", "variance_epsilon")) if value)
    # Gemma stores the weight minus one. Recognized by what the module computes, not by its name.
    probe = torch.full((1, len(weight)), 0.5)
    for offset in (0.0, 1.0):
        norm = RootMeanSquareNorm(weight.float() + offset, float(eps))
        if torch.allclose(norm(probe), module(probe), atol=1e-5, rtol=1e-4):
            return norm
    return None


def with_norms(model: GenericModel) -> GenericModel:
    """A copy whose RMS norms are written in delegated operators; weights are shared."""
    copied_model = _copy(model)
    _replace(copied_model, _norm)
    return copied_model


def linears(model: nn.Module) -> dict[str, nn.Linear]:
    """Every linear map by name."""
    return {name: module for name, module in model.named_modules() if type(module) is nn.Linear}


class Int8Table(TableInt8):
    """Another table in int8, of positions for example: `weight` is what some models (DeBERTa) read of it directly."""

    def __init__(self, table: nn.Embedding) -> None:
        part = int8_rows(table.weight.detach().cpu().numpy(), "table")
        super().__init__(torch.from_numpy(part.values), torch.from_numpy(part.scale))

    @property
    def weight(self) -> Tensor:
        """The rows as float32, [R, H]."""
        return from_int8(self.values) * self.scale


def is_large(shape: Sequence[int]) -> bool:
    """Whether a table is worth 8 bits: not the one of a few types, nor a number per head (T5's relative positions)."""
    return len(shape) == 2 and shape[0] > LEAST_ROWS and shape[1] >= LEAST_WIDTH


def quantized(model: GenericModel) -> GenericModel:
    """A copy with torchao's int8 linears (activations int8 per token) and int8 tables, for ExecuTorch."""
    quantized_model = copy.deepcopy(model)
    tokens = quantized_model.tokens

    def small(module: nn.Module) -> nn.Module | None:
        other = type(module) is nn.Embedding and module is not tokens and is_large(module.weight.shape)
        return Int8Table(module) if other else None  # type: ignore[arg-type]

    _replace(quantized_model, small)
    for name, linear in linears(quantized_model).items():
        part = int8_rows(linear.weight.detach().cpu().numpy(), name)
        linear.weight = nn.Parameter(torchao_weight(part), requires_grad=False)
    table = ScaledTable(quantized_model.tokens)
    if isinstance(quantized_model.steps[0], EmbeddingTable):
        quantized_model.steps[0].tokens = table
    else:
        text_part(quantized_model.body).set_input_embeddings(table)
    return quantized_model


def count_parameters(model: GenericModel) -> dict[str, int]:
    """`total`, `embedding` (the token table) and `encoder` parameters of what is exported."""
    body = text_part(model.body) if model.body is not None else None
    parts = [model] if body is None or body is model.body else [body, *model.steps[1:]]
    total = sum(math.prod(p.shape) for part in parts for p in {id(q): q for q in part.parameters()}.values())
    table = math.prod(model.tokens.weight.shape)
    return {"total": total, "embedding": table, "encoder": total - table}
