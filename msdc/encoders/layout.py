"""Pooling, dense layer and normalisation of a sentence-transformers folder, read without running its code.

The stock classes are known by their dotted names, old and new. Any other class is refused, because loading it would run
code that comes with the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msdc.errors import InputError
from msdc.files import read_json

POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
}
ACTIVATION_NAMES = {"Identity": "identity", "Tanh": "tanh", "ReLU": "relu", "GELU": "gelu"}


@dataclass(frozen=True)
class DenseLayout:
    """A linear map after pooling: its folder, widths and activation."""

    folder: Path
    in_features: int
    out_features: int
    bias: bool
    activation: str


@dataclass(frozen=True)
class Layout:
    """The parts of one model folder."""

    folder: Path
    body: Path
    config: dict[str, Any]
    pooling: str = "mean"
    dense: DenseLayout | None = None
    normalize: bool = False
    max_length: int = 128

    @property
    def model_type(self) -> str:
        """`model_type` of config.json, empty if absent."""
        return str(self.config.get("model_type", ""))


def _inside(folder: Path, name: str) -> Path:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise InputError(f"{folder}/modules.json: path {name!r} leaves the model folder")
    return path


def _pooling(path: Path) -> str:
    config = read_json(path / "config.json")
    if "pooling_mode" in config:
        modes = [config["pooling_mode"]] if isinstance(config["pooling_mode"], str) else list(config["pooling_mode"])
    else:
        modes = [POOLING_KEYS.get(key, key) for key, on in config.items() if key.startswith("pooling_mode_") and on]
    if len(modes) != 1 or modes[0] not in ("mean", "cls", "max"):
        raise InputError(f"{path}: pooling {modes} is not supported; known: mean, cls, max")
    return str(modes[0])


def _dense(path: Path) -> DenseLayout:
    config = read_json(path / "config.json")
    name = str(config.get("activation_function", "torch.nn.modules.linear.Identity")).rsplit(".", 1)[-1]
    if name not in ACTIVATION_NAMES:
        raise InputError(f"{path}: activation {name!r} is not supported; known: {', '.join(ACTIVATION_NAMES)}")
    return DenseLayout(
        folder=path,
        in_features=int(config["in_features"]),
        out_features=int(config["out_features"]),
        bias=bool(config.get("bias", True)),
        activation=ACTIVATION_NAMES[name],
    )


def read_layout(folder: str | Path) -> Layout:
    """Read `modules.json` and the folders that it lists.

    A folder with a bare transformer (a config.json and no modules.json) gets mean pooling, as
    sentence-transformers does.

    Raises:
        InputError: not a model folder, or a module of an unsupported kind.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such model folder")
    if not (folder / "modules.json").is_file():
        if not (folder / "config.json").is_file():
            raise InputError(f"{folder}: not a model folder (no modules.json and no config.json)")
        config = read_json(folder / "config.json")
        return Layout(folder, folder, config, max_length=_max_length(folder, config))
    body, pooling, dense, normalize = folder, "mean", None, False
    for module in read_json(folder / "modules.json"):
        kind = str(module.get("type", "")).rsplit(".", 1)[-1]
        path = _inside(folder, str(module.get("path", "")))
        if kind in ("Transformer", "Student"):
            body = path
        elif kind == "Pooling":
            pooling = _pooling(path)
        elif kind == "Dense":
            if dense is not None:
                raise InputError(f"{folder}: more than one Dense module is not supported")
            dense = _dense(path)
        elif kind == "Normalize":
            normalize = True
        else:
            raise InputError(f"{folder}: module {module.get('type')!r} is not a stock class; it is not loaded")
    config = read_json(body / "config.json")
    return Layout(folder, body, config, pooling, dense, normalize, _max_length(body, config))


def _max_length(body: Path, config: dict[str, Any]) -> int:
    # RoBERTa's positions start after the pad id, so two of its rows are never used.
    offset = (
        int(config.get("pad_token_id") or 0) + 1
        if config.get("model_type") in ("roberta", "xlm-roberta", "camembert")
        else 0
    )
    positions = int(config.get("max_position_embeddings") or config.get("positions") or 512) - offset
    for name in ("sentence_bert_config.json", "tokenizer_config.json"):
        if (body / name).is_file():
            settings = read_json(body / name)
            wanted = settings.get("max_seq_length") or settings.get("model_max_length")
            if wanted and wanted < 10**6:
                return min(int(wanted), positions)
    return min(positions, 512)
