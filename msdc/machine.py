"""This machine: processor, instruction sets, memory, temperatures. Read from /proc and /sys, without torch."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

# Instruction sets that int8, bf16 and fp16 kernels use, in the kernel's spelling (x86 "flags", arm64 "Features").
NOTABLE_X86 = ("sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni",
               "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16")  # fmt: skip
NOTABLE_ARM = ("asimd", "asimdhp", "fphp", "asimddp", "i8mm", "bf16", "sve", "sve2", "sme", "svei8mm")
BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


def peak_mib() -> float:
    """Most memory that this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


@dataclass(frozen=True)
class Machine:
    """`isa` holds the notable instruction sets, oldest first; `memory_mib` is what this process may use."""

    cpu: str
    arch: str
    isa: tuple[str, ...]
    cores: int
    memory_mib: float
    os: str

    @property
    def bf16(self) -> bool:
        """Whether the processor multiplies bfloat16 in hardware; without it bf16 training is many times slower."""
        return bool(BF16_FLAGS & set(self.isa))


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def parse_cpuinfo(text: str) -> tuple[str, tuple[str, ...]]:
    """Model name and notable instruction sets of a /proc/cpuinfo."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, separator, value = line.partition(":")
        if separator:
            fields.setdefault(key.strip().lower(), value.strip())
    flags = set((fields.get("flags") or fields.get("features") or "").split())
    notable = NOTABLE_X86 if "flags" in fields else NOTABLE_ARM
    name = fields.get("model name") or fields.get("hardware") or fields.get("cpu model") or ""
    if not name and "cpu part" in fields:
        name = f"arm implementer {fields.get('cpu implementer', '?')} part {fields['cpu part']}"
    return " ".join(name.split()), tuple(flag for flag in notable if flag in flags)


def _memory_mib() -> float:
    """Total memory, or the container's limit where that is lower."""
    total = 0.0
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            total = int(line.split()[1]) / 1024
    for limit_file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        limit = _read(limit_file).strip()
        if limit.isdigit() and 0 < int(limit) / 2**20 < total:
            total = int(limit) / 2**20
    return round(total, 1)


def _os_name() -> str:
    fields = dict(line.split("=", 1) for line in _read("/etc/os-release").splitlines() if "=" in line)
    name = fields.get("PRETTY_NAME", platform.system()).strip('"')
    return f"{name}, kernel {platform.release()}"


def read_machine() -> Machine:
    """Describe this machine; `cores` counts those that the process may run on."""
    cpu, isa = parse_cpuinfo(_read("/proc/cpuinfo"))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Machine(cpu or platform.processor(), platform.machine(), isa, cores, _memory_mib(), _os_name())


@dataclass(frozen=True)
class Heat:
    """Load, temperatures, frequencies and battery at one moment; unknown values are None or empty."""

    load_1min: float | None = None
    thermal_c: dict[str, float] = field(default_factory=dict)
    cpu_mhz: tuple[float, ...] = ()
    battery_percent: float | None = None
    charging: bool | None = None


def read_heat(sys_root: str = "/sys") -> Heat:
    """Load average, thermal zones, current frequencies, battery."""
    root = Path(sys_root)
    zones: dict[str, float] = {}
    for zone in sorted(root.glob("class/thermal/thermal_zone*")):
        value = _read(zone / "temp").strip()
        if value.lstrip("-").isdigit():
            zones[_read(zone / "type").strip() or zone.name] = int(value) / 1000.0
    speed_files = sorted(root.glob("devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq"))
    speeds = [int(value) / 1000.0 for path in speed_files if (value := _read(path).strip()).isdigit()]
    percent: float | None = None
    charging: bool | None = None
    for supply in sorted(root.glob("class/power_supply/*")):
        if _read(supply / "type").strip() == "Battery" and _read(supply / "capacity").strip().isdigit():
            percent = float(_read(supply / "capacity"))
            charging = _read(supply / "status").strip() == "Charging"
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    return Heat(load, zones, tuple(speeds), percent, charging)


PACKAGES = (
    *("msdc", "torch", "torchao", "executorch", "transformers", "tokenizers", "sentencepiece"),
    *("onnx", "onnxruntime", "numpy"),
)


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Versions of Python and of those of `packages` that are installed."""
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def environment() -> dict[str, Any]:
    """`versions` and `machine`, as run folders and results record them."""
    return {"versions": versions(), "machine": asdict(read_machine())}
