"""What the objectives share: full precision inside, cosines that are defined everywhere, and shape checks.

Half-precision and autocast inputs are widened to float32 (float64 stays float64), so a loss is always at least
float32 and a similarity never loses digits to bfloat16.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec

import torch
import torch.nn.functional as F
from torch import Tensor

from msdc.errors import InputError

P = ParamSpec("P")

# Below this length a vector has no direction; `torch.nn.functional.normalize` has the same limit.
SHORTEST = 1e-12


@contextmanager
def errors_named(name: str) -> Iterator[None]:
    """Put `name` before the messages of the checks below."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


def full_precision(objective: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """Run `objective` outside autocast, with every floating tensor in one dtype of at least float32.

    Its name is put before its errors.
    """

    @functools.wraps(objective)
    def inside(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
        floating = [x.dtype for x in tensors if x.is_floating_point()]
        dtype = functools.reduce(torch.promote_types, floating, torch.float32)

        def widen(x: Any) -> Any:
            return x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x

        # Autocast would cast the products inside back to half precision.
        off = torch.autocast(tensors[0].device.type if tensors else "cpu", enabled=False)
        with off, errors_named(objective.__name__):
            return objective(*map(widen, args), **{name: widen(x) for name, x in kwargs.items()})  # type: ignore[arg-type]

    return inside


def unit_rows(vectors: Tensor) -> Tensor:
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
    return unit_rows(first_MD) @ unit_rows(second_ND).T


def equal_texts(texts_BS: Tensor, *others_M: Tensor) -> Tensor:
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
    found = [
        torch.stack([one_B[:, None] == other_M for one_B in texts_BS.unbind(1) for other_M in other_MS.unbind(1)]).any(
            0
        )
        for other_MS in check
    ]
    return torch.cat([found[0].fill_diagonal_(False), *found[1:]], dim=1)


def check_rows(**tensors: Tensor) -> None:
    """Demand floating tensors [B, D] of one shape with B >= 1."""
    first_name, first = next(iter(tensors.items()))
    for name, tensor in tensors.items():
        check_floating(name, tensor, dimensions=2)
        if tensor.shape != first.shape:
            same = tensor.shape[1] == first.shape[1]
            hint = "" if same else "; project the student to its teacher's width first"
            raise InputError(f"{name} is {shape(tensor)} but {first_name} is {shape(first)}, they must be equal{hint}")


def check_pairs(teacher_source_BD: Tensor, student_source_BD: Tensor, student_target_BD: Tensor) -> None:
    """Demand one row per sentence pair; the student's width may differ from its teacher's."""
    check_rows(student_source_BD=student_source_BD, student_target_BD=student_target_BD)
    check_rows(teacher_source_BD=teacher_source_BD)
    if len(teacher_source_BD) != len(student_source_BD):
        raise InputError(
            f"teacher_source_BD is {shape(teacher_source_BD)} but student_source_BD is "
            f"{shape(student_source_BD)}: expected one row per sentence pair"
        )


def check_bank(bank_KD: Tensor, **like: Tensor) -> None:
    """Demand a bank [K, D] of the width of the named tensor [B, D]; it may be empty."""
    ((name, tensor),) = like.items()
    if bank_KD.dim() != 2 or bank_KD.shape[1] != tensor.shape[1]:
        raise InputError(f"bank_KD is {shape(bank_KD)}, expected [K, {tensor.shape[1]}] as {name}")


def check_floating(name: str, tensor: Tensor, dimensions: int) -> None:
    """Demand a floating tensor with `dimensions` dimensions, none of them empty."""
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        raise InputError(f"{name} must be a floating-point tensor, not {kind}")
    if tensor.dim() != dimensions:
        raise InputError(f"{name} must have {dimensions} dimensions, its shape is {shape(tensor)}")
    if tensor.numel() == 0:
        raise InputError(f"{name} is empty, its shape is {shape(tensor)}")


def check_labels(label_B: Tensor, count: int, classes: int, what: str = "labels") -> None:
    """Demand one integer 0 .. classes-1 for each of `count` rows."""
    if label_B.shape != (count,) or label_B.is_floating_point():
        raise InputError(f"expected {count} integer {what}, got {label_B.dtype} {shape(label_B)}")
    # Checked only on the CPU, where it does not wait for the device.
    if label_B.device.type == "cpu" and not 0 <= int(label_B.min()) <= int(label_B.max()) < classes:
        raise InputError(f"{what} must be 0 .. {classes - 1}, got up to {int(label_B.max())}")


def check_temperature(temperature: float) -> None:
    """Demand a temperature above zero."""
    if not temperature > 0:
        raise InputError(f"temperature must be above 0, got {temperature}")


def reduce(losses: Tensor, reduction: str) -> Tensor:
    """Sum (as the paper writes it) or mean of all numbers in `losses`."""
    if reduction == "sum":
        return losses.sum()
    if reduction == "mean":
        return losses.mean()
    raise InputError(f"reduction must be sum or mean, not {reduction!r}")


def squared_error(first_BD: Tensor, second_BD: Tensor, reduction: str) -> Tensor:
    """Squared error of rows, mean over B; over D the mean (as `mse_loss`) or the sum (as the papers write ||.||^2)."""
    if reduction not in ("mean", "sum"):
        raise InputError(f"reduction must be mean or sum, not {reduction!r}")
    error = F.mse_loss(first_BD, second_BD)
    return error * first_BD.shape[-1] if reduction == "sum" else error


def shape(tensor: Tensor) -> str:
    """Shape for a message: [2, 3]."""
    return str(list(tensor.shape))
