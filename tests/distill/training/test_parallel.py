"""Two and four processes with unequal shares: losses, weights and decisions of one process, for every objective."""

from contextlib import suppress

import pytest
import tiny_models
import torch
import torch.multiprocessing
from torch_processes import forkserver, free_port
from training_processes import STAGES, sgd, train, work

from msdc.distill.objectives import OBJECTIVES
from msdc.distill.training import trainer


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, dict]:
    """What one process found, and the first two of two and of four."""
    folder = tmp_path_factory.mktemp("processes")
    tiny_models.student_folder(), tiny_models.tokenizer()
    forkserver()
    for world in (2, 4):
        torch.multiprocessing.start_processes(work, (world, free_port(), folder), world, start_method="forkserver")
    before = trainer.make_optimizer
    trainer.make_optimizer = sgd
    with suppress(FileNotFoundError):
        results = {"1": {name: train(name, folder / f"1-{name}") for name in STAGES}}
    trainer.make_optimizer = before
    return results | {path.stem: torch.load(path) for path in folder.glob("?-?.pt")}


def test_two_processes_stop_and_four_go_on(runs):
    losses, weights = runs["1"]["coded"]
    for rank in (0, 1):
        others, state = runs[f"4-{rank}"]["going"]
        assert others == pytest.approx(losses[3:], rel=1e-9)
        for key, value in weights.items():
            torch.testing.assert_close(state[key], value, rtol=1e-9, atol=1e-11, msg=key)


def test_every_objective_is_compared():
    names = [use if isinstance(use, str) else use["name"] for stage in STAGES.values() for use in stage["objective"]]
    assert set(names) == set(OBJECTIVES)


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("processes", ["2", "4"])
def test_processes_equal_one(runs, name, processes):
    losses, weights = runs["1"][name]
    assert len(set(losses)) == 5
    others = [runs[f"{processes}-{rank}"][name] for rank in (0, 1)]
    for other, state in others:
        assert other == pytest.approx(losses, rel=1e-9)
        for key, value in weights.items():
            torch.testing.assert_close(state[key], value, rtol=1e-9, atol=1e-11, msg=key)
    # Not only near: one another's copy, bit for bit.
    assert all(torch.equal(value, others[1][1][key]) for key, value in others[0][1].items())
