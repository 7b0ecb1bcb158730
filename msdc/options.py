"""Options of a verb, stated once: the fields of a model are the keywords of its function, their documentation and
checks; `msdc.command_options.options_of` makes its command line from them.
"""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from msdc.arguments import checked
from msdc.errors import InputError, first_problem

AnyPath = Annotated[str | Path, AfterValidator(lambda path: Path(path))]


def listed(value: Any) -> Any:
    """The parts of a comma-separated text; a list as it is."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


# A lone text is a member of the type: `checked` would make one name of it before `listed` splits it.
Names = Annotated[str | Sequence[str] | None, BeforeValidator(listed)]


class Options(BaseModel):
    """Base of a verb's options. A description that ends in "; None: WHAT" states what the default means; a field
    without a description is internal.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def documented(cls) -> dict[str, FieldInfo]:
        """The fields that are arguments of the verb, by name."""
        return {name: field for name, field in cls.model_fields.items() if field.description is not None}


def with_option_keywords(model: type[Options], function: Callable[..., Any]) -> Any:
    """`function`, which takes `options` (a `model`), with the fields of the model as keywords instead: in its
    signature, and in its docstring behind its own arguments. An `InputError` names the argument that is out of range.

    The static type is declared by the caller: a protocol over the parameters of the model.
    """
    signature, fields = inspect.signature(function, eval_str=True), model.documented()
    types = get_type_hints(model)  # without the checks of `Annotated`
    own_parameters = [parameter for name, parameter in signature.parameters.items() if name != "options"]
    keywords = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, annotation=types[name],
            default=inspect.Parameter.empty if field.is_required() else field.default,
        ) for name, field in fields.items()
    ]  # fmt: skip

    @functools.wraps(function)
    def call(*positional: Any, **arguments: Any) -> Any:
        mine = {
            parameter.name: arguments.pop(parameter.name) for parameter in own_parameters if parameter.name in arguments
        }
        try:
            options = model(**arguments)
        except ValidationError as error:
            name, _, problem = first_problem(error).partition(": ")
            raise InputError(f"`{name.partition('.')[0]}`: {problem}") from error
        return function(*positional, **mine, options=options)

    call.__name__ = call.__qualname__ = function.__name__.lstrip("_")
    vars(call)["__signature__"] = signature.replace(parameters=[*own_parameters, *keywords])
    head, *tail = re.split(r"(?=\n\n(?:Returns|Raises):)", inspect.cleandoc(function.__doc__ or ""), maxsplit=1)
    lines = [textwrap.fill(f"{name}: {field.description}.", 116, initial_indent=4 * " ", subsequent_indent=8 * " ")
             for name, field in fields.items()]  # fmt: skip
    call.__doc__ = "\n".join([head, *lines]) + "".join(tail)
    return checked(call)
