"""benchmarks/gpu.py without a GPU: its parts run, so that a lent machine's minutes are not spent on mistakes."""

import json
import sys

from places import ROOT
from programs import run


def test_gradients_of_every_stage_are_compared():
    """Both sides are the CPU here: equal to the last bit, so that a difference on a GPU is the GPU's."""
    output = run(sys.executable, ROOT / "benchmarks" / "gpu.py", "-o", "unused", "--child", cwd=ROOT)
    result = json.loads(output.strip().splitlines()[-1])
    assert result["passed"]
    assert len(result["stages"]) > 10
    assert max(max(pair) for pair in result["stages"].values()) == 0
