"""Training with several processes under torchrun, with exact gradients.

Every process computes the loss of the whole global batch from gathered vectors; only its own rows carry gradients. The
gradient of gathering sums over processes and DistributedDataParallel averages, so the result is the gradient of one
process with the global batch, for every objective, contrastive ones included.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from msdc.errors import InputError, MsdcError


def rank_and_world() -> tuple[int, int]:
    """The number of this process (from 0) and of all processes."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def start() -> torch.device:
    """Join the process group of torchrun, if any; returns the device of this process."""
    cuda = torch.cuda.is_available()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not dist.is_initialized():
        dist.init_process_group("nccl" if cuda else "gloo")
    if cuda:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
        return device
    return torch.device("cpu")


def barrier() -> None:
    """Wait for all processes."""
    if rank_and_world()[1] > 1:
        dist.barrier()


def first(work: Callable[[], None]) -> None:
    """Do `work` in the first process while the others wait; its error is raised in all of them."""
    rank, world = rank_and_world()
    failed: MsdcError | None = None
    if rank == 0:
        try:
            work()
        except MsdcError as error:
            failed = error
    if world > 1:
        shared: list[Any] = [failed and (failed.exit_code, str(failed))]
        dist.broadcast_object_list(shared)
        if rank > 0 and shared[0] is not None:
            failed = (InputError if shared[0][0] == InputError.exit_code else MsdcError)(shared[0][1])
    if failed is not None:
        raise failed


def exchange(value: Any) -> list[Any]:
    """The values of all processes, in their order."""
    _, world = rank_and_world()
    found = [value] * world
    if world > 1:
        dist.all_gather_object(found, value)
    return found


def wrap(module: torch.nn.Module) -> Any:
    """The task, in DistributedDataParallel if there are several processes."""
    if rank_and_world()[1] == 1:
        return module
    return torch.nn.parallel.DistributedDataParallel(module, find_unused_parameters=True)


def gather(vectors_BD: Tensor) -> Tensor:
    """The rows of all processes in the order of the global batch, with gradients.

    Rows are distributed round robin (`share`): process r of W has rows r, r + W, r + 2W, ... of the global batch.
    """
    _, world = rank_and_world()
    if world == 1:
        return vectors_BD
    counts = [torch.zeros(1, dtype=torch.int64, device=vectors_BD.device) for _ in range(world)]
    dist.all_gather(counts, torch.tensor([len(vectors_BD)], device=vectors_BD.device))
    sizes = [int(c) for c in counts]
    longest = max(sizes)
    padded = torch.nn.functional.pad(vectors_BD, (0, 0, 0, longest - len(vectors_BD)))
    if vectors_BD.requires_grad:
        import torch.distributed.nn.functional as dist_nn

        parts = dist_nn.all_gather(padded)
    else:
        parts = [torch.empty_like(padded) for _ in range(world)]
        dist.all_gather(parts, padded.contiguous())
    together = torch.stack(list(parts), dim=1).reshape(longest * world, -1)
    keep = torch.tensor([i < sizes[r] for i in range(longest) for r in range(world)], device=vectors_BD.device)
    return together[keep]


def share(count: int) -> slice:
    """The rows of a global batch that this process computes."""
    rank, world = rank_and_world()
    return slice(rank, count, world)
