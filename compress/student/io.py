"""Students on disk: the sentence-transformers layout, weights in safetensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from msdc.compress.quantization.plan import PLAN_FILE, PrecisionPlan
from msdc.compress.student.model import Student, student_of
from msdc.compress.student.weights import WEIGHTS_FILE, read_weights
from msdc.encoders.folder import OWN_TYPE, STOCK_FOLDER, EncodeDefaults, read_layout
from msdc.errors import InputError
from msdc.files import read_json, regular_size, staged_folder, write_json, write_text
from msdc.text.tokenizer import JSON_FILE, MODEL_FILE, write_tokenizer_folder

MODEL_TYPE = OWN_TYPE


def save_student(
    student: Student,
    tokenizer_file: Path,
    folder: Path,
    *,
    card: str = "",
    force: bool = False,
    plan: PrecisionPlan | None = None,
    report: dict[str, Any] | None = None,
    defaults: EncodeDefaults | None = None,
) -> Path:
    """Write `folder`: config.json, model.safetensors, the tokenizer, modules.json, model card.

    `tokenizer_file` is a SentencePiece `.model` (its `tokenizer.json` twin is written too) or a `tokenizer.json`, which
    is kept with the settings beside it. A student with `place: embedding` is written with stock classes
    (compress/stock.py). With a `plan` the weights are stored as integers and scales, and precision.json says which;
    `report` is what else it should say. `defaults` are the prompts and the width that `encode` uses. The folder
    appears whole or not at all.

    Raises:
        InputError: `folder` exists and `force` is false, or the plan does not fit the student.
        MsdcError: the disk is full.
    """
    from safetensors.torch import save_file

    from msdc.compress.quantization.packing import pack_student
    from msdc.compress.student.to_transformers import stock_type, write_stock

    config = student.config
    with staged_folder(folder, force) as stage:
        if Path(tokenizer_file).suffix == ".json":
            _keep_tokenizer(Path(tokenizer_file), stage, config.positions)
        else:
            write_tokenizer_folder(tokenizer_file, stage, config.positions)
        write_json(stage / "sentence_bert_config.json", {"max_seq_length": config.positions, "do_lower_case": False})
        if plan is None and stock_type(config) == "albert":
            write_stock(student, stage)
        else:
            write_json(stage / "config.json", {"model_type": MODEL_TYPE, **config.model_dump()})
            modules = [{"idx": 0, "name": "0", "path": "", "type": "msdc.compress.student.Student"}]
            write_json(stage / "modules.json", modules)
            if plan is None:
                state = {name: value.detach().cpu().contiguous() for name, value in student.state_dict().items()}
            else:
                state = pack_student(student, plan)
                write_json(stage / PLAN_FILE, {"plan": plan.model_dump(), **(report or {})})
            save_file(state, str(stage / WEIGHTS_FILE), metadata={"format": "pt"})
        (defaults or EncodeDefaults()).write(stage)
        write_text(stage / "README.md", card or f"# {Path(folder).name}\n\nA student made with msdc.\n")
    return Path(folder)


def save_stock(
    student: Student,
    tokenizer_file: Path,
    folder: Path,
    *,
    card: str = "",
    force: bool = False,
    defaults: EncodeDefaults | None = None,
) -> Path:
    """Write `student` with stock classes only, bottleneck multiplied out and recurrence unrolled where they must be.

    `defaults` are the prompts and the width that `encode` uses.

    Raises:
        InputError: `folder` exists and `force` is false.
        MsdcError: the disk is full.
    """
    from msdc.compress.student.to_transformers import materialise, stock_type, write_stock

    plain = student if stock_type(student.config) else materialise(student)
    with staged_folder(folder, force) as stage:
        if Path(tokenizer_file).suffix == ".json":
            _keep_tokenizer(Path(tokenizer_file), stage, plain.config.positions)
        else:
            write_tokenizer_folder(tokenizer_file, stage, plain.config.positions)
        settings = {"max_seq_length": plain.config.positions, "do_lower_case": False}
        write_json(stage / "sentence_bert_config.json", settings)
        write_stock(plain, stage)
        (defaults or EncodeDefaults()).write(stage)
        write_text(stage / "README.md", card or f"# {Path(folder).name}\n\nA student made with msdc.\n")
    return Path(folder)


def add_stock_twin(folder: Path) -> None:
    """Make a student's folder open in sentence-transformers as well, without code of ours.

    The equal model of stock classes is written to `stock/`, and `modules.json` names it; this package goes on reading
    the student itself. A folder of stock classes is left as it is.

    Raises:
        InputError: not a model folder.
        MsdcError: the disk is full.
    """
    from msdc.compress.student.to_transformers import materialise, stock_type, write_stock

    layout = read_layout(folder)
    if layout.model_type != MODEL_TYPE:
        return
    student = load_student(folder)
    plain = student if stock_type(student.config) else materialise(student)
    with staged_folder(folder / STOCK_FOLDER, force=True) as stage:
        source = folder / (MODEL_FILE if (folder / MODEL_FILE).is_file() else JSON_FILE)
        if source.suffix == ".json":
            _keep_tokenizer(source, stage, plain.config.positions)
        else:
            write_tokenizer_folder(source, stage, plain.config.positions)
        settings = {"max_seq_length": plain.config.positions, "do_lower_case": False}
        write_json(stage / "sentence_bert_config.json", settings)
        write_stock(plain, stage)
        modules = read_json(stage / "modules.json")
        (stage / "modules.json").unlink()
    for module in modules:
        module["path"] = "/".join(filter(None, (STOCK_FOLDER, module["path"])))
    write_json(folder / "modules.json", modules)


def _keep_tokenizer(source: Path, folder: Path, max_length: int) -> None:
    """Copy a `tokenizer.json` and the settings beside it; the length that cuts a text becomes `max_length`."""
    (folder / JSON_FILE).write_bytes(source.read_bytes())
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    if (source.parent / "tokenizer_config.json").is_file():
        settings = read_json(source.parent / "tokenizer_config.json")
    if (source.parent / "special_tokens_map.json").is_file():
        write_json(folder / "special_tokens_map.json", read_json(source.parent / "special_tokens_map.json"))
    write_json(folder / "tokenizer_config.json", {**settings, "model_max_length": max_length})


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Tensors of one safetensors file, in the types they are stored in.

    Raises:
        InputError: missing, truncated, or not a safetensors file.
    """
    from safetensors.torch import load_file

    regular_size(path)
    try:
        return load_file(path)
    except Exception as error:
        raise InputError(f"{path}: damaged or not a safetensors file ({str(error).splitlines()[0]})") from error


def load_student(folder: str | Path) -> Student:
    """Read a folder written by `save_student`, in eval mode; integers are read as the float numbers they represent.

    The scales of a quantized folder stay with the student (`stored_scales`), so that quantizing it again gives the
    same integers.

    Raises:
        InputError: not such a folder, damaged weights, or weights that do not fit the config.
    """
    if read_json(Path(folder) / "config.json").get("model_type") == "albert":
        from msdc.compress.student.from_transformers import from_stock

        return from_stock(Path(folder))
    return student_of(read_weights(folder))


def open_student(folder: str | Path) -> Student:
    """The student in a folder, ours or stock.

    Raises:
        InputError: not a model folder, damaged, or of a kind that is not supported.
    """
    from msdc.compress.student.from_transformers import from_stock

    own = read_layout(folder).model_type == MODEL_TYPE
    return load_student(folder) if own else from_stock(folder)


def tokenizer_file(folder: str | Path) -> Path:
    """The tokenizer a model folder is known by: the SentencePiece `.model` where there is one, else `tokenizer.json`.

    Raises:
        InputError: neither is there.
    """
    for name in (MODEL_FILE, JSON_FILE):
        if (Path(folder) / name).is_file():
            return Path(folder) / name
    raise InputError(f"{folder}: no {MODEL_FILE} and no {JSON_FILE}")
