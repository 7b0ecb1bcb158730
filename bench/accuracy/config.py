"""Settings of one evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from msdc.bench.accuracy.contamination.check import NEAR
from msdc.bench.accuracy.task import Options


@dataclass(frozen=True)
class EvaluateConfig:
    """What one `msdc evaluate` does; the fields are its options.

    `truncate_dims`: also score vectors truncated to their first N dimensions. `artifacts`: bundles of `model`, scored
    on every runtime they hold. `near`: Jaccard similarity of near duplicates; None searches for exact ones only.
    `prompt_name` and `prompt` apply to `model` and its artifacts.
    `vectors`: folders of vectors of other encoders, scored beside the model (see msdc.bench.accuracy.vector_files).
    `no_corpora` is the reason to report when `corpora` is empty.
    """

    model: str
    tasks: tuple[str, ...]
    against: str | None = None
    artifacts: tuple[str, ...] = ()
    truncate_dims: tuple[int, ...] = ()
    vectors: tuple[Path, ...] = ()
    reference: str | None = None
    runtime: str | None = None
    prompt_name: str | None = None
    prompt: str | None = None
    data: Path | None = None
    languages: tuple[str, ...] | None = None
    corpora: tuple[str | Path, ...] = ()
    no_corpora: str = "no --corpus given"
    near: float | None = NEAR
    cache: Path | None = None
    options: Options = field(default_factory=Options)
