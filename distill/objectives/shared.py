"""What the objectives share: full precision inside, arguments checked by their names, cosines defined everywhere.

Half-precision and autocast inputs are widened to float32 (float64 stays float64), so a loss is always at least
float32 and a similarity never loses digits to bfloat16.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec

import torch
import torch.nn.functional as F
from torch import Tensor

from msdc.arguments import checked
from msdc.errors import InputError

P = ParamSpec("P")

# Below this length a vector has no direction; `torch.nn.functional.normalize` has the same limit.
SHORTEST = 1e-12
FLOATING = "DHVFJ"  # last axes of floating tensors
MAY_BE_EMPTY = "KM"  # first axes: a memory bank, masked tokens


def objective(*, equal_widths: bool = False) -> Callable[[Callable[P, Tensor]], Callable[P, Tensor]]:
    """Make a function an objective: outside autocast, with every floating tensor in one dtype of at least float32.

    Its arguments are checked (`check_shapes`, `msdc.arguments.checked`), and its name is put before its errors. With
    `equal_widths` the vectors of student and teacher have one width, if necessary by a learned map.
    """

    def decorate(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
        signature, call = inspect.signature(function), checked(function)

        @functools.wraps(function)
        def inside(*args: P.args, **kwargs: P.kwargs) -> Tensor:
            arguments = signature.bind(*args, **kwargs).arguments
            tensors = [x for x in arguments.values() if isinstance(x, Tensor)]
            floating = [x.dtype for x in tensors if x.is_floating_point()]
            dtype = functools.reduce(torch.promote_types, floating, torch.float32)

            def widen(argument: Any) -> Any:
                return argument.to(dtype) if isinstance(argument, Tensor) and argument.is_floating_point() else argument

            try:
                check_shapes(arguments, equal_widths)
                # Autocast would cast the products inside back to half precision.
                with torch.autocast(tensors[0].device.type if tensors else "cpu", enabled=False):
                    return call(**{name: widen(x) for name, x in arguments.items()})  # type: ignore[call-arg, arg-type]
            except InputError as error:
                raise InputError(f"{function.__name__}: {error}") from error

        inside.equal_widths = equal_widths  # type: ignore[attr-defined]
        return inside

    return decorate


def check_shapes(arguments: Mapping[str, Any], equal_widths: bool) -> None:
    """Check arguments by the axes in their names: teacher_BD is [B, D], and a letter has one size in all of them.

    Without `equal_widths` the teacher's D is its own; `negative_BD` has any number of rows. A temperature is above 0.
    """
    sizes: dict[str, tuple[int, str]] = {}
    for name, value in arguments.items():
        letters = name.rpartition("_")[2]
        if name == "temperature" and not value > 0:
            raise InputError(f"temperature must be above 0, got {value}")
        if value is None or not letters.isupper():
            continue
        floating = letters[-1] in FLOATING
        if not isinstance(value, Tensor) or (floating and not value.is_floating_point()):
            kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
            raise InputError(f"{name} must be a {'floating-point ' if floating else ''}tensor, not {kind}")
        if value.dim() != len(letters):
            raise InputError(f"{name} must have {len(letters)} dimensions, its shape is {shape(value)}")
        if floating and value.numel() == 0 and letters[0] not in MAY_BE_EMPTY:
            raise InputError(f"{name} is empty, its shape is {shape(value)}")
        teacher = name.startswith("teacher_")
        for letter, size in zip(letters, value.shape, strict=True):
            if letter == "B" and name == "negative_BD":
                continue
            has_own_width = teacher and letter == "D" and not equal_widths
            expected_size, first = sizes.setdefault("teacher's D" if has_own_width else letter, (size, name))
            if size != expected_size:
                maps = letter in "DH" and teacher != first.startswith("teacher_")
                hint = "; map the student to its teacher's width first" if maps else ""
                raise InputError(
                    f"{name} is {shape(value)} but {first} is {shape(arguments[first])}: {letter} differs{hint}"
                )


def unit_vectors(vectors: Tensor) -> Tensor:
    """Scale vectors to length 1; one shorter than 1e-12 becomes zero, with a zero gradient.

    `torch.nn.functional.normalize` gives a zero vector a gradient of 1e12.
    """
    squared = (vectors * vectors).sum(-1, keepdim=True)
    positive = squared > SHORTEST**2
    # Both branches must be finite: the gradient of the one not taken is multiplied by zero, not skipped.
    length = torch.where(positive, squared, torch.ones_like(squared)).sqrt()
    return torch.where(positive, vectors / length, torch.zeros_like(vectors))


def cosines(first_MD: Tensor, second_ND: Tensor) -> Tensor:
    """All cosines [M, N]; a zero vector has cosine 0 with everything."""
    return unit_vectors(first_MD) @ unit_vectors(second_ND).T


def false_negative_mask(texts_BS: Tensor, *others_M: Tensor) -> Tensor:
    """The candidates that are no negatives of a row, bool [B, B + M]: the other rows of the batch, then other texts.

    A row that shares a text with another one is a copy of it, another translation of its sentence, or another question
    with the same answer; a text that equals one of the row's own is no negative either.

    Args:
        texts_BS: the texts of each row as integers, equal for equal texts.
        others_M: further candidates, single texts.

    Raises:
        InputError: not one row of texts per row of a batch.
    """
    check = [texts_BS, *(other_M.view(-1, 1) for other_M in others_M)]
    masks = [
        torch.stack([one_B[:, None] == other_M for one_B in texts_BS.unbind(1) for other_M in other_MS.unbind(1)]).any(
            0
        )
        for other_MS in check
    ]
    return torch.cat([masks[0].fill_diagonal_(False), *masks[1:]], dim=1)


def check_labels(label_B: Tensor, classes: int, what: str = "labels") -> None:
    """Demand integers 0 .. classes-1."""
    if label_B.is_floating_point():
        raise InputError(f"{what} must be integers, not {label_B.dtype}")
    # Checked only on the CPU, where it does not wait for the device.
    if label_B.device.type == "cpu" and not 0 <= int(label_B.min()) <= int(label_B.max()) < classes:
        raise InputError(f"{what} must be 0 .. {classes - 1}, got up to {int(label_B.max())}")


def reduce(losses: Tensor, reduction: str) -> Tensor:
    """Sum (as the paper writes it) or mean of all numbers in `losses`."""
    return losses.sum() if reduction == "sum" else losses.mean()


def squared_error(first_BD: Tensor, second_BD: Tensor, reduction: str) -> Tensor:
    """Squared error of rows, mean over B; over D the mean (as `mse_loss`) or the sum (as the papers write ||.||^2)."""
    error = F.mse_loss(first_BD, second_BD)
    return error * first_BD.shape[-1] if reduction == "sum" else error


def shape(tensor: Tensor) -> str:
    """Shape for a message: [2, 3]."""
    return str(list(tensor.shape))
