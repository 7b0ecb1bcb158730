"""Training with several processes, with exact gradients: those of one process with the global batch.

A launcher of PyTorch (torchrun, Accelerate's, SLURM's srun around torchrun) sets the environment variables that `start`
reads. Every process computes the loss of the whole global batch from gathered vectors; only its own rows carry
gradients. It scales them by the number of processes W and DistributedDataParallel averages them, so nothing but that
average is communicated in the backward pass. Means over tokens are sums over those of all processes (`weighted`).

Decisions and files are the first process's: `on_rank_zero`.
"""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from msdc.errors import InputError, MsdcError, first_line
from msdc.machine import read_machine
from msdc.progress import be_quiet

Outcome = TypeVar("Outcome")

STEP_LIMIT = timedelta(minutes=30)  # for one exchange within a step; a process that hangs ends the run
PATIENCE = timedelta(days=7)  # while the first process downloads, trains a vocabulary, validates
OUTCOME_LIMIT = timedelta(minutes=2)  # for processes that fail at the same place
_patient: Any = None  # the group with this patience; on CPUs, whatever the device
_outcome_group: Any = None  # the group of `exchange_outcomes`, on CPUs too: exchanges of the others may be unfinished


def rank_and_world() -> tuple[int, int]:
    """The number of this process (from 0) and of all processes."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def own_device() -> torch.device:
    """The GPU of this process, by the launcher's LOCAL_RANK, or the CPU.

    Raises:
        InputError: this process has no GPU of its own.
    """
    if not torch.cuda.is_available():
        return torch.device("cpu")
    number, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if number >= count:
        raise InputError(f"process {number + 1} of this machine has no GPU: start {count} processes per machine")
    return torch.device("cuda", number)


def resolve_precision(precision: str, device: torch.device) -> str:
    """`float32` or `bfloat16`; `auto` is bfloat16 if the processor or GPU multiplies it in hardware."""
    if precision != "auto":
        return precision
    fast = torch.cuda.is_bf16_supported(including_emulation=False) if device.type == "cuda" else read_machine().bf16
    return "bfloat16" if fast else "float32"


def start() -> torch.device:
    """Join the launcher's other processes, if any; returns the device of this process.

    Only the first process shows progress.

    Raises:
        InputError: this process has no GPU of its own.
        MsdcError: the other processes cannot be reached.
    """
    global _patient, _outcome_group
    device = own_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        try:
            dist.init_process_group("cuda:nccl,cpu:gloo" if device.type == "cuda" else "gloo", timeout=STEP_LIMIT)
            _patient = dist.new_group(backend="gloo", timeout=PATIENCE)
            _outcome_group = dist.new_group(backend="gloo", timeout=OUTCOME_LIMIT)
        except (ValueError, RuntimeError) as error:
            raise MsdcError(f"the other processes cannot be reached: {first_line(error)}") from error
        atexit.register(_leave)
        if rank_and_world()[0] > 0:
            be_quiet(True)
    return device


def _leave() -> None:
    """End the threads of the groups while Python still runs: left to the end of the process, one may abort it."""
    global _patient, _outcome_group
    _patient = _outcome_group = None
    if dist.is_initialized():
        dist.destroy_process_group()


def barrier() -> None:
    """Wait for all processes, for days if necessary."""
    if rank_and_world()[1] > 1:
        dist.barrier(group=_patient)


def on_rank_zero(work: Callable[[], Outcome]) -> Outcome:
    """What `work` returns in the first process, in all of them, which wait for it; its error is raised in all."""
    rank, world = rank_and_world()
    if world == 1:
        return work()
    result: Any = None
    failed: Exception | None = None
    if rank == 0:
        try:
            result = work()
        except Exception as error:
            failed = error
    shared = [result, None if failed is None else (isinstance(failed, InputError), str(failed) or repr(failed))]
    dist.broadcast_object_list(shared, group=_patient)
    if rank > 0 and shared[1] is not None:
        failed = (InputError if shared[1][0] else MsdcError)(shared[1][1])
    if failed is not None:
        raise failed
    outcome: Outcome = shared[0]
    return outcome


def exchange(value: Any) -> list[Any]:
    """The values of all processes, in their order."""
    _, world = rank_and_world()
    values = [value] * world
    if world > 1:
        dist.all_gather_object(values, value, group=_patient)
    return values


def exchange_outcomes(value: Any) -> list[Any]:
    """The values of all processes after work that may have failed.

    A process that fails alone leaves the others in an exchange of that work.

    Raises:
        MsdcError: not all processes come here within OUTCOME_LIMIT.
    """
    world = rank_and_world()[1]
    values = [value] * world
    if world > 1:
        try:
            dist.monitored_barrier(_outcome_group, OUTCOME_LIMIT)
            dist.all_gather_object(values, value, group=_outcome_group)
        except RuntimeError as error:
            raise MsdcError(f"another process failed alone: {first_line(error)}") from error
    return values


def demand_same(value: Any, problem: str) -> None:
    """Raise an InputError with `problem` in all processes unless all have an equal `value`."""
    if any(other != value for other in exchange(value)):
        raise InputError(problem)


def wrap(module: torch.nn.Module, partial: bool = False) -> Any:
    """The task, in DistributedDataParallel if there are several processes; freeze it first.

    Buffers are equal in all processes and stay so: none is sent. `partial`: some steps leave parameters without a
    gradient.
    """
    if rank_and_world()[1] == 1:
        return module
    with warnings.catch_warnings():
        # Its successor in torch 2.13 sends the buffers at the start, and neither NCCL nor gloo can send int16.
        warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
        ddp = torch.nn.parallel.DistributedDataParallel
        return ddp(module, broadcast_buffers=False, find_unused_parameters=partial)


class _Gather(torch.autograd.Function):
    """The backward pass communicates nothing: every process has the gradient of all rows, and takes that of its own."""

    @staticmethod
    def forward(ctx: Any, local_rows: Tensor, size: int) -> Tensor:
        _, world = rank_and_world()
        longest = -(-size // world)
        padded = local_rows.new_zeros(longest, *local_rows.shape[1:])
        padded[: len(local_rows)] = local_rows
        out = local_rows.new_empty(world * longest, *local_rows.shape[1:])
        dist.all_gather_single(out, padded)
        return out.unflatten(0, (world, longest)).transpose(0, 1).flatten(0, 1)[:size]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:  # type: ignore[override]
        rank, world = rank_and_world()
        return gradient[rank::world] * world, None


def gather(local_rows: Tensor, size: int) -> Tensor:
    """The rows of all processes in the order of the global batch of `size` rows, with gradients.

    Rows are distributed round robin (`share`): process r of W has rows r, r + W, r + 2W, ... of the global batch.
    """
    if rank_and_world()[1] == 1:
        return local_rows
    gathered: Tensor = _Gather.apply(local_rows, size)  # type: ignore[no-untyped-call]
    return gathered


def share(count: int) -> slice:
    """The rows of a global batch that this process computes."""
    rank, world = rank_and_world()
    return slice(rank, count, world)


def weighted(mean: Tensor, count: Tensor) -> Tensor:
    """This process's mean over `count` items, scaled so that the average over processes is the mean over all items."""
    world = rank_and_world()[1]
    if world == 1:
        return mean
    total = count.double()
    dist.all_reduce(total)
    return mean * (count * world / total.clamp(min=1)).to(mean.dtype)


def average(values: Tensor) -> Tensor:
    """The mean of `values` over all processes."""
    world = rank_and_world()[1]
    if world > 1:
        dist.all_reduce(values)
    return values / world
