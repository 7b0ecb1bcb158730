"""The student: a post-norm transformer of a few recurring layers, whose token table may be narrow or coded.

Source: Ding et al. 2022 (multi-stage distillation), parameter recurrence and embedding bottleneck.

Shapes: B batch, T tokens, E width of the token table, H hidden, D sentence width, V vocabulary, N heads.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from msdc.compress.student.coded_table import Code
from msdc.compress.student.config import INDEX
from msdc.compress.student.config import StudentConfig as StudentConfig
from msdc.compress.student.plan import PrecisionPlan
from msdc.compress.student.weights import StudentWeights

ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "tanh": torch.tanh,
    "identity": lambda x: x,
}


def _embedding(rows: int, width: int) -> nn.Embedding:
    """A table; on `meta` without its random numbers, whose operator imports the whole compiler there (torch 2.13)."""
    weight = torch.empty(rows, width)
    return nn.Embedding(rows, width, _weight=weight) if weight.is_meta else nn.Embedding(rows, width)


class Embedding(nn.Module):
    """ids_BT -> hidden_BTH: token row, bottleneck map, position, layer norm, in the order that `place` sets.

    A static student has the rows alone.
    """

    position: nn.Embedding
    norm: nn.LayerNorm

    def __init__(self, config: StudentConfig) -> None:
        super().__init__()
        self.config = config
        at_word = config.bottleneck is not None and config.place == "word"
        norm_width = config.table_width if config.place == "embedding" else config.hidden
        self.table = _embedding(config.table_rows, config.table_width)
        self.code: Code | None = None
        if config.base_rows is not None and config.nonzeros is not None:
            self.code = Code(config.vocabulary, config.base_rows, config.nonzeros)
        self.project: nn.Linear | None = None
        if config.bottleneck is not None:
            self.project = nn.Linear(config.bottleneck, config.hidden, bias=not at_word)
        if not config.static:
            self.position = _embedding(config.positions, norm_width)
            self.norm = nn.LayerNorm(norm_width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids_BT: Tensor) -> Tensor:
        """Hidden states before the first layer, [B, T, H]."""
        return self.finish(self.table(ids_BT) if self.code is None else self.code(ids_BT, self.table))

    def finish(self, hidden: Tensor) -> Tensor:
        """The output for token rows, [B, T, E] -> [B, T, H]."""
        if self.config.static:
            return self.dropout(hidden)
        if self.project is not None and self.config.place == "word":
            hidden = self.project(hidden)
        hidden = self.norm(hidden + self.position.weight[: hidden.shape[1]])
        hidden = self.dropout(hidden)
        if self.project is not None and self.config.place == "embedding":
            hidden = self.project(hidden)
        return hidden

    def rows(self) -> Tensor:
        """One row per token, [V, E]: the stored table, or a coded one multiplied out."""
        return self.table.weight if self.code is None else self.code.rows(self.table.weight)


def dot_product_attention(
    query_BhTd: Tensor, key_BhTd: Tensor, value_BhTd: Tensor, attend_B11T: Tensor | None, dropout_p: float
) -> Tensor:
    """Scaled dot-product attention, [B, h, T, d].

    In bfloat16 on a CPU the products are written out: the backward pass of the fused kernel takes ten times as long
    (torch 2.13), more than half of a training step.
    """
    written_out = query_BhTd.requires_grad and query_BhTd.dtype == torch.bfloat16 and query_BhTd.device.type == "cpu"
    if not written_out:
        return F.scaled_dot_product_attention(
            query_BhTd, key_BhTd, value_BhTd, attn_mask=attend_B11T, dropout_p=dropout_p
        )
    score_BhTT = (query_BhTd * query_BhTd.shape[-1] ** -0.5) @ key_BhTd.transpose(-1, -2)
    if attend_B11T is not None:
        score_BhTT = score_BhTT.masked_fill(~attend_B11T, float("-inf"))
    return F.dropout(score_BhTT.softmax(-1).to(value_BhTd.dtype), dropout_p) @ value_BhTd


class Layer(nn.Module):
    """One post-norm transformer layer (BERT's): attention, add, norm, feed-forward, add, norm."""

    def __init__(self, config: StudentConfig) -> None:
        super().__init__()
        H, I = config.hidden, config.intermediate
        self.heads = config.heads
        self.activation = ACTIVATIONS[config.activation]
        self.query, self.key, self.value, self.output = (nn.Linear(H, H) for _ in range(4))
        self.attention_norm = nn.LayerNorm(H, eps=config.layer_norm_eps)
        self.up = nn.Linear(H, I)
        self.down = nn.Linear(I, H)
        self.output_norm = nn.LayerNorm(H, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, hidden_BTH: Tensor, attend_B11T: Tensor | None) -> Tensor:
        """Hidden states after the layer, [B, T, H]; `attend_B11T` is true on real tokens, None where all are."""
        B, T, H = hidden_BTH.shape

        def split(x_BTH: Tensor) -> Tensor:
            return x_BTH.view(B, T, self.heads, H // self.heads).transpose(1, 2)

        query, key, value = (split(part(hidden_BTH)) for part in (self.query, self.key, self.value))
        context = dot_product_attention(query, key, value, attend_B11T, self.dropout.p if self.training else 0.0)
        context_BTH = context.transpose(1, 2).reshape(B, T, H)
        hidden_BTH = self.attention_norm(hidden_BTH + self.dropout(self.output(context_BTH)))
        inner_BTI = self.activation(self.up(hidden_BTH))
        return self.output_norm(hidden_BTH + self.dropout(self.down(inner_BTI)))


def pool_tokens(hidden_BTH: Tensor, mask_BT: Tensor, how: str) -> Tensor:
    """Sentence vector before dense and norm, [B, H]; `how` is mean, cls or max over the unmasked tokens."""
    if how == "cls":
        return hidden_BTH[:, 0]
    mask_BT1 = mask_BT.unsqueeze(-1).to(hidden_BTH.dtype)
    if how == "max":
        return hidden_BTH.masked_fill(mask_BT1 == 0, torch.finfo(hidden_BTH.dtype).min).max(1).values
    return (hidden_BTH * mask_BT1).sum(1) / mask_BT1.sum(1).clamp(min=1e-9)


def _attended(mask_BT: Tensor) -> Tensor | None:
    # Batches of one length need no mask; attention without a mask has a faster kernel.
    # Elsewhere than on the CPU the answer would wait for the device.
    full = mask_BT.device.type == "cpu" and bool(mask_BT.all())
    return None if full else mask_BT.bool()[:, None, None, :]


class Student(nn.Module):
    """Sentence encoder with cyclic parameter recurrence and an embedding bottleneck."""

    def __init__(self, config: StudentConfig) -> None:
        super().__init__()
        self.config = config
        # Scales, [R, G] each, and plan of the quantized folder that it was read from; none for a float student.
        self.stored_scales: dict[str, NDArray[np.float32]] = {}
        self.stored_plan: PrecisionPlan | None = None
        self.embedding = Embedding(config)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.unit))
        self.dense = nn.Linear(config.hidden, config.dense, bias=config.dense_bias) if config.dense else None
        self.apply(self._initialise)

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)) and not module.weight.is_meta:
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    @property
    def width(self) -> int:
        """D, the width of a sentence vector."""
        return self.config.width

    def to_numpy(self) -> StudentWeights:
        """The weights as numpy arrays; those of a float32 student on the CPU share its memory."""
        arrays = {
            name: (value if name == INDEX else value.float()).detach().cpu().numpy()
            for name, value in self.state_dict().items()
        }
        return StudentWeights(self.config, arrays, dict(self.stored_scales), self.stored_plan)

    def embed(self, ids_BT: Tensor) -> Tensor:
        """Output of the embedding layer, [B, T, H] (what eq. 3 compares)."""
        return self.embedding(ids_BT)

    def unit(self, hidden_BTH: Tensor, attend_B11T: Tensor | None = None) -> Tensor:
        """One pass through the recurring unit."""
        for layer in self.layers:
            hidden_BTH = layer(hidden_BTH, attend_B11T)
        return hidden_BTH

    def head(self, hidden_BTH: Tensor, mask_BT: Tensor) -> Tensor:
        """Pooling, dense and normalisation: [B, T, H] -> [B, D]."""
        sentence = pool_tokens(hidden_BTH, mask_BT, self.config.pooling)
        if self.dense is not None:
            sentence = ACTIVATIONS[self.config.dense_activation](self.dense(sentence))
        return F.normalize(sentence, dim=-1) if self.config.normalize else sentence

    def hidden(self, ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Last hidden states, [B, T, H]."""
        attend = _attended(mask_BT)
        hidden_BTH = self.embed(ids_BT)
        for _ in range(self.config.repeats):
            hidden_BTH = self.unit(hidden_BTH, attend)
        return hidden_BTH

    @property
    def depth(self) -> int:
        """Applied layers; a recurring one counts each time."""
        return len(self.layers) * self.config.repeats

    def layer_states(self, ids_BT: Tensor, mask_BT: Tensor, layer_numbers: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Sentence vectors [B, D] and the first token's states after the `layer_numbers` applied layers, [B, L, H].

        Layers are counted from 1 to `depth`.
        """
        attend = _attended(mask_BT)
        hidden_BTH = self.embed(ids_BT)
        states = {}
        for number in range(1, self.depth + 1):
            hidden_BTH = self.layers[(number - 1) % len(self.layers)](hidden_BTH, attend)
            if number in layer_numbers:
                states[number] = hidden_BTH[:, 0]
        empty_BLH = hidden_BTH.new_zeros(len(ids_BT), 0, hidden_BTH.shape[2])
        states_BLH = torch.stack([states[number] for number in layer_numbers], 1) if layer_numbers else empty_BLH
        return self.head(hidden_BTH, mask_BT), states_BLH

    def forward(self, ids_BT: Tensor, mask_BT: Tensor, skip: int = 0) -> Tensor:
        """Sentence vectors [B, D] of token ids [B, T] whose mask is 1 on real tokens; `skip` first are not pooled."""
        hidden_BTH = self.hidden(ids_BT, mask_BT)
        return self.head(hidden_BTH[:, skip:], mask_BT[:, skip:]) if skip else self.head(hidden_BTH, mask_BT)


def with_state(config: StudentConfig, state: dict[str, Tensor]) -> Student:
    """The student of a state dict, in eval mode; its parameters are these tensors."""
    with torch.device("meta"):
        student = Student(config)
    student.load_state_dict(state, assign=True)
    return student.eval()


def student_of(weights: StudentWeights) -> Student:
    """The student of some weights, in eval mode; it shares their memory."""
    # Arrays that are read-only belong to others.
    state = {name: torch.from_numpy(v if v.flags.writeable else v.copy()) for name, v in weights.arrays.items()}
    student = with_state(weights.config, state)
    student.stored_scales, student.stored_plan = dict(weights.scales), weights.plan
    return student
