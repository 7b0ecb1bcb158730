"""Memory of this process as the kernel reports it."""

from __future__ import annotations

import contextlib
from pathlib import Path

from msdc.bench.result import MemoryPhase
from msdc.errors import MsdcError

PROC = Path("/proc/self")


def parse_kib(text: str) -> dict[str, int]:
    """Fields of /proc/PID/status or smaps_rollup in kB, as KiB."""
    fields = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        parts = rest.split()
        if len(parts) == 2 and parts[1] == "kB" and parts[0].isdigit():
            fields[name] = int(parts[0])
    return fields


def memory_of(status: str, rollup: str) -> MemoryPhase:
    """One phase from the texts of /proc/PID/status and /proc/PID/smaps_rollup.

    Raises:
        MsdcError: a field is missing (a system without /proc, or an old kernel).
    """
    peak, shared = parse_kib(status), parse_kib(rollup)
    if "VmHWM" not in peak or not {"Pss", "Rss", "Anonymous"} <= set(shared):
        raise MsdcError("memory cannot be measured: /proc/self/status or smaps_rollup lacks a field")

    def mib(kib: int) -> float:
        return round(kib / 1024, 3)

    return MemoryPhase(
        vmhwm_mib=mib(peak["VmHWM"]),
        pss_mib=mib(shared["Pss"]),
        anon_mib=mib(shared["Anonymous"]),
        file_mib=mib(shared["Rss"] - shared["Anonymous"]),
    )


def read_memory(proc: Path = PROC) -> MemoryPhase:
    """Memory of this process now."""
    try:
        return memory_of((proc / "status").read_text(), (proc / "smaps_rollup").read_text())
    except OSError as error:
        raise MsdcError(f"memory cannot be measured: {error}") from error


def reset_peak(proc: Path = PROC) -> bool:
    """Reset VmHWM to what is resident now, so that importing modules does not count; False where it cannot be reset."""
    with contextlib.suppress(OSError):
        (proc / "clear_refs").write_text("5")
        return True
    return False
