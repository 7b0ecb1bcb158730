"""A step on a device that is not the CPU: every tensor is moved, and nothing is read back before the step is over.

No GPU is needed: torch's fake tensors compute shapes and devices, refuse to mix devices, and have no values to read.
"""

import copy
import os
import sys
from pathlib import Path

import torch
from programs import run

# Boolean indices (MLM) and groups of equal length (mini_batch) need values of the step itself.
WAITING = ("many masks", "search")


def take_step(name: str, folder: Path) -> None:
    """A step of a stage with all its tensors on a stand-in for a GPU."""
    import training_processes as stages
    from torch._subclasses.fake_tensor import FakeTensorMode

    from msdc.distill.training.trainer import Trainer

    mode, gpu = FakeTensorMode(allow_non_fake_inputs=True), torch.device("standin", 0)

    def move(root):
        """`root.to(gpu)`, which cannot replace the parameters of a module by fake ones."""
        for module in root.modules():
            for tensors in (module._parameters, module._buffers):
                for key, tensor in tensors.items():
                    moved = tensor if tensor is None else fake(tensor.detach()).to(gpu)
                    if isinstance(tensor, torch.nn.Parameter):
                        moved = torch.nn.Parameter(moved, tensor.requires_grad)
                    tensors[key] = moved
        root.to = lambda device: root

    def fake(value):
        if isinstance(value, tuple):
            return tuple(map(fake, value))
        return mode.from_tensor(value) if isinstance(value, torch.Tensor) else value

    task, feed = stages.make(name, folder)
    batch = {key: fake(tensor) for key, tensor in vars(feed.batch(0)).items()}
    with mode:
        move(task)
        move(task.teacher.encoder.module)
        trainer = Trainer(task, feed, lambda encoder: {"choice": 0.0}, folder, 4, "float32", gpu, lambda row: None)
        for number in range(3):  # a bank is empty at first
            taken = trainer._step(type(feed.batch(0))(**copy.copy(batch)))
            feed.position.step = number + 1
        tensors = [taken.values, *task.state_dict().values()]
        tensors += [tensor for state in trainer.state.optimizer.state.values() for tensor in state.values()]
        assert {tensor.device for tensor in tensors} == {gpu}, name
        assert all(parameter.grad is None or parameter.grad.device == gpu for parameter in task.parameters())


def test_every_stage_keeps_to_its_device(tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run(sys.executable, __file__, tmp_path, cwd=tmp_path, env=environment)


if __name__ == "__main__":
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend("standin")
    torch.standin.get_amp_supported_dtype = lambda: [torch.bfloat16]
    from training_processes import STAGES

    for stage_name in sys.argv[2:] or [name for name in STAGES if name not in WAITING]:
        take_step(stage_name, Path(sys.argv[1]) / stage_name)
        print(stage_name)
