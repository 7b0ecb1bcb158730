"""Every objective that a recipe may name: the functions below `@objective()` of the papers' modules.

Others are functions in a file next to a recipe, or of an installed package (msdc.distill.objectives.own).

The task passes the tensors that a function's parameters name; the functions do not depend on models, tokenizers or
processes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from msdc.distill.objectives import distilcse, lightweight, multi_stage, own, relational, retrieval, sbert
from msdc.errors import InputError, MsdcError
from msdc.progress import warn


@dataclass(frozen=True)
class Objective:
    """A loss function and its inputs, which its signature states.

    Attributes:
        name: in a recipe.
        function: the pure function.
        preset: arguments that the name implies.
        equal_widths: of the function: the student's vectors have the teacher's width, if necessary by a learned map.
        one_side: whether it is part of a step that trains only the target side.
        file: of one that is not shipped: the file that defines it, whose content is an input of a run.
        content: the sha256 of what was read from this file.
        inputs: required tensors: parameters without a default.
        optional: tensors to use if available: parameters whose default is None.
        options: what a recipe may set: the other parameters.
    """

    name: str
    function: Callable[..., Tensor]
    preset: Mapping[str, Any] = field(default_factory=dict)
    one_side: bool = False
    file: Path | None = None
    content: str = ""
    equal_widths: bool = field(init=False)
    inputs: tuple[str, ...] = field(init=False)
    optional: tuple[str, ...] = field(init=False)
    options: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        kinds: dict[str, list[str]] = {"inputs": [], "optional": [], "options": []}
        for name, parameter in inspect.signature(self.function).parameters.items():
            if parameter.default is parameter.empty:
                kinds["inputs"].append(name)
            elif parameter.default is None:
                kinds["optional"].append(name)
            elif name not in self.preset:
                kinds["options"].append(name)
        for kind, names in kinds.items():
            object.__setattr__(self, kind, tuple(names))
        object.__setattr__(self, "equal_widths", getattr(self.function, "equal_widths", False))

    def __call__(self, tensors: Mapping[str, Tensor | None], **options: Any) -> Tensor:
        """The loss, from a mapping with at least `inputs`; other entries are ignored.

        Raises:
            InputError: an input is missing, an option is unknown, or the function refuses its arguments.
        """
        if unknown := sorted(set(options) - set(self.options)):
            option_names = ", ".join(self.options) or "it has none"
            raise InputError(f"objective {self.name}: unknown option {', '.join(unknown)} (known: {option_names})")
        if missing := [name for name in self.inputs if tensors.get(name) is None]:
            raise InputError(f"objective {self.name} needs {', '.join(missing)}, which this stage does not provide")
        arguments = {name: tensors[name] for name in (*self.inputs, *self.optional) if tensors.get(name) is not None}
        return self._loss(arguments, options)

    def _loss(self, arguments: Mapping[str, Any], options: Mapping[str, Any]) -> Tensor:
        return self.function(**arguments, **self.preset, **options)


@dataclass(frozen=True)
class OwnObjective(Objective):
    """One that is not shipped: errors in its code are one line with the place in its file."""

    def _loss(self, arguments: Mapping[str, Any], options: Mapping[str, Any]) -> Tensor:
        try:
            loss = super()._loss(arguments, options)
        except MsdcError:
            raise
        except Exception as error:
            raise own.located(error, self.file) from error
        own.check_loss(self.name, loss)
        return loss


_GENERATIVE = {"unified_generative": "ugt", "xtr": "xtr", "smlm": "smlm"}
# Functions with other names in a recipe, or with settings of their own; parts of objectives.
_NAMED = (
    Objective("similarity_distillation", distilcse.similarity_distillation, one_side=True),
    *(Objective(name, lightweight.unified_generative, {"task": task}) for name, task in _GENERATIVE.items()),
    *(Objective(f"relational_{what}", relational.relational, {"relation": what}) for what in relational.RELATIONS),
    Objective("mlm", lightweight.masked_language_model),
)
_PARTS = (distilcse.domain_prototypes, retrieval.candidate_scores)


def _plain_objectives() -> Iterator[Objective]:
    """Every other function below `@objective()` of the papers' modules."""
    others = {*_PARTS, *(objective.function for objective in _NAMED)}
    for module in (multi_stage, distilcse, sbert, retrieval, lightweight, relational):
        for name, function in vars(module).items():
            is_own = getattr(function, "__module__", "") == module.__name__ and hasattr(function, "equal_widths")
            if is_own and function not in others:
                yield Objective(name, function)


_ALL = (*_plain_objectives(), *_NAMED)
OBJECTIVES: Mapping[str, Objective] = {objective.name: objective for objective in _ALL}


# Names of the tensors that stages provide.
TENSORS = frozenset(name for objective in _ALL for name in (*objective.inputs, *objective.optional))


def find_objective(name: str, fresh: bool = False) -> Objective:
    """The objective of that name: a shipped one, `FILE.py:FUNCTION`, or an entry point of an installed package.

    Args:
        name: as in a recipe; a path is relative to the working directory.
        fresh: read a file again that was read before, if it has changed.

    Raises:
        InputError: an unknown name (the known ones are listed), or a function that is no objective.
    """
    if name in OBJECTIVES:
        if fresh and name in own.plugins():
            warn(f"objective {name}: the shipped one is used, not {own.plugins()[name].value}; give that another name")
        return OBJECTIVES[name]
    function = own.load_function(name, fresh)
    if function is None:
        names = ", ".join(sorted([*OBJECTIVES, *own.plugins()]))
        raise InputError(f"unknown objective {name!r}; known: {names}, or a function of a file: losses.py:NAME")
    label = Path(name).name
    own.check_parameters(label, function, TENSORS)
    file, content = own.source_of(name, function)
    return OwnObjective(label, function, file=file, content=content)
