"""What lies in a model folder, checked before sentence-transformers loads it.

Only stock classes are loaded, because any other class would run code that comes with the model; weights only from
safetensors, because other weight files may hold pickles.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msdc.errors import InputError
from msdc.files import read_json, regular_size
from msdc.text.tokenizer import MAX_TOKENIZER_BYTES

TRANSFORMERS = ("Transformer", "CLIPModel")
# Stock classes that take texts or vectors; True: the module has weights.
STOCK = {
    "Transformer": True,
    "CLIPModel": True,
    "StaticEmbedding": True,
    "Pooling": False,
    "Dense": True,
    "LayerNorm": True,
    "Normalize": False,
    "Dropout": False,
}
# RoBERTa's positions start after the pad id, so its first rows are never used.
POSITIONS_AFTER_PAD = ("roberta", "xlm-roberta", "camembert", "mpnet", "xlm-roberta-xl", "xmod")
OWN = "Student"
OWN_TYPE = "msdc-student"
# Of a student of ours: the equal model of stock classes, which only others read.
STOCK_FOLDER = "stock"
STOCK_PREFIX = "sentence_transformers."


@dataclass(frozen=True)
class Layout:
    """The parts of one model folder. `body` holds the transformer, or the table of a static model."""

    folder: Path
    body: Path
    config: dict[str, Any]
    modules: tuple[str, ...] = (TRANSFORMERS[0],)

    @property
    def model_type(self) -> str:
        """`model_type` of config.json, empty if absent."""
        return str(self.config.get("model_type", ""))

    @property
    def max_length(self) -> int:
        """Longest input in tokens as the settings state it, without loading the model."""
        offset = int(self.config.get("pad_token_id") or 0) + 1 if self.model_type in POSITIONS_AFTER_PAD else 0
        positions = int(self.config.get("max_position_embeddings") or self.config.get("positions") or 512) - offset
        for name in ("sentence_bert_config.json", "tokenizer_config.json"):
            if (self.body / name).is_file():
                settings = read_json(self.body / name)
                wanted = settings.get("max_seq_length") or settings.get("model_max_length")
                if wanted and wanted < 10**6:
                    return min(int(wanted), positions)
        return positions


def _inside(folder: Path, name: str) -> Path:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise InputError(f"{folder}/modules.json: path {name!r} leaves the model folder")
    return path


def _kind(folder: Path, module: Any) -> str:
    name = str(module.get("type", "")) if isinstance(module, dict) else ""
    kind = name.rsplit(".", 1)[-1]
    if kind == OWN or (kind in STOCK and name.startswith(STOCK_PREFIX)):
        return kind
    raise InputError(
        f"{folder}: module {name!r} is not supported; it is not loaded (supported: {', '.join(STOCK)} of "
        "sentence-transformers)"
    )


def _check_weights(path: Path) -> None:
    from safetensors import safe_open

    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise InputError(f"{path}: no .safetensors weights; other weight files are not read")
    for file in files:
        regular_size(file)
        try:
            with safe_open(file, framework="pt"):
                pass
        except Exception as error:
            raise InputError(f"{file}: damaged or not a safetensors file ({str(error).splitlines()[0]})") from error


def _check_body(body: Path) -> None:
    for file in (*body.glob("*.json"), *body.glob("*.model"), *body.glob("*.txt")):
        if file.stat().st_size > MAX_TOKENIZER_BYTES:
            raise InputError(f"{file}: {file.stat().st_size} bytes, more than the {MAX_TOKENIZER_BYTES} allowed")
    for file in body.glob("sentence_*_config.json"):
        settings = read_json(file)
        if isinstance(settings, dict) and settings.get("tokenizer_name_or_path") is not None:
            raise InputError(f"{file}: tokenizer_name_or_path is not supported; keep the tokenizer in the folder")


def read_layout(folder: str | Path) -> Layout:
    """Read `modules.json` and check every folder that it lists.

    A folder with a bare transformer (a config.json and no modules.json) gets the pooling that sentence-transformers
    gives it.

    Raises:
        InputError: not a model folder, a module of an unsupported kind, or weights in another format.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such model folder")
    if (folder / "config.json").is_file() and (own := _config(folder, folder)).get("model_type") == OWN_TYPE:
        # Its modules.json may name the equal model of stock classes, for sentence-transformers.
        return Layout(folder, folder, own, (OWN,))
    if not (folder / "modules.json").is_file():
        if not (folder / "config.json").is_file():
            raise InputError(f"{folder}: not a model folder (no modules.json and no config.json)")
        return Layout(folder, folder, _config(folder, folder))
    listed = read_json(folder / "modules.json")
    if not isinstance(listed, list) or not listed:
        raise InputError(f"{folder}/modules.json: no modules")
    kinds = tuple(_kind(folder, module) for module in listed)
    paths = [_inside(folder, str(module.get("path", ""))) for module in listed]
    if kinds[0] not in (*TRANSFORMERS, "StaticEmbedding", OWN):
        raise InputError(f"{folder}: the first module is a {kinds[0]}, which takes no text")
    if any(kind in (*TRANSFORMERS, "StaticEmbedding", OWN) for kind in kinds[1:]):
        raise InputError(f"{folder}: more than one module that takes text is not supported")
    body = paths[0]
    config = {} if kinds[0] == "StaticEmbedding" else _config(folder, body)
    return Layout(folder, body, config, kinds)


def _config(folder: Path, body: Path) -> dict[str, Any]:
    value = read_json(body / "config.json")
    if not isinstance(value, dict):
        raise InputError(f"{folder}: config.json is not an object")
    return value


def check_layout(layout: Layout) -> None:
    """Check weights and settings of all modules before anything is loaded.

    Raises:
        InputError: no safetensors, damaged weights, or a setting that leads out of the folder.
    """
    _check_body(layout.body)
    if not (layout.folder / "modules.json").is_file():
        _check_weights(layout.body)
        return
    for kind, module in zip(layout.modules, read_json(layout.folder / "modules.json"), strict=True):
        path = _inside(layout.folder, str(module.get("path", "")))
        if STOCK.get(kind):
            _check_weights(path)
        if kind == "Dense":
            activation = str(read_json(path / "config.json").get("activation_function", "torch."))
            if not activation.startswith("torch.nn."):
                raise InputError(f"{path}: activation {activation!r} is not supported; known: classes of torch.nn")
