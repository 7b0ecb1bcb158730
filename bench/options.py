"""The options of `msdc bench`, as its function, its command line and every device read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from msdc.export.runtimes import RuntimeChoice, expand
from msdc.export.schema import RuntimeName
from msdc.options import AnyPath, Names, Options

# A length counts the two special ids, so it is at least 2.
Lengths = Annotated[Sequence[Annotated[int, Field(ge=2)]], AfterValidator(lambda n: tuple(sorted(set(n))))]


# The value of `affinity` that lets the device choose.
BIG = "big"


class BenchSettings(Options):
    """What to measure; the same for every device, so that their numbers can be compared."""

    runtime: RuntimeChoice = Field(default=None, description="one of the runtimes, or both; None: all the bundle holds")
    lengths: Annotated[Lengths | None, Field(min_length=1)] = Field(
        default=None, description="tokens, special ids included; None: 8,32,128, limited by the artifact"
    )
    runs: int = Field(default=100, ge=1, le=100_000, description="timed runs per length")
    warmup: int = Field(default=10, ge=0, le=10_000, description="untimed runs before the timed ones, per length")
    threads: int = Field(default=1, ge=1, le=256, description="threads of the runtime")
    tasks: Names = Field(
        default=None,
        description="comma-separated names of `msdc evaluate`, or a list of them; none for no accuracy; None: "
        "graded-pairs (112 home-made pairs), with `data` sts17 and stsb; none on emulators",
    )
    data: AnyPath | None = Field(default=None, description="data folder of the named tasks")
    prompt_name: str | None = Field(default=None, description="prompt before the tasks' texts, by name")
    prompt: str | None = Field(default=None, description="the same, as text")
    truncate_dim: int | None = Field(
        default=None, ge=1, description="dimensions of the tasks' vectors; None: the bundle's own"
    )
    from_text: bool = Field(default=True, description="also time tokenization and the whole path from text to vector")
    affinity: Sequence[int] | Literal["big"] = Field(
        default=(), description="CPU numbers to run on, or big: the cores of the highest top frequency; empty: any"
    )
    cooldown_s: float = Field(default=0.0, ge=0, le=1e6, description="seconds to pause before each length")
    cool_below: float | None = Field(
        default=None, ge=20, le=60, description="wait until battery and skin of a phone (adb) are below so many °C"
    )
    sustain_s: float = Field(
        default=0.0, ge=0, le=3600,
        description="seconds to also run the middle length without a pause: median per second, heat and battery",
    )  # fmt: skip
    timeout_s: float = Field(default=900.0, gt=0, le=1e6, description="seconds per artifact")
    runner: AnyPath | None = Field(default=None, description="a native runner that you built")
    address: str | None = Field(
        default=None,
        description="where a link's server listens (127.0.0.1 with adb reverse); None: the default route's address",
    )
    progress: bool = Field(default=False, description="show progress")
    # Of sustained load alone: end the timed runs of a length then; 0: after `runs`.
    stop_after_s: float = Field(default=0.0, ge=0, le=3600)

    @property
    def runtimes(self) -> tuple[RuntimeName, ...]:
        """The named runtimes; empty: all that the bundle holds."""
        return expand(self.runtime) if self.runtime else ()

    @property
    def cpus(self) -> tuple[int, ...]:
        """The CPU numbers of `affinity`, each once; empty for any, and for `big` until a device has chosen them."""
        return () if isinstance(self.affinity, str) else tuple(sorted(set(self.affinity)))


class BenchOptions(BenchSettings):
    """Where to measure, what to compare with, what to write."""

    device: str = Field(
        default="host",
        description="comma-separated list of host, python, adb[:SERIAL], emulator[:CPU], browser[:NAME], link[:NAME]; "
        "or all",
    )
    compare: AnyPath | None = Field(
        default=None,
        description="earlier result to compare with, or a folder of at least five: a time counts outside their spread",
    )
    gate: float | None = Field(
        default=None, ge=0, le=1e6,
        description="percent that a time may be above that of `compare`, beyond noise. What the same program, a noisy "
        "or a busier machine leaves undecided is measured again; what one result lacks is inconclusive",
    )  # fmt: skip
    output: AnyPath | None = Field(default=None, description="report to write: .html, .md, .json or .csv")
    json_file: AnyPath | None = Field(default=None, description="result file to write")
    force: bool = Field(default=False, description="replace existing files")
