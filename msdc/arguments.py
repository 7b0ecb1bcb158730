"""Arguments of the public functions, checked by their annotations before any work is done."""

from __future__ import annotations

import builtins
import functools
import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from msdc.errors import InputError, did_you_mean

Function = TypeVar("Function", bound=Callable[..., Any])
SINGLE_VALUE = {str, Path, os.PathLike, NoneType}


def require_characters(text: str, what: str) -> str:
    """`text`, unless it has half of a surrogate pair, which no file can hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} has half of a surrogate pair at position {error.start}") from error
    return text


def coerce_argument(name: str, value: Any, hint: Any) -> Any:
    """The value of an argument whose annotation is `hint`; a lone text or number where several may stand is one.

    Raises:
        InputError: not one of the values of a `Literal`, or a list where one text is expected.
    """
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    members = tuple(get_args(member)[0] if get_origin(member) is Annotated else member for member in members)
    kinds = {get_origin(member) or member for member in members}
    choices = [choice for member in members if get_origin(member) is Literal for choice in get_args(member)]
    if kinds <= {Literal, NoneType} and not (value is None and NoneType in kinds) and value not in choices:
        raise InputError(f"`{name}` {value!r} is unknown{did_you_mean(str(value), map(str, choices))}")
    lone = isinstance(value, str | os.PathLike | int) and value not in choices
    if Sequence in kinds and str not in kinds and lone:
        return (value,)
    if kinds <= SINGLE_VALUE and not isinstance(value, str | os.PathLike | NoneType):
        raise InputError(f"`{name}` takes one text or path, not {type(value).__name__}")
    return value


class _Names(dict[str, Any]):
    """The names of a module. A type that is imported for type checkers alone is checked by the function itself."""

    def __missing__(self, name: str) -> Any:
        return Any


def checked(function: Function) -> Function:
    """Check the arguments of `function`, and only then call it; see `coerce_argument`."""
    signature = inspect.signature(function)

    @functools.cache
    def hints() -> dict[str, Any]:
        annotations = {name: parameter.annotation for name, parameter in signature.parameters.items()}
        names = _Names({**vars(builtins), **getattr(function, "__globals__", {})})
        return get_type_hints(SimpleNamespace(__annotations__=annotations), localns=names, include_extras=True)

    @functools.wraps(function)
    def call(*positional: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(*positional, **named)
        except TypeError as error:
            raise TypeError(f"{function.__name__}() {error}") from None
        for name, value in bound.arguments.items():
            bound.arguments[name] = coerce_argument(name, value, hints()[name])
        return function(*bound.args, **bound.kwargs)

    return cast(Function, call)
