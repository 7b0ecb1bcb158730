"""What a measuring page sends back, checked: its answer is not under our control.

Shapes: N texts, D sentence width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from msdc.bench.result import MAX_SAMPLES, Sample, Timing
from msdc.errors import InputError, MsdcError
from msdc.export.golden import decode_vectors
from msdc.export.mobile.web.npm import VERSION

LONGEST_GAP_MS = 5000.0
LARGEST = 1e15  # squares of larger numbers do not add up in float32


class Part(BaseModel):
    """Base of an answer's parts: unknown keys and numbers that are not finite are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _Timed(Part):
    length: int | None = None
    samples: list[Sample] = Field(min_length=1, max_length=MAX_SAMPLES)
    warmup: int = Field(ge=0, le=2**31)
    settled: bool
    cold: list[Sample] = Field(min_length=1, max_length=1000)
    calls_per_sample: int = Field(ge=1, le=2**31)

    def timing(self) -> Timing:
        return Timing(samples=tuple(self.samples), warmup=self.warmup, length=self.length)


class _Golden(Part):
    ids: list[list[int]]
    vectors: str


class _Page(Part):
    agent: str = Field(max_length=1000)
    hidden: bool
    timer_gap_ms: Sample
    secure: bool
    isolated: bool
    cores: int | None = Field(ge=1, le=2**20)
    device_memory_gib: float | None = Field(ge=0, le=2**20)


class PageAnswer(Part):
    """What the page sends; every field is checked."""

    load_ms: Sample
    first_ms: Sample
    loaded_heap_bytes: int = Field(ge=0, le=2**40)
    heap_bytes: int = Field(ge=0, le=2**40)
    latency: list[_Timed]
    tokenize: _Timed
    pipeline: _Timed
    clock_step_ms: Sample
    worker: bool
    threads: int = Field(ge=1, le=4096)
    runtime: str | None = Field(max_length=100)
    golden: _Golden
    vectors: str
    page: _Page

    def notes(self, threads: int) -> list[str]:
        """What a reader of the figures must know; `threads` were asked for."""
        notes = []
        unsettled = [f"{timed.length} tokens" for timed in self.latency if not timed.settled]
        if unsettled:
            notes.append(f"calls did not settle before they were timed: {', '.join(unsettled)}")
        if self.page.timer_gap_ms > LONGEST_GAP_MS:
            notes.append(f"the page's timer was held back for {self.page.timer_gap_ms / 1000:.0f} s: a busy machine")
        if self.threads != threads:
            notes.append(f"{threads} threads were asked for, the runtime has {self.threads}")
        if self.runtime not in (None, VERSION):
            notes.append(f"the runtime is onnxruntime-web {self.runtime}, not the pinned {VERSION}")
        return notes


Answer = TypeVar("Answer", bound=PageAnswer)


def read_answer(raw: dict[str, Any], lengths: Sequence[int], runs: int, schema: type[Answer]) -> Answer:
    """The checked answer of a page.

    Raises:
        MsdcError: it does not fit the schema or the request, or the page was hidden while it measured.
    """
    try:
        answer = schema.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        raise MsdcError(f"the page's answer: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    if [timed.length for timed in answer.latency] != list(lengths):
        raise MsdcError("the page's answer: other lengths than those asked for")
    if any(len(timed.samples) != runs for timed in (*answer.latency, answer.tokenize, answer.pipeline)):
        raise MsdcError("the page's answer: another number of samples than asked for")
    if answer.page.hidden:
        raise MsdcError("the page was hidden while it measured, and browsers slow hidden pages down; run it again")
    return answer


def page_vectors(text: str, count: int, width: int) -> np.ndarray:
    """float32 [N, D] of the page's base64.

    Raises:
        MsdcError: not that many finite numbers, or one that no vector holds.
    """
    if not count and not text:
        return np.zeros((0, width), dtype=np.float32)
    try:
        vectors_ND = decode_vectors(text, count, width)
    except InputError as error:
        raise MsdcError(f"the page's answer: {str(error).replace('golden ', '')}") from error
    if count and float(np.abs(vectors_ND).max()) > LARGEST:
        raise MsdcError("the page's answer: vectors with numbers that are too large")
    return vectors_ND
