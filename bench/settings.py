"""Settings of a measurement, the same for every device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from msdc.encoders.folder import with_prompt
from msdc.export.bundle import defaults_of
from msdc.export.manifest import Manifest
from msdc.export.runtimes import RuntimeName

USUAL_LENGTHS = (8, 32, 128)


def usual_lengths(longest: int) -> tuple[int, ...]:
    """8, 32 and 128 tokens; lengths beyond the artifact's longest input are replaced by it."""
    return tuple(sorted({min(length, longest) for length in USUAL_LENGTHS}))


class BenchSettings(BaseModel):
    """What to measure; the same for every device, so that their numbers can be compared."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    runtimes: tuple[RuntimeName, ...] = Field(default=(), description="empty: every program the bundle holds")
    lengths: tuple[int, ...] = Field(default=USUAL_LENGTHS, min_length=1, description="tokens with special ids")
    runs: int = Field(default=100, ge=1, le=100_000, description="timed runs per length")
    warmup: int = Field(default=10, ge=0, le=10_000, description="untimed runs before them, per length")
    threads: int = Field(default=1, ge=1, le=256)
    tasks: tuple[str, ...] = Field(default=(), description="graded-pairs, sts17, sts=FILE; scored on device vectors")
    tasks_asked: bool = Field(default=True, description="false: the default, which slow devices skip")
    prompt_name: str | None = Field(default=None, description="prompt before the tasks' texts, by name")
    prompt: str | None = Field(default=None, description="the same, as text")
    truncate_dim: int | None = Field(default=None, ge=1, description="width of the tasks' vectors; None: the bundle's")
    data: Path | None = Field(default=None, description="folder of the named tasks' files")
    timeout_s: float = Field(default=900.0, gt=0, le=1e6, description="per artifact")
    cooldown_s: float = Field(default=0.0, ge=0, le=1e6, description="pause between artifacts and lengths, for phones")
    affinity: tuple[int, ...] = Field(default=(), description="CPU numbers to run on; empty: any")
    runner: Path | None = Field(default=None, description="a native runner built by the user, for native devices")
    address: str | None = Field(default=None, description="IP[:PORT] that a link's server listens at; None: found")
    tls: bool = Field(default=False, description="the link's server has a self-signed certificate")
    expect: int = Field(default=1, ge=1, le=100, description="phones that answer a link")
    progress: bool = False

    def prompt_text(self, manifest: Manifest) -> str:
        """The prompt before the tasks' texts.

        Raises:
            InputError: the bundle has no such prompt.
        """
        return defaults_of(manifest).prompt(self.prompt, self.prompt_name)

    def device_texts(self, manifest: Manifest, texts: Sequence[str]) -> list[str]:
        """The tasks' texts as the device receives them: the prompt before each.

        Raises:
            InputError: the bundle has no such prompt.
        """
        return with_prompt(self.prompt_text(manifest), texts)

    def vector_width(self, manifest: Manifest) -> int:
        """Numbers of a vector that the tasks score.

        Raises:
            InputError: the bundle's vectors have fewer than asked for.
        """
        return defaults_of(manifest).width(manifest.width, self.truncate_dim)

    @field_validator("lengths")
    @classmethod
    def _lengths(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(length < 2 for length in value):
            raise ValueError("a length counts the two special ids, so it is at least 2")
        return tuple(sorted(set(value)))
