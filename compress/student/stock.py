"""Stock encoders as students, and students as stock encoders, so that plain `sentence_transformers` loads them.

From BERT, RoBERTa / XLM-R / CamemBERT, DistilBERT and ALBERT. Differences between the families are folded in:
* token types: a sentence encoder uses only type 0, so its row is added to every position;
* positions: RoBERTa's first position is pad id + 1; the rows before it are dropped;
* ALBERT's inner groups are the recurring unit (num_hidden_groups = 1): unit = inner_group_num, repeats =
  num_hidden_layers. Several groups are not cyclic and become a plain stack.

To an AlbertModel (`place: embedding`), or to the equal BertModel: the table is multiplied out to V x H and the
recurrence unrolled. A coded table is multiplied out in both cases.

Shapes: V vocabulary, E table width, H hidden, P positions.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from torch import Tensor

from msdc.compress.gate import require_same
from msdc.compress.student.config import POSITION, PROJECT, TABLE, StudentConfig
from msdc.compress.student.model import Student, with_state
from msdc.encoders.encoder import Encoder
from msdc.encoders.folder import read_layout
from msdc.encoders.loading import load_stock_encoder
from msdc.encoders.settings import ENDS, MODULE_KEYS, SENTENCE, STATE
from msdc.encoders.source import ModelSource
from msdc.encoders.stock import SentenceModel
from msdc.errors import InputError
from msdc.files import write_json

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_new", "gelu_pytorch_tanh": "gelu_new", "relu": "relu"}
DENSE_CLASSES = {
    "identity": "torch.nn.modules.linear.Identity",
    "tanh": "torch.nn.modules.activation.Tanh",
    "relu": "torch.nn.modules.activation.ReLU",
    "gelu": "torch.nn.modules.activation.GELU",
}
State = dict[str, Tensor]


@dataclass(frozen=True)
class Family:
    """A family's names: a pattern for its layers, its names of our parts, and three of its settings."""

    layer: str
    parts: tuple[str, ...]
    # RoBERTa counts positions from pad id + 1.
    position_offset: bool = False
    intermediate: str = "intermediate_size"
    activation: str = "hidden_act"
    dropout: str = "hidden_dropout_prob"


PARTS = ("query", "key", "value", "output", "attention_norm", "up", "down", "output_norm")
_BERT_PARTS = (
    "attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
    "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm",
)  # fmt: skip
_ALBERT_PARTS = (
    "attention.query", "attention.key", "attention.value", "attention.dense", "attention.LayerNorm", "ffn",
    "ffn_output", "full_layer_layer_norm",
)  # fmt: skip
_DISTILBERT_PARTS = (
    "attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "sa_layer_norm", "ffn.lin1",
    "ffn.lin2", "output_layer_norm",
)  # fmt: skip
_ROBERTA = Family("encoder.layer.{}", _BERT_PARTS, position_offset=True)
FAMILIES = {
    "bert": Family("encoder.layer.{}", _BERT_PARTS),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "distilbert": Family(
        "transformer.layer.{}", _DISTILBERT_PARTS, intermediate="hidden_dim", activation="activation", dropout="dropout"
    ),
    "albert": Family("encoder.albert_layer_groups.{}.albert_layers.{}", _ALBERT_PARTS),
}


def _stack(config: Any) -> list[tuple[int, ...]]:
    """The indices of a stock model's layers, in the order in which they are applied."""
    layers = config.num_hidden_layers
    if config.model_type != "albert":
        return [(index,) for index in range(layers)]
    groups, inner = config.num_hidden_groups, range(config.inner_group_num)
    if groups == 1:
        return [(0, index) for index in inner]
    # The formula of AlbertTransformer.forward.
    return [(int(i / (layers / groups)), index) for i in range(layers) for index in inner]


def _family_of(model_type: str, where: str) -> Family:
    if model_type not in FAMILIES:
        raise InputError(
            f"{where}: models of type {model_type!r} cannot be compressed; known: {', '.join(sorted(FAMILIES))}"
        )
    return FAMILIES[model_type]


def _check_modules(model: SentenceModel, where: str) -> None:
    """Refuse a setting of a module that a student does not have, and another output of the transformer."""
    first: Any = model.transformer
    used = first.modality_config["text"]
    if used["method"] != "forward" or used["method_output_name"] not in (STATE, [STATE], (STATE,)):
        raise InputError(
            f"{where}: cannot become a student: its sentence vector is made from {used['method_output_name']} of "
            f"{used['method']}, not from the last hidden state (modality_config)"
        )
    for module in model.after:
        kind, part = type(module).__name__, cast(Any, module)
        ends = {getattr(part, name, SENTENCE) for name in ENDS}
        if ends != {SENTENCE}:
            raise InputError(
                f"{where}: cannot become a student: {kind} works on {', '.join(sorted(ends - {SENTENCE}))}"
            )
        if unknown := sorted(part.get_config_dict().keys() - MODULE_KEYS.get(kind, set())):
            raise InputError(f"{where}: cannot become a student: {kind} has the unknown setting {unknown[0]!r}")


def check_convertible(model: SentenceModel, where: str = "model") -> tuple[dict[str, Any], State]:
    """The settings of a student's head and the weights of its dense layer, for a model that `student_from` accepts.

    Pooling, at most one dense layer and normalisation follow the transformer, in this order.
    """
    source: Any = model.body.config
    activation = getattr(source, _family_of(source.model_type, where).activation)
    if getattr(source, "position_embedding_type", "absolute") not in (None, "absolute"):
        raise InputError(f"{where}: {source.position_embedding_type} positions are not supported, only absolute ones")
    if getattr(source, "is_decoder", False):
        raise InputError(f"{where}: causal attention (is_decoder) is not supported")
    if activation not in ACTIVATIONS:
        raise InputError(f"{where}: activation {activation!r} is not supported; known: {', '.join(ACTIVATIONS)}")
    _check_modules(model, where)
    by_class: dict[str, Any] = {type(module).__name__: module for module in model.after}
    kinds = [type(module).__name__ for module in model.after if type(module).__name__ != "Dropout"]
    expected_order = [kind for kind in ("Pooling", "Dense", "Normalize") if kind in by_class]
    if "Pooling" not in by_class or kinds != expected_order:
        raise InputError(
            f"{where}: cannot become a student: its modules {', '.join(kinds) or 'end with the transformer'}; expected "
            "Pooling, at most one Dense, and Normalize"
        )
    pooling, dense = by_class["Pooling"].pooling_mode, by_class.get("Dense")
    modes = [pooling] if isinstance(pooling, str) else list(pooling)
    if len(modes) != 1 or modes[0] not in ("mean", "cls", "max"):
        raise InputError(f"{where}: cannot become a student: pooling {', '.join(modes)}; known: mean, cls, max")
    head = {"pooling": modes[0], "normalize": "Normalize" in by_class}
    if dense is None:
        return head, {}
    activation = type(dense.activation_function).__name__.lower()
    if getattr(dense.activation_function, "approximate", "none") != "none":
        activation += f" ({dense.activation_function.approximate})"
    if activation not in DENSE_CLASSES or dense.use_residual:
        raise InputError(f"{where}: cannot become a student: a Dense with {activation} or a residual connection")
    head |= {"dense": dense.linear.out_features, "dense_activation": activation}
    head["dense_bias"] = dense.linear.bias is not None
    return head, {f"dense.{name}": value.detach() for name, value in dense.linear.state_dict().items()}


def stock_names(kind: str, stack: Sequence[tuple[int, ...]]) -> dict[str, str]:
    """Tensor names of a stock model by ours, without table and positions; `stack`: the indices of its layers."""
    family, modules = FAMILIES[kind], {"embedding.norm": "embeddings.LayerNorm"}
    if kind == "albert":
        modules["embedding.project"] = "encoder.embedding_hidden_mapping_in"
    for index, indices in enumerate(stack):
        layer = family.layer.format(*indices)
        modules |= {
            f"layers.{index}.{part}": f"{layer}.{other}" for part, other in zip(PARTS, family.parts, strict=True)
        }
    return {f"{ours}.{kind}": f"{other}.{kind}" for ours, other in modules.items() for kind in ("weight", "bias")}


def student_from(model: SentenceModel, max_length: int, where: str = "model") -> Student:
    """The student that computes what `model` computes, in eval mode; its weights are the model's own tensors.

    `max_length` is the longest input in tokens; later position rows are dropped.
    """
    head, ours = check_convertible(model, where)
    source: Any = model.body.config
    kind, stack = source.model_type, _stack(source)
    family, albert, pad_id = FAMILIES[kind], kind == "albert", int(source.pad_token_id or 0)
    state = {name: value.detach() for name, value in model.body.state_dict().items()}
    table = ours[TABLE] = state["embeddings.word_embeddings.weight"]
    position = state["embeddings.position_embeddings.weight"][pad_id + 1 if family.position_offset else 0 :]
    types = state.get("embeddings.token_type_embeddings.weight", torch.zeros(1))
    ours[POSITION] = position[:max_length] + types[0]
    used = set()
    for name, other in stock_names(kind, stack).items():
        # A group that is applied twice in a row becomes two layers with weights of their own.
        ours[name] = state[other].clone() if other in used else state[other]
        used.add(other)
    config = StudentConfig(
        vocabulary=table.shape[0],
        hidden=source.hidden_size,
        heads=source.num_attention_heads,
        intermediate=getattr(source, family.intermediate),
        unit=len(stack),
        repeats=source.num_hidden_layers if albert and source.num_hidden_groups == 1 else 1,
        bottleneck=table.shape[1] if albert else None,
        place="embedding" if albert else "word",
        positions=len(ours[POSITION]),
        activation=ACTIVATIONS[getattr(source, family.activation)],  # type: ignore[arg-type]
        # DistilBERT has no such setting; its code uses 1e-12.
        layer_norm_eps=getattr(source, "layer_norm_eps", 1e-12),
        dropout=float(getattr(source, family.dropout)),
        pad_id=pad_id,
        **head,
    )
    return with_state(config, ours).requires_grad_(True)


def from_stock(folder: str | Path) -> Student:
    """Read a sentence-transformers folder of a known family, with its pooling, dense layer and normalisation.

    It equals the stock model on every text: `positions` is the folder's own longest input.
    """
    _family_of(read_layout(folder).model_type, str(folder))
    encoder = load_stock_encoder(ModelSource(Path(folder)))
    if not isinstance(encoder.module, SentenceModel):
        raise InputError(f"{folder}: not a stock transformer")
    return student_from(encoder.module, encoder.max_length, str(folder))


def to_student(encoder: Encoder) -> Student:
    """The encoder's module as a student: our own unchanged, a stock one converted into a copy.

    Raises:
        InputError: a module, or a setting of one, that a student does not have.
        GateError: the student's vectors differ from the model's own.
    """
    if not encoder.defaults.include_prompt and any(encoder.defaults.prompts.values()):
        raise InputError(
            f"{encoder.name}: pools without its prompts' tokens (include_prompt), which a student cannot do"
        )
    if isinstance(encoder.module, Student):
        return encoder.module
    if not isinstance(encoder.module, SentenceModel):
        raise InputError(f"{encoder.name}: a {type(encoder.module).__name__} cannot be converted into a student")
    # A copy: training the student must not change its teacher.
    student = copy.deepcopy(student_from(encoder.module, encoder.max_length, encoder.name))
    require_same(encoder, Encoder(student, encoder.tokenizer, encoder.max_length, encoder.name, None, encoder.defaults))
    return student


# Old dotted names load in every sentence-transformers release; new ones only from 6 on.
_ST = "sentence_transformers.models"


def stock_type(config: StudentConfig) -> str:
    """The stock class that computes this student unchanged: "albert", "bert", or "" if there is none."""
    if config.coded:
        return ""
    if config.bottleneck is not None:
        return "albert" if config.place == "embedding" else ""
    return "bert" if config.repeats == 1 else ""


def decode(student: Student) -> Student:
    """The equal student whose coded table is multiplied out to one row per token."""
    if not student.config.coded:
        return student
    state = {name: value for name, value in student.state_dict().items() if not name.startswith("embedding.code.")}
    state[TABLE] = student.embedding.rows().detach()
    return with_state(StudentConfig(**{**student.config.model_dump(), "base_rows": None, "nonzeros": None}), state)


def materialise(student: Student) -> Student:
    """The equal student that a stock class computes: code and bottleneck multiplied out, recurrence unrolled.

    One with `place: embedding` becomes a stock AlbertModel, any other a BertModel. InputError: it has no layers.
    """
    if student.config.static:
        raise InputError("a student without layers has no equal model of stock classes")
    student = decode(student)
    config = student.config
    if stock_type(config):
        return student
    state = student.state_dict()
    wide: dict[str, Tensor] = {
        name: value for name, value in state.items() if not name.startswith(("layers.", "embedding.project"))
    }
    if config.bottleneck is not None:
        table_VE, project_HE = state[TABLE], state[PROJECT]
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


def write_stock(student: Student, folder: Path) -> None:
    """Write body, pooling, dense and normalisation of the `materialise`d student; the caller writes the tokenizer.

    Weights that a sentence encoder never uses (token types, pooler) are zero.
    """
    student = materialise(student)
    config, kind, state = student.config, stock_type(student.config), student.state_dict()
    albert, E, H = kind == "albert", config.table_width, config.hidden
    settings: dict[str, Any] = {
        "architectures": ["AlbertModel" if albert else "BertModel"],
        "model_type": kind,
        "vocab_size": config.vocabulary,
        "hidden_size": H,
        "num_hidden_layers": config.repeats if albert else config.unit,
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
    if albert:
        settings |= {"embedding_size": E, "num_hidden_groups": 1, "inner_group_num": config.unit}
    pooler = "pooler" if albert else "pooler.dense"
    stack = [(0, index) if albert else (index,) for index in range(config.unit)]
    weights: State = {
        "embeddings.word_embeddings.weight": state[TABLE],
        "embeddings.position_embeddings.weight": state[POSITION],
        "embeddings.token_type_embeddings.weight": torch.zeros(2, E if albert else H),
        f"{pooler}.weight": torch.zeros(H, H),
        f"{pooler}.bias": torch.zeros(H),
        **{other: state[ours] for ours, other in stock_names(kind, stack).items()},
    }
    weights = {name: value.detach().cpu().float().contiguous() for name, value in weights.items()}
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
