"""Students on disk: the sentence-transformers layout, weights in safetensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from compress.student import Student, StudentConfig
from msdc.errors import InputError
from msdc.files import read_json, staged_folder, write_json, write_text
from msdc.text.tokenizer import MODEL_FILE, write_tokenizer_folder

MODEL_TYPE = "msdc-student"


def save_student(student: Student, tokenizer_file: Path, folder: Path, *, card: str = "", force: bool = False) -> Path:
    """Write `folder`: config.json, model.safetensors, tokenizer.model and its twin, modules.json, model card.

    The folder appears whole or not at all.

    Raises:
        InputError: `folder` exists and `force` is false.
        MsdcError: the disk is full.
    """
    from safetensors.torch import save_file

    config = student.config
    with staged_folder(folder, force) as stage:
        write_tokenizer_folder(tokenizer_file, stage, config.positions)
        write_json(stage / "config.json", {"model_type": MODEL_TYPE, **config.model_dump()})
        modules = [{"idx": 0, "name": "0", "path": "", "type": "compress.student.Student"}]
        write_json(stage / "modules.json", modules)
        write_json(stage / "sentence_bert_config.json", {"max_seq_length": config.positions, "do_lower_case": False})
        state = {name: value.detach().cpu().contiguous() for name, value in student.state_dict().items()}
        save_file(state, str(stage / "model.safetensors"), metadata={"format": "pt"})
        write_text(stage / "README.md", card or f"# {Path(folder).name}\n\nA student made with msdc.\n")
    return Path(folder)


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """Tensors of one safetensors file, float32.

    Raises:
        InputError: missing, truncated, or not a safetensors file.
    """
    from safetensors.torch import load_file

    try:
        return {name: value.float() for name, value in load_file(path).items()}
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except Exception as error:
        raise InputError(f"{path}: damaged or not a safetensors file ({str(error).splitlines()[0]})") from error


def load_student(folder: str | Path) -> Student:
    """Read a folder written by `save_student`, in eval mode.

    Raises:
        InputError: not such a folder, damaged weights, or weights that do not fit the config.
    """
    folder = Path(folder)
    raw: dict[str, Any] = read_json(folder / "config.json")
    if raw.pop("model_type", None) != MODEL_TYPE:
        raise InputError(f"{folder}: not a student of msdc (model_type is not {MODEL_TYPE})")
    try:
        config = StudentConfig(**raw)
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{folder}/config.json: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    weights = read_weights(folder / "model.safetensors")
    with torch.device("meta"):
        student = Student(config)
    try:
        student.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        raise InputError(f"{folder}: weights do not fit config.json ({str(error).splitlines()[-1].strip()})") from error
    return student.eval()


def tokenizer_file(folder: str | Path) -> Path:
    """The SentencePiece `.model` of a student's folder."""
    return Path(folder) / MODEL_FILE
