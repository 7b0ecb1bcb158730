"""Stock encoders as students, and students as stock encoders.

From BERT, RoBERTa / XLM-R / CamemBERT, DistilBERT and ALBERT; what differs between the families is folded away:
* token types: a sentence encoder only ever uses type 0, so its row is added to every position;
* positions: RoBERTa's first position is pad id + 1; those leading rows are dropped;
* ALBERT's inner groups are the recurring unit (num_hidden_groups = 1): unit = inner_group_num, repeats =
  num_hidden_layers. Several groups are not cyclic and become a plain stack.

To stock classes, so that plain `SentenceTransformer(path)` loads a student without our code:
* `place: embedding` is an AlbertModel (num_hidden_groups = 1, inner_group_num = unit, num_hidden_layers = repeats);
* any other student equals a BertModel once its table is multiplied out to V x H and its recurrence unrolled;
* a coded table is multiplied out in either case.

Shapes: V vocabulary, E table width, H hidden, P positions.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from msdc.compress.student.config import TABLE, StudentConfig
from msdc.compress.student.model import Student, with_state
from msdc.encoders.encoder import Encoder, load_encoder
from msdc.encoders.folder import read_layout
from msdc.encoders.stock import SentenceModel
from msdc.errors import InputError
from msdc.files import write_json

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
    """Pooling, at most one dense layer, normalisation, in this order."""
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


def check_convertible(model: SentenceModel, where: str = "model") -> Head:
    """The head of a model that `convert` can turn into a student.

    Raises:
        InputError: a family, an activation, a position scheme, an attention or a head that the canonical class does not
            have.
    """
    source: Any = model.body.config
    activation = getattr(source, _known(source.model_type, where).activation)
    if getattr(source, "position_embedding_type", "absolute") not in (None, "absolute"):
        raise InputError(f"{where}: {source.position_embedding_type} positions are not supported, only absolute ones")
    if getattr(source, "is_decoder", False):
        raise InputError(f"{where}: causal attention (is_decoder) is not supported")
    if activation not in ACTIVATIONS:
        raise InputError(f"{where}: activation {activation!r} is not supported; known: {', '.join(ACTIVATIONS)}")
    return student_head(model, where)


def stock_names(family: Family, stack: Sequence[tuple[int, ...]], albert: bool) -> dict[str, str]:
    """A stock model's names of tensors by ours, but for table and positions; `stack`: the places of its layers."""
    modules = {"embedding.norm": "embeddings.LayerNorm"}
    if albert:
        modules["embedding.project"] = "encoder.embedding_hidden_mapping_in"
    for index, place in enumerate(stack):
        layer = family.layer.format(*place)
        modules |= {f"layers.{index}.{part}": f"{layer}.{theirs}" for part, theirs in family.parts.items()}
    return {f"{ours}.{kind}": f"{theirs}.{kind}" for ours, theirs in modules.items() for kind in ("weight", "bias")}


def convert(model: SentenceModel, max_length: int, where: str = "model") -> Student:
    """The student that computes what `model` computes, in eval mode; its weights are the model's own tensors.

    `max_length` is the longest input in tokens; later position rows are dropped.

    Raises:
        InputError: as `check_convertible`.
    """
    head = check_convertible(model, where)
    source: Any = model.body.config
    family, stack = FAMILIES[source.model_type], FAMILIES[source.model_type].layers(source)
    albert, pad_id = source.model_type == "albert", int(source.pad_token_id or 0)
    state = {name: value.detach() for name, value in model.body.state_dict().items()}
    table = state["embeddings.word_embeddings.weight"]
    ours: State = {TABLE: table, "embedding.position.weight": _positions(state, family, pad_id, max_length)}
    met = set()
    for name, theirs in stock_names(family, stack, albert).items():
        # A group that is applied twice in a row becomes two layers; each must own its weights.
        ours[name] = state[theirs].clone() if theirs in met else state[theirs]
        met.add(theirs)
    if head.dense is not None:
        ours |= {f"dense.{name}": value.detach() for name, value in head.dense.state_dict().items()}
    config = StudentConfig(
        vocabulary=table.shape[0],
        hidden=getattr(source, family.hidden),
        heads=getattr(source, family.heads),
        intermediate=getattr(source, family.intermediate),
        unit=len(stack),
        repeats=source.num_hidden_layers if albert and source.num_hidden_groups == 1 else 1,
        bottleneck=table.shape[1] if albert else None,
        place="embedding" if albert else "word",
        positions=ours["embedding.position.weight"].shape[0],
        activation=ACTIVATIONS[getattr(source, family.activation)],  # type: ignore[arg-type]
        # DistilBERT has no such setting; its code says 1e-12.
        layer_norm_eps=getattr(source, "layer_norm_eps", 1e-12),
        dropout=float(getattr(source, family.dropout)),
        pooling=head.pooling,  # type: ignore[arg-type]
        dense=None if head.dense is None else head.dense.out_features,
        dense_activation=head.activation,  # type: ignore[arg-type]
        dense_bias="dense.bias" in ours or head.dense is None,
        normalize=head.normalize,
        pad_id=pad_id,
    )
    return with_state(config, ours).requires_grad_(True)


def from_stock(folder: str | Path) -> Student:
    """Read a sentence-transformers folder of a known family, with its pooling, dense layer and normalisation.

    Equal to the stock model on every text: `positions` is the folder's own longest input.
    """
    _known(read_layout(folder).model_type, str(folder))
    encoder = load_encoder(folder)
    if not isinstance(encoder.module, SentenceModel):
        raise InputError(f"{folder}: not a stock transformer")
    return convert(encoder.module, encoder.max_length, str(folder))


def to_student(encoder: Encoder) -> Student:
    """The encoder's module as a student: our own as it is, a stock one converted into weights of its own."""
    if not encoder.defaults.include_prompt and any(encoder.defaults.prompts.values()):
        raise InputError(f"{encoder.name}: pools without its prompts' tokens (include_prompt), which a student cannot")
    if isinstance(encoder.module, Student):
        return encoder.module
    if not isinstance(encoder.module, SentenceModel):
        raise InputError(f"{encoder.name}: a {type(encoder.module).__name__} cannot be converted into a student")
    # Copied, because the encoder is still used: training the student must not change its teacher.
    return copy.deepcopy(convert(encoder.module, encoder.max_length, encoder.name))


DENSE_CLASSES = {
    "identity": "torch.nn.modules.linear.Identity",
    "tanh": "torch.nn.modules.activation.Tanh",
    "relu": "torch.nn.modules.activation.ReLU",
    "gelu": "torch.nn.modules.activation.GELU",
}
# Old dotted names load in every sentence-transformers release; new ones only from 6 on.
_ST = "sentence_transformers.models"


def stock_type(config: StudentConfig) -> str:
    """The stock class that computes this student as it is: "albert", "bert", or "" when there is none."""
    if config.coded:
        return ""
    if config.bottleneck is not None:
        return "albert" if config.place == "embedding" else ""
    return "bert" if config.repeats == 1 else ""


def decode(student: Student) -> Student:
    """The equal student whose coded table is multiplied out to one row per piece."""
    if not student.config.coded:
        return student
    state = {name: value for name, value in student.state_dict().items() if not name.startswith("embedding.code.")}
    state[TABLE] = student.embedding.rows().detach()
    return with_state(StudentConfig(**{**student.config.model_dump(), "base_rows": None, "links": None}), state)


def materialise(student: Student) -> Student:
    """The equal student that a stock class computes: code and bottleneck multiplied out, recurrence unrolled.

    One with `place: embedding` becomes a stock AlbertModel, any other a BertModel.
    """
    student = decode(student)
    config = student.config
    if stock_type(config):
        return student
    state = student.state_dict()
    wide: dict[str, Tensor] = {
        name: value for name, value in state.items() if not name.startswith(("layers.", "embedding.project"))
    }
    if config.bottleneck is not None:
        table_VE, project_HE = state[TABLE], state["embedding.project.weight"]
        wide[TABLE] = (table_VE.double() @ project_HE.double().T).float()
    for step in range(config.repeats):
        for name, value in state.items():
            if name.startswith("layers."):
                _, index, rest = name.split(".", 2)
                # Copies, not views of one tensor: safetensors refuses to write shared memory.
                wide[f"layers.{step * config.unit + int(index)}.{rest}"] = value.clone()
    settings = config.model_dump() | {"bottleneck": None, "place": "word", "repeats": 1}
    settings["unit"] = config.unit * config.repeats
    return with_state(StudentConfig(**settings), wide)


def _body(student: Student, kind: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Config and weights of the stock class; what a sentence encoder never uses (types, pooler) is zero."""
    config, state, family = student.config, student.state_dict(), FAMILIES[kind]
    E, H = config.table_width, config.hidden
    settings: dict[str, Any] = {
        "architectures": ["AlbertModel" if kind == "albert" else "BertModel"],
        "model_type": kind,
        "vocab_size": config.vocabulary,
        "hidden_size": H,
        "num_hidden_layers": config.repeats if kind == "albert" else config.unit,
        "num_attention_heads": config.heads,
        "intermediate_size": config.intermediate,
        "hidden_act": config.activation,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.dropout,
        "max_position_embeddings": config.positions,
        "type_vocab_size": 2,
        "layer_norm_eps": config.layer_norm_eps,
        "pad_token_id": config.pad_id,
        "torch_dtype": "float32",
    }
    width = E if kind == "albert" else H
    weights: dict[str, Tensor] = {
        "embeddings.word_embeddings.weight": state[TABLE],
        "embeddings.position_embeddings.weight": state["embedding.position.weight"],
        "embeddings.token_type_embeddings.weight": torch.zeros(2, width),
    }
    if kind == "albert":
        settings |= {"embedding_size": E, "num_hidden_groups": 1, "inner_group_num": config.unit}
    pooler = "pooler" if kind == "albert" else "pooler.dense"
    weights |= {f"{pooler}.weight": torch.zeros(H, H), f"{pooler}.bias": torch.zeros(H)}
    stack = [(0, index) if kind == "albert" else (index,) for index in range(config.unit)]
    weights |= {theirs: state[ours] for ours, theirs in stock_names(family, stack, kind == "albert").items()}
    return settings, {name: value.detach().cpu().float().contiguous() for name, value in weights.items()}


def write_stock(student: Student, folder: Path) -> None:
    """Write body, pooling, dense and normalisation of the `materialise`d student (the tokenizer is the caller's)."""
    from safetensors.torch import save_file

    student = materialise(student)
    config, kind = student.config, stock_type(student.config)
    settings, weights = _body(student, kind)
    write_json(folder / "config.json", settings)
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    (folder / "1_Pooling").mkdir()
    keys = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}
    flags = {f"pooling_mode_{key}": how == config.pooling for how, key in keys.items()}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": config.hidden, **flags})
    if student.dense is not None:
        modules.append(("2_Dense", "Dense"))
        (folder / "2_Dense").mkdir()
        dense = {
            "in_features": config.hidden,
            "out_features": config.dense,
            "bias": config.dense_bias,
            "activation_function": DENSE_CLASSES[config.dense_activation],
        }
        write_json(folder / "2_Dense" / "config.json", dense)
        state = {f"linear.{n}": v.detach().cpu().contiguous() for n, v in student.dense.state_dict().items()}
        save_file(state, str(folder / "2_Dense" / "model.safetensors"), metadata={"format": "pt"})
    if config.normalize:
        path = f"{len(modules)}_Normalize"
        (folder / path).mkdir()
        modules.append((path, "Normalize"))
    rows = [{"idx": i, "name": str(i), "path": path, "type": f"{_ST}.{kind}"} for i, (path, kind) in enumerate(modules)]
    write_json(folder / "modules.json", rows)
