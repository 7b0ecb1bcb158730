"""Upper bounds of the numbers in recipes and model configs, above anything published.

A mistyped digit must be an error of one line, not hours of work or exhausted memory. The types are for fields of
pydantic models; pydantic itself is not imported here, so that a model opens without it. `check_sizes` checks the
configs of stock models, whose keys are those of `transformers`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Gt, Le

from msdc.errors import InputError

LAYERS = 256  # stored, and applied by recurrence
WIDTH = 16_384
EXPERTS = 1024

Layers = Annotated[int, Gt(0), Le(LAYERS)]
Width = Annotated[int, Gt(0), Le(WIDTH)]
Inner = Annotated[int, Gt(0), Le(4 * WIDTH)]  # width of a feed-forward layer
Heads = Annotated[int, Gt(0), Le(1024)]
Tokens = Annotated[int, Gt(0), Le(2**22)]  # of a vocabulary
Positions = Annotated[int, Gt(0), Le(2**15)]
Batch = Annotated[int, Gt(0), Le(2**16)]
BatchTokens = Annotated[int, Gt(0), Le(2**24)]
Steps = Annotated[int, Gt(0), Le(10**8)]
Epochs = Annotated[float, Gt(0), Le(10**5)]
Count = Annotated[int, Gt(0), Le(10**12)]  # of rows and characters
BANK = 2**20  # vectors of a memory bank

# Keys of a stock config that count modules; sizes of tensors are compared with the weights instead.
_COUNTS = ((re.compile(r"(layers?|groups?|blocks|depth|group_num)$"), LAYERS), (re.compile(r"experts$"), EXPERTS),
           (re.compile(r"_features$"), WIDTH))  # fmt: skip


def check_sizes(config: Any, where: Path) -> None:
    """Refuse a stock config with more layers, groups, experts or features than any model has."""
    for key, value in config.items() if isinstance(config, dict) else ():
        check_sizes(value, where)
        most = next((limit for pattern, limit in _COUNTS if pattern.search(str(key))), None)
        if most is not None and isinstance(value, int) and value > most:
            raise InputError(f"{where}: {key}: {value} is more than the {most} allowed")
