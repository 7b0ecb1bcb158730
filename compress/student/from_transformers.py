"""Stock encoders as students: BERT, RoBERTa / XLM-R / CamemBERT, DistilBERT and ALBERT in the one canonical class.

What differs between the families is folded away, so that everything after this file knows one model:
* token types: a sentence encoder only ever uses type 0, so its row is added to every position;
* positions: RoBERTa's first position is pad id + 1; those leading rows are dropped;
* ALBERT's inner groups are the recurring unit (num_hidden_groups = 1): unit = inner_group_num, repeats =
  num_hidden_layers. Several groups are not cyclic and become a plain stack.

Shapes: V vocabulary, H hidden, P positions.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from msdc.compress.student.model import Student, StudentConfig
from msdc.encoders.encoder import Encoder, load_encoder
from msdc.encoders.folder import read_layout
from msdc.encoders.stock import SentenceModel
from msdc.errors import InputError

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_new", "gelu_pytorch_tanh": "gelu_new", "relu": "relu"}
State = dict[str, Tensor]


@dataclass(frozen=True)
class Family:
    """Where one family keeps what: a pattern for its layers, and our part names by its own."""

    layer: str
    parts: dict[str, str]
    layers: Callable[[Any], list[tuple[int, ...]]]
    hidden: str = "hidden_size"
    heads: str = "num_attention_heads"
    intermediate: str = "intermediate_size"
    activation: str = "hidden_act"
    dropout: str = "hidden_dropout_prob"
    # RoBERTa counts positions from here: pad id + offset
    position_offset: bool = False


_BERT_PARTS = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "output_norm": "output.LayerNorm",
}


def _stack(config: Any) -> list[tuple[int, ...]]:
    return [(index,) for index in range(config.num_hidden_layers)]


def _albert_stack(config: Any) -> list[tuple[int, ...]]:
    layers, groups, inner = config.num_hidden_layers, config.num_hidden_groups, config.inner_group_num
    if groups == 1:
        return [(0, index) for index in range(inner)]
    # The formula of AlbertTransformer.forward.
    return [(int(i / (layers / groups)), index) for i in range(layers) for index in range(inner)]


_BERT = Family("encoder.layer.{}", _BERT_PARTS, _stack)
_ROBERTA = Family("encoder.layer.{}", _BERT_PARTS, _stack, position_offset=True)
FAMILIES = {
    "bert": _BERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "distilbert": Family(
        "transformer.layer.{}",
        {
            "query": "attention.q_lin",
            "key": "attention.k_lin",
            "value": "attention.v_lin",
            "output": "attention.out_lin",
            "attention_norm": "sa_layer_norm",
            "up": "ffn.lin1",
            "down": "ffn.lin2",
            "output_norm": "output_layer_norm",
        },
        lambda config: [(index,) for index in range(config.n_layers)],
        hidden="dim",
        heads="n_heads",
        intermediate="hidden_dim",
        activation="activation",
        dropout="dropout",
    ),
    "albert": Family(
        "encoder.albert_layer_groups.{}.albert_layers.{}",
        {
            "query": "attention.query",
            "key": "attention.key",
            "value": "attention.value",
            "output": "attention.dense",
            "attention_norm": "attention.LayerNorm",
            "up": "ffn",
            "down": "ffn_output",
            "output_norm": "full_layer_layer_norm",
        },
        _albert_stack,
    ),
}


def _known(model_type: str, where: str) -> Family:
    if model_type not in FAMILIES:
        raise InputError(
            f"{where}: models of type {model_type!r} cannot be compressed; known: {', '.join(sorted(FAMILIES))}"
        )
    return FAMILIES[model_type]


def _positions(state: State, family: Family, pad_id: int, max_length: int) -> Tensor:
    """Position rows [P, .] that real tokens meet, with the row of token type 0 added."""
    rows = state["embeddings.position_embeddings.weight"]
    if family.position_offset:
        rows = rows[pad_id + 1 :]
    rows = rows[:max_length]
    types = state.get("embeddings.token_type_embeddings.weight")
    return (rows if types is None else rows + types[0]).clone()


@dataclass(frozen=True)
class Head:
    """What follows the transformer, as far as the canonical class has it."""

    pooling: str
    dense: torch.nn.Linear | None
    activation: str
    normalize: bool


def student_head(model: SentenceModel, where: str) -> Head:
    """Pooling, at most one dense layer, normalisation, in this order.

    Raises:
        InputError: other modules, or a setting that the canonical class does not have.
    """
    kinds = [type(module).__name__ for module in model.after]
    wanted = [kind for kind in kinds if kind != "Dropout"]
    if wanted not in (["Pooling"], ["Pooling", "Normalize"], ["Pooling", "Dense"], ["Pooling", "Dense", "Normalize"]):
        raise InputError(
            f"{where}: cannot become a student: its modules {', '.join(kinds) or 'end with the transformer'}; a "
            "student has Pooling, at most one Dense, and Normalize"
        )
    found: dict[str, Any] = {type(module).__name__: module for module in model.after}
    pooling, dense = found["Pooling"], found.get("Dense")
    modes = [pooling.pooling_mode] if isinstance(pooling.pooling_mode, str) else list(pooling.pooling_mode)
    if len(modes) != 1 or modes[0] not in ("mean", "cls", "max"):
        raise InputError(f"{where}: cannot become a student: pooling {', '.join(modes)}; known: mean, cls, max")
    if dense is None:
        return Head(modes[0], None, "identity", "Normalize" in found)
    activation = type(dense.activation_function).__name__.lower()
    if getattr(dense.activation_function, "approximate", "none") != "none":
        activation += f" ({dense.activation_function.approximate})"
    if activation not in ("identity", "tanh", "relu", "gelu") or dense.use_residual:
        raise InputError(f"{where}: cannot become a student: a Dense with {activation} or a residual connection")
    return Head(modes[0], dense.linear, activation, "Normalize" in found)


def check_convertible(model: SentenceModel, where: str = "model") -> None:
    """Refuse what `convert` cannot turn into a student.

    Raises:
        InputError: a family, an activation, a position scheme, an attention or a head that the canonical class does not
            have.
    """
    source: Any = model.body.config
    family = _known(source.model_type, where)
    if getattr(source, "position_embedding_type", "absolute") not in (None, "absolute"):
        raise InputError(f"{where}: {source.position_embedding_type} positions are not supported, only absolute ones")
    if getattr(source, "is_decoder", False):
        raise InputError(f"{where}: causal attention (is_decoder) is not supported")
    activation = getattr(source, family.activation)
    if activation not in ACTIVATIONS:
        raise InputError(f"{where}: activation {activation!r} is not supported; known: {', '.join(ACTIVATIONS)}")
    student_head(model, where)


def _config(model: SentenceModel, family: Family, stack: int, positions: int, where: str) -> StudentConfig:
    source: Any = model.body.config
    activation = getattr(source, family.activation)
    albert = source.model_type == "albert"
    body: Any = model.body
    table = body.get_input_embeddings().weight
    head = student_head(model, where)
    dense = head.dense
    return StudentConfig(
        vocabulary=table.shape[0],
        hidden=getattr(source, family.hidden),
        heads=getattr(source, family.heads),
        intermediate=getattr(source, family.intermediate),
        unit=stack,
        repeats=source.num_hidden_layers if albert and source.num_hidden_groups == 1 else 1,
        bottleneck=table.shape[1] if albert else None,
        place="embedding" if albert else "word",
        positions=positions,
        activation=ACTIVATIONS[activation],  # type: ignore[arg-type]
        # DistilBERT has no such setting; its code says 1e-12.
        layer_norm_eps=getattr(source, "layer_norm_eps", 1e-12),
        dropout=float(getattr(source, family.dropout)),
        pooling=head.pooling,  # type: ignore[arg-type]
        dense=None if dense is None else dense.out_features,
        dense_activation=head.activation,  # type: ignore[arg-type]
        dense_bias=dense is None or dense.bias is not None,
        normalize=head.normalize,
        pad_id=int(source.pad_token_id or 0),
    )


def convert(model: SentenceModel, max_length: int, where: str = "model") -> Student:
    """The student that computes what `model` computes, in eval mode; its weights are the model's own tensors.

    `max_length` is the longest input in tokens; later position rows are dropped.

    Raises:
        InputError: a family, an activation or a position scheme that the canonical class does not have.
    """
    check_convertible(model, where)
    source: Any = model.body.config
    family = FAMILIES[source.model_type]
    state = {name: value.detach() for name, value in model.body.state_dict().items()}
    stack = family.layers(source)
    position = _positions(state, family, int(source.pad_token_id or 0), max_length)
    config = _config(model, family, len(stack), position.shape[0], where)
    ours: State = {"embedding.table.weight": state["embeddings.word_embeddings.weight"]}
    ours["embedding.position.weight"] = position
    for kind in ("weight", "bias"):
        ours[f"embedding.norm.{kind}"] = state[f"embeddings.LayerNorm.{kind}"]
        if config.bottleneck is not None:
            ours[f"embedding.project.{kind}"] = state[f"encoder.embedding_hidden_mapping_in.{kind}"]
        for index, place in enumerate(stack):
            for part, theirs in family.parts.items():
                value = state[f"{family.layer.format(*place)}.{theirs}.{kind}"]
                # A group that is applied twice in a row becomes two layers; each must own its weights.
                ours[f"layers.{index}.{part}.{kind}"] = value.clone() if place in stack[:index] else value
    dense = student_head(model, where).dense
    if dense is not None:
        ours |= {f"dense.{name}": value.detach() for name, value in dense.state_dict().items()}
    with torch.device("meta"):
        student = Student(config)
    student.load_state_dict(ours, assign=True)
    return student.requires_grad_(True).eval()


def from_stock(folder: str | Path) -> Student:
    """Read a sentence-transformers folder of a known family, with its pooling, dense layer and normalisation.

    Equal to the stock model on every text: `positions` is the folder's own longest input.

    Raises:
        InputError: not a model folder, damaged, or of a kind that is not supported.
    """
    _known(read_layout(folder).model_type, str(folder))
    encoder = load_encoder(folder)
    if not isinstance(encoder.module, SentenceModel):
        raise InputError(f"{folder}: not a stock transformer")
    return convert(encoder.module, encoder.max_length, str(folder))


def to_student(encoder: Encoder) -> Student:
    """The encoder's module as a student: our own as it is, a stock one converted into weights of its own.

    Raises:
        InputError: an encoder of a kind that is not supported.
    """
    if not encoder.defaults.include_prompt and any(encoder.defaults.prompts.values()):
        raise InputError(f"{encoder.name}: pools without its prompts' tokens (include_prompt), which a student cannot")
    if isinstance(encoder.module, Student):
        return encoder.module
    if not isinstance(encoder.module, SentenceModel):
        raise InputError(f"{encoder.name}: a {type(encoder.module).__name__} cannot be converted into a student")
    # Copied, because the encoder is still used: training the student must not change its guide.
    return copy.deepcopy(convert(encoder.module, encoder.max_length, encoder.name))
