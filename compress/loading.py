"""Loading the model that a verb changes, trains or reads: a student or a stock model, run by PyTorch in float.

`msdc.load_encoder` is above this: it also runs models by ONNX Runtime.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from msdc.compress.run_files import is_run, read_stages, trained_model
from msdc.encoders.encoder import Encoder, require_room, survive_fork
from msdc.encoders.folder import BUNDLE_FILE, OWN_TYPE, locate_model, read_defaults
from msdc.encoders.loading import HeadName, PoolingName, StockOptions, load_stock_encoder
from msdc.encoders.source import ModelSource
from msdc.errors import InputError
from msdc.extras import named_extras
from msdc.files import refuse_existing, sha256_file
from msdc.progress import say
from msdc.text.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from msdc.compress.student.model import Student


def find_model(name: str | Path) -> Path:
    """`locate_model`; for the folder of a run that of its newest weights."""
    folder = locate_model(name)
    return _run_model(folder) if is_run(folder) else folder


def model_source(
    path_or_name: str | Path, pooling: PoolingName | None = None, head: HeadName | None = None
) -> ModelSource:
    """The folder of a model that will be loaded.

    Raises:
        InputError: no such model; a bundle; `pooling` or `head` for a folder that defines them.
    """
    folder = find_model(path_or_name)
    if (folder / BUNDLE_FILE).is_file():
        raise InputError(f"{folder}: an exported bundle; load it with msdc.load_bundle")
    source = ModelSource(folder, Path(str(path_or_name)).name)
    if (pooling is not None or head is not None) and source.layout.listed:
        raise InputError(f"{folder}: modules.json already defines pooling; omit `pooling` and `head`")
    return source


def load_student_encoder(source: ModelSource) -> Encoder:
    """One of our students as an `Encoder` with its identity."""
    survive_fork()
    from msdc.compress.student.io import load_student  # imports PyTorch

    folder = source.folder
    student = load_student(folder, source.read)
    tokenizer, positions = load_tokenizer(folder, student.config.pad_id), int(student.config.positions)
    encoder = Encoder(student, tokenizer, positions, source.name, folder, read_defaults(folder))
    encoder.identity = source.identity()
    return encoder


@named_extras("msdc.load_encoder")
def load_torch_encoder(path_or_name: str | Path, **options: Unpack[StockOptions]) -> Encoder:
    """The model of a name as `msdc.load_encoder` takes it, always by PyTorch and in float.

    Raises:
        InputError: see `msdc.load_encoder`.
    """
    source = model_source(path_or_name, options.get("pooling"), options.get("head"))
    is_student = source.layout.model_type == OWN_TYPE
    return load_student_encoder(source) if is_student else load_stock_encoder(source, **options)


def open_source(model: str | Path, output: str | Path, force: bool) -> tuple[Path, Encoder, Student]:
    """The folder to write, the model of a verb, and that model as a student; refuses an existing folder first.

    Raises:
        InputError: `output` exists; no such model; one that cannot become a student; a prompt that fills its input.
    """
    from msdc.compress.student.io import MARKS
    from msdc.compress.student.stock import to_student

    refuse_existing(Path(output), force, MARKS)
    encoder = load_torch_encoder(model)
    require_room(encoder.name, encoder.tokenizer, encoder.defaults, encoder.max_length)
    return Path(output), encoder, to_student(encoder)


# --- a run as a model -------------------------------------------------------------------------------------------------


def _run_model(run: Path) -> Path:
    """The finished student of a run, else the best weights so far of its student or, before that, of its assistant.

    The weights of an unfinished stage are those of its best validation, loaded into the model that it started from.
    """
    if (student := run / "student").is_dir():
        return student
    stages = read_stages(run)
    for name, role, files in reversed(stages):
        if files.is_finished:
            say(f"{run}: the model of stage {name}, which is finished")
            return files.model
        if files.best.is_file():
            target = run / "snapshot" / f"{name}-{sha256_file(files.best)[:12]}"
            say(f"{run}: the best weights so far of stage {name}, which is not finished")
            if not target.is_dir():
                _save_snapshot(trained_model(run, stages, role), files.best, target)
            return target
    raise InputError(f"{run}: no stage of this run has been validated yet, so it has no weights to open")


def _save_snapshot(start: Path, best: Path, target: Path) -> None:
    """Write the model of `start` with the weights in `best`; a stage with rounded weights keeps them in float."""
    import torch

    from msdc.compress.student.io import save_student
    from msdc.compress.student.stock import to_student
    from msdc.compress.student.weights import read_arrays

    encoder = load_torch_encoder(start)
    student = to_student(encoder)
    try:
        student.load_state_dict({name: torch.from_numpy(value) for name, value in read_arrays(best).items()})
    except RuntimeError as error:
        raise InputError(f"{best}: not weights of this stage ({str(error).splitlines()[0]})") from error
    for old in target.parent.glob("*"):
        shutil.rmtree(old, ignore_errors=True)
    save_student(student.eval(), encoder.tokenizer, target, force=True, defaults=encoder.defaults)
