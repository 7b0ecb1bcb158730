"""Options of a verb, stated once: the fields of a model are the keywords of its function, their documentation and
checks; `msdc.commands.options_of` makes its command line from them.
"""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo

from msdc.arguments import checked
from msdc.errors import InputError, first_problem

AnyPath = Annotated[str | Path, AfterValidator(lambda path: Path(path))]


class Options(BaseModel):
    """Base of a verb's options. A description that ends in "; None: WHAT" states what the default means; a field
    without a description is internal.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def documented(cls) -> dict[str, FieldInfo]:
        """The fields that are arguments of the verb, by name."""
        return {name: field for name, field in cls.model_fields.items() if field.description is not None}

    @classmethod
    def of(cls, **given: Any) -> Any:
        """The options; an `InputError` names the first argument that is out of range."""
        try:
            return cls(**given)
        except ValidationError as error:
            name, _, problem = first_problem(error).partition(": ")
            raise InputError(f"`{name.partition('.')[0]}`: {problem}") from error


def takes(model: Callable[..., Options]) -> Callable[[Callable[..., Any]], Any]:
    """A decorator for a function of its own arguments and `options`, a `model`: it takes the fields of the model as
    keywords instead. They are in its signature, and in the docstring behind its own `Args`.

    The static type is declared where it is used: a protocol over the parameters of the model.
    """
    assert isinstance(model, type) and issubclass(model, Options)

    def decorate(function: Callable[..., Any]) -> Any:
        whole = inspect.signature(function, eval_str=True)
        own = [one for name, one in whole.parameters.items() if name != "options"]
        keyword, documented = inspect.Parameter.KEYWORD_ONLY, model.documented()
        fields = [inspect.Parameter(name, keyword, default=field.default, annotation=field.annotation)
                  for name, field in documented.items()]  # fmt: skip

        @functools.wraps(function)
        def call(*positional: Any, **given: Any) -> Any:
            mine = {one.name: given.pop(one.name) for one in own if one.name in given}
            return function(*positional, **mine, options=model.of(**given))

        vars(call)["__signature__"] = whole.replace(parameters=[*own, *fields])
        call.__annotations__ = {one.name: one.annotation for one in (*own, *fields)}
        head, _, rest = inspect.cleandoc(function.__doc__ or "").partition("Args:\n")
        lines, _, tail = rest.partition("\n\n")
        texts = [f"{name}: {field.description}." for name, field in documented.items()]
        filled = [textwrap.fill(text, 116, initial_indent="    ", subsequent_indent=8 * " ") for text in texts]
        call.__doc__ = head + "\n".join(["Args:", *filter(None, [lines]), *filled]) + f"\n\n{tail}".rstrip()
        return checked(call)

    return decorate
