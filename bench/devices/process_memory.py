"""Memory of this process: as Linux reports it, page by page, or as psutil knows it elsewhere."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil

from msdc.bench.result import MemoryPhase
from msdc.errors import MsdcError
from msdc.machine import peak_mib

PROC = Path("/proc/self")
PORTABLE_NOTE = (
    "memory by psutil, not by Linux's smaps: anonymous stands for pages that only this process holds, file-backed for"
    " the other resident ones; no PSS"
)


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
        texts = [(proc / name).read_text(encoding="utf-8", errors="replace") for name in ("status", "smaps_rollup")]
    except OSError:
        return portable_memory()
    return memory_of(*texts)


def portable_memory() -> MemoryPhase:
    """Memory of this process on systems without /proc; see `PORTABLE_NOTE`.

    Raises:
        MsdcError: the system does not tell.
    """
    try:
        full = psutil.Process().memory_full_info()
    except (psutil.Error, OSError) as error:
        raise MsdcError(f"memory cannot be measured: {error}") from error

    def mib(count: float) -> float:
        return round(count / 2**20, 3)

    # Compressed or swapped pages can make the private part larger than what is resident.
    return MemoryPhase(
        vmhwm_mib=round(peak_mib(), 3), pss_mib=None, anon_mib=mib(full.uss), file_mib=mib(max(0, full.rss - full.uss))
    )


def reset_peak(proc: Path = PROC) -> bool:
    """Reset VmHWM to what is resident now, so that importing modules does not count; False where it cannot be reset."""
    with contextlib.suppress(OSError):
        (proc / "clear_refs").write_text("5", encoding="ascii")
        return True
    return False
