"""Objectives that are not shipped: functions in a file (`my_losses.py:barlow_twins`), or of an installed package.

A package offers them by entry points of the group `msdc.objectives`: NAME = "MODULE:FUNCTION". Their parameters follow
the rules of the shipped ones (msdc.distill.objectives.registry).
"""

from __future__ import annotations

import hashlib
import inspect
import linecache
import traceback
import types
from collections.abc import Callable, Collection
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from torch import Tensor

from msdc.distill.objectives.shared import objective
from msdc.errors import InputError, did_you_mean, first_line
from msdc.files import regular_size

FILE = ".py:"  # between the file without its suffix and the function
GROUP = "msdc.objectives"
Function = Callable[..., Tensor]

_modules: dict[Path, tuple[bytes, types.ModuleType]] = {}  # content and module of each file that was read


def load_function(name: str, fresh: bool = False) -> Function | None:
    """The function of a name that is no shipped one; None if there is none.

    A file is read once, so that all stages of a run have the same function; with `fresh` again if it has changed.

    Raises:
        InputError: the file is missing, is not Python, or has no such function; the package cannot be imported.
    """
    if FILE in name:
        stem, _, function = name.rpartition(FILE)
        path = _path(stem)
        return _as_objective(f"{path.name}:{function}", read_function(path, function, fresh))
    if name not in (entry_points := plugins()):
        return None
    try:
        loaded = entry_points[name].load()
    except Exception as error:
        raise InputError(
            f"objective {name}: {entry_points[name].value} cannot be imported: {first_line(error)}"
        ) from error
    return _as_objective(name, loaded)


@cache
def plugins() -> dict[str, EntryPoint]:
    """The entry points of installed packages by name."""
    return {point.name: point for point in entry_points(group=GROUP)}


def source_of(name: str, function: Function) -> tuple[Path | None, str]:
    """The file that defines the function of a name, and the sha256 of its content as it was read.

    None if it is unknown: a package's function that is not written in Python.
    """
    if FILE in name:
        path = _path(name.rpartition(FILE)[0])
        return path, hashlib.sha256(_modules[path][0]).hexdigest()
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or not Path(code.co_filename).is_file():
        return None, ""
    return Path(code.co_filename), hashlib.sha256(Path(code.co_filename).read_bytes()).hexdigest()


def _path(stem: str) -> Path:
    return Path(f"{stem}.py").expanduser().absolute()


def read_function(path: Path, name: str, fresh: bool = False) -> Any:
    """A function of a file, which is run once; with `fresh` again if it has changed. Errors as of `load_function`."""
    if path not in _modules or fresh:
        regular_size(path)
        content = path.read_bytes()
        if path not in _modules or _modules[path][0] != content:
            _modules[path] = content, _run(path, content)
    module = _modules[path][1]
    function = vars(module).get(name)
    if function is None:
        function_names = [
            key for key, value in vars(module).items() if inspect.isfunction(value) and not key.startswith("_")
        ]
        raise InputError(f"{path}: no function {name!r}{did_you_mean(name, function_names)}")
    if not callable(function):
        raise InputError(f"{path}: {name} is a {type(function).__name__}, not a function")
    return function


def _run(path: Path, content: bytes) -> types.ModuleType:
    """The module in a file."""
    module = types.ModuleType(f"msdc_objectives_{path.stem}")
    module.__file__ = str(path)
    linecache.checkcache(str(path))
    try:
        exec(compile(content, str(path), "exec"), vars(module))
    except SyntaxError as error:
        raise InputError(f"{path}, line {error.lineno}: {type(error).__name__}: {error.msg}") from error
    except Exception as error:
        raise located(error, path) from error
    return module


def located(error: Exception, path: Path | None) -> InputError:
    """An error in somebody's code as one line with the place in its file."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    where = f"{path}, line {lines[-1]}: " if lines else f"{path}: " if path else ""
    return InputError(f"{where}{type(error).__name__}: {first_line(error)}")


def _as_objective(name: str, function: Any) -> Function:
    """A function with the checks and the precision of the shipped objectives."""
    if not callable(function):
        raise InputError(f"objective {name}: a {type(function).__name__}, not a function")
    return function if hasattr(function, "equal_widths") else objective()(function)


def check_parameters(name: str, function: Function, tensors: Collection[str]) -> None:
    """Demand that every parameter is one of a stage's `tensors`, or an option."""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InputError(f"objective {name}: {parameter}: parameters are passed by name")
        if parameter.default in (parameter.empty, None) and parameter.name not in tensors:
            raise InputError(
                f"objective {name}: parameter {parameter.name} is no tensor of a stage"
                f"{did_you_mean(parameter.name, sorted(tensors))}; an option needs a default other than None"
            )


def check_loss(name: str, loss: Any) -> None:
    """Demand a scalar tensor."""
    if not isinstance(loss, Tensor) or loss.dim() != 0:
        what = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise InputError(f"objective {name} returns {what}, expected a scalar tensor")
