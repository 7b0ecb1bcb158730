"""A student written with stock classes, so that plain `SentenceTransformer(path)` loads it without our code.

* `place: embedding` is an AlbertModel (num_hidden_groups = 1, inner_group_num = unit, num_hidden_layers = repeats).
* Any other student equals a BertModel once its table is multiplied out to V x H and its recurrence unrolled.
* A coded table is multiplied out in either case.

Shapes: V vocabulary, E table width, H hidden.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from msdc.compress.student.from_transformers import FAMILIES
from msdc.compress.student.model import Student, StudentConfig
from msdc.compress.student.shapes import TABLE
from msdc.errors import InputError
from msdc.files import write_json

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
    with torch.device("meta"):
        plain = Student(StudentConfig(**{**student.config.model_dump(), "base_rows": None, "links": None}))
    plain.load_state_dict(state, assign=True)
    return plain.eval()


def materialise(student: Student) -> Student:
    """The equal student that a stock class computes: code and bottleneck multiplied out, recurrence unrolled.

    A coded student with `place: embedding` becomes a stock AlbertModel, any other a BertModel.

    Raises:
        InputError: `place: embedding` without a code, whose layer norm comes before the map; it is a stock AlbertModel
            already.
    """
    if student.config.coded:
        student = decode(student)
        if stock_type(student.config):
            return student
    config = student.config
    if config.bottleneck is not None and config.place == "embedding":
        raise InputError("a student with place=embedding cannot become a BertModel; it is a stock AlbertModel already")
    state = student.state_dict()
    wide: dict[str, Tensor] = {
        name: value for name, value in state.items() if not name.startswith(("layers.", "embedding.project"))
    }
    if config.bottleneck is not None:
        table_VE, project_HE = state["embedding.table.weight"], state["embedding.project.weight"]
        wide["embedding.table.weight"] = (table_VE.double() @ project_HE.double().T).float()
    for step in range(config.repeats):
        for name, value in state.items():
            if name.startswith("layers."):
                _, index, rest = name.split(".", 2)
                # Copies, not views of one tensor: safetensors refuses to write shared memory.
                wide[f"layers.{step * config.unit + int(index)}.{rest}"] = value.clone()
    settings = config.model_dump() | {"bottleneck": None, "place": "word", "repeats": 1}
    settings["unit"] = config.unit * config.repeats
    with torch.device("meta"):
        plain = Student(StudentConfig(**settings))
    plain.load_state_dict(wide, assign=True)
    return plain.eval()


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
        "embeddings.word_embeddings.weight": state["embedding.table.weight"],
        "embeddings.position_embeddings.weight": state["embedding.position.weight"],
        "embeddings.token_type_embeddings.weight": torch.zeros(2, width),
    }
    if kind == "albert":
        settings |= {"embedding_size": E, "num_hidden_groups": 1, "inner_group_num": config.unit}
    pooler = "pooler" if kind == "albert" else "pooler.dense"
    shapes: dict[str, tuple[int, ...]] = {"weight": (H, H), "bias": (H,)}
    for part, shape in shapes.items():
        weights[f"embeddings.LayerNorm.{part}"] = state[f"embedding.norm.{part}"]
        weights[f"{pooler}.{part}"] = torch.zeros(shape)
        if kind == "albert":
            weights[f"encoder.embedding_hidden_mapping_in.{part}"] = state[f"embedding.project.{part}"]
        for index in range(config.unit):
            layer = family.layer.format(0, index) if kind == "albert" else family.layer.format(index)
            for ours, theirs in family.parts.items():
                weights[f"{layer}.{theirs}.{part}"] = state[f"layers.{index}.{ours}.{part}"]
    return settings, {name: value.detach().cpu().float().contiguous() for name, value in weights.items()}


def write_stock(student: Student, folder: Path) -> None:
    """Write body, pooling, dense and normalisation into `folder` (the tokenizer is the caller's part).

    Raises:
        InputError: no stock class computes this student as it is; `materialise` it first.
    """
    from safetensors.torch import save_file

    config, kind = student.config, stock_type(student.config)
    if not kind:
        raise InputError("no stock class has this student's bottleneck or recurrence; materialise it first")
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
