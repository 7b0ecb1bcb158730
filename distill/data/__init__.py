"""Training text: corpora as rows, tables of rows, batches.

Shapes: B pairs, N negatives per pair, S sides (source, target, negatives), T tokens, D sentence width of the teacher,
L layers, H hidden of the teacher.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class Row(NamedTuple):
    """One training example; plain text has an empty target.

    Triples have `negatives` (premise, entailment, contradiction; or query, answer, other texts). Labelled pairs have a
    `label`: a class 0, 1, 2 (NLI), or a similarity 0 .. 1; triples may have scores of target and negatives. `domain` is
    the number of the corpus in the recipe.
    """

    source: str
    target: str
    language: str
    negatives: tuple[str, ...] = ()
    domain: int = 0
    label: float | tuple[float, ...] | None = None


@dataclass
class Batch:
    """The input of one step: the rows of this process.

    A side is (ids [B, T], mask [B, T]), negatives [B, N, T]; missing parts are None. Scores are labels [B, N + 1].

    `global_size` is the number of pairs in the batch of all processes, if the rows are a process's share of them;
    `seed` that of what a task draws for the pairs of all processes. `texts_BS` has an integer for every text,
    equal for equal ones; `read` reads the rows themselves.
    """

    read: Callable[[], list[Row]]
    source: tuple[Tensor, Tensor]
    target: tuple[Tensor, Tensor] | None
    negatives: tuple[Tensor, Tensor] | None = None
    teacher_source_BD: Tensor | None = None
    teacher_target_BD: Tensor | None = None
    teacher_states_BLH: Tensor | None = None
    teacher_negatives_BND: Tensor | None = None
    languages: list[str] = field(default_factory=list)
    domain_B: Tensor | None = None
    label_B: Tensor | None = None
    texts_BS: Tensor | None = None
    global_size: int | None = None
    seed: int = 0

    def __len__(self) -> int:
        return len(self.source[0])

    @property
    def size(self) -> int:
        """Pairs of the batch of all processes."""
        return len(self) if self.global_size is None else self.global_size
