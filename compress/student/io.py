"""Students on disk: the sentence-transformers layout, weights in safetensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from safetensors.torch import save_file

from msdc.compress.student.model import Student, student_of
from msdc.compress.student.plan import PLAN_FILE, PrecisionPlan
from msdc.compress.student.stock import from_stock, stock_type, write_stock
from msdc.compress.student.weights import WEIGHTS_FILE, ReadBytes, integers, read_weights
from msdc.encoders.folder import OWN_TYPE, SENTENCE_MODULE, STOCK_FOLDER, EncodeDefaults, read_defaults, read_layout
from msdc.files import read_json, staged_folder, write_json, write_text
from msdc.progress import say
from msdc.text.tokenizer import JSON_FILE, MODEL_FILE, Tokenizer, load_tokenizer, write_tokenizer_folder

# Files that identify our model folders.
MARKS = ("config.json", "sentence_bert_config.json")


class ModelReport(BaseModel):
    """What a verb wrote: the name of its model, and the new folder."""

    model_config = ConfigDict(frozen=True)

    model: str
    out: str


@contextmanager
def _model_folder(folder: Path, tokenizer: Tokenizer | Path, max_length: int, force: bool) -> Iterator[Path]:
    """A folder that appears complete or not at all, with the tokenizer and the longest input."""
    source = tokenizer if isinstance(tokenizer, Path) else tokenizer.path
    content = source.read_bytes() if isinstance(tokenizer, Path) else tokenizer.content
    with staged_folder(folder, force, MARKS) as stage:
        if source.suffix == ".json":
            (stage / JSON_FILE).write_bytes(content)
            config, special = (source.parent / name for name in ("tokenizer_config.json", "special_tokens_map.json"))
            settings = read_json(config) if config.is_file() else {"tokenizer_class": "PreTrainedTokenizerFast"}
            write_json(stage / config.name, {**settings, "model_max_length": max_length})
            if special.is_file():
                write_json(stage / special.name, read_json(special))
        else:
            (stage / MODEL_FILE).write_bytes(content)
            write_tokenizer_folder(stage / MODEL_FILE, stage, max_length)
        write_json(stage / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
        yield stage


def save_student(
    student: Student,
    tokenizer: Tokenizer | Path,
    folder: Path,
    *,
    card: str = "",
    force: bool = False,
    plan: PrecisionPlan | None = None,
    report: dict[str, Any] | None = None,
    defaults: EncodeDefaults | None = None,
    stock: bool = False,
    check: Callable[[Path], None] | None = None,
) -> Path:
    """Write `folder`: config.json, model.safetensors, the tokenizer, modules.json, model card.

    `tokenizer` is written from memory, or is a file: a SentencePiece `.model` (its `tokenizer.json` twin is written
    too) or a `tokenizer.json`, which is copied with its settings. With a `plan` the weights are stored as integers
    and scales, listed in precision.json together with `report`. A float student with `place: embedding`, and with
    `stock` any float student, is written with stock classes, bottleneck multiplied out and recurrence unrolled if
    needed. `defaults` are the prompts and the width that `encode` uses. The folder appears complete and accepted by
    `check`, if given, or not at all.
    """
    config = student.config
    with _model_folder(folder, tokenizer, config.positions, force) as stage:
        if plan is None and (stock or stock_type(config) == "albert"):
            write_stock(student, stage)
        else:
            write_json(stage / "config.json", {"model_type": OWN_TYPE, **config.model_dump()})
            modules = [{"idx": 0, "name": "0", "path": "", "type": SENTENCE_MODULE}]
            write_json(stage / "modules.json", modules)
            state = {name: value.detach().cpu().contiguous() for name, value in student.state_dict().items()}
            if plan is not None:
                for name, part in integers(student, plan).items():
                    state[name] = torch.from_numpy(part.packed())
                    state[f"{name}.scale"] = torch.from_numpy(part.scale).to(getattr(torch, part.scale_type))
                write_json(stage / PLAN_FILE, {"plan": plan.model_dump(), **(report or {})})
            save_file(state, str(stage / WEIGHTS_FILE), metadata={"format": "pt"})
        (defaults or EncodeDefaults()).write(stage)
        write_text(stage / "README.md", card or f"# {Path(folder).name}\n\nA student created with msdc.\n")
        if check is not None:
            check(stage)
    return Path(folder)


def add_stock_twin(folder: Path) -> None:
    """Let sentence-transformers open a student's folder without msdc.

    The equal model of stock classes is written to `stock/`, and `modules.json` names it; msdc still reads the student
    itself. A folder of stock classes is unchanged, and a student without layers has no such model.
    """
    if read_layout(folder).model_type != OWN_TYPE:
        return
    student = load_student(folder)
    if student.config.static:
        say(f"{folder.name}: without layers there is no equal model of stock classes (stock_twin)")
        return
    with _model_folder(folder / STOCK_FOLDER, load_tokenizer(folder), student.config.positions, True) as stage:
        write_stock(student, stage)
        read_defaults(folder).write(stage)
        modules = read_json(stage / "modules.json")
    for module in modules:
        module["path"] = "/".join(filter(None, (STOCK_FOLDER, module["path"])))
    write_json(folder / "modules.json", modules)


def load_student(folder: str | Path, read: ReadBytes = Path.read_bytes) -> Student:
    """The student in a folder, ours or stock, in eval mode; integers are read as the float numbers they represent.

    The student keeps the scales of a quantized folder (`stored_scales`), so that quantizing it again gives the same
    integers.
    """
    is_student = read_layout(folder).model_type == OWN_TYPE
    return student_of(read_weights(folder, read)) if is_student else from_stock(folder)
