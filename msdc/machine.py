"""This machine: processor, instruction sets, memory, temperatures, without torch.

Linux has details in /proc and /sys; elsewhere psutil is used, and unknown values are empty or None.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import math
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from msdc.errors import InputError

# Instruction sets that int8, bf16 and fp16 kernels use, in the kernel's spelling (x86 "flags", arm64 "Features").
NOTABLE_X86 = ("sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni",
               "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16")  # fmt: skip
NOTABLE_ARM = ("asimd", "asimdhp", "fphp", "asimddp", "i8mm", "bf16", "sve", "sve2", "sme", "svei8mm")
BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
# Features of Apple's processors: name in `sysctl` -> the kernel's spelling.
APPLE_FEATURES = {
    "AdvSIMD": "asimd", "FEAT_FP16": "asimdhp", "FEAT_DotProd": "asimddp", "FEAT_I8MM": "i8mm", "FEAT_BF16": "bf16",
    "FEAT_SME": "sme",
}  # fmt: skip
# What version 1 of control groups states without a limit is the largest number of pages, near 2^63.
NO_LIMIT = 2**60
# Spaces in paths of mountinfo.
_OCTAL = re.compile(r"\\([0-7]{3})")


def peak_mib() -> float:
    """Peak memory of this process; its current memory on a system that records no peak."""
    for line in _read("/proc/self/status").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 2**10
    try:
        import resource
    except ImportError:
        import psutil

        memory = psutil.Process().memory_info()
        return float(getattr(memory, "peak_wset", memory.rss)) / 2**20  # the former on Windows
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def usable_cores() -> frozenset[int]:
    """Indices of the processors that this process may run on; all of them if the system cannot restrict it.

    Of how many it gets the time is `core_count`.
    """
    if hasattr(os, "sched_getaffinity"):  # without psutil, whose import takes a twentieth of a first vector
        return frozenset(os.sched_getaffinity(0))
    import psutil

    try:
        return frozenset(psutil.Process().cpu_affinity())
    except (AttributeError, psutil.Error):
        return frozenset(range(os.cpu_count() or 1))


def core_count() -> int:
    """Processors whose time this process gets: those it may run on, at most as many as its control groups grant."""
    quota = read_limits().cores
    return min(len(usable_cores()), sys.maxsize if quota is None else max(1, math.ceil(quota)))


def thread_count() -> int:
    """Threads of an encoder's work: one per processor, at most OMP_NUM_THREADS."""
    return min(core_count(), _stated_threads() or sys.maxsize)


def quota_threads() -> int | None:
    """The number of threads that a library starts instead of its own default: OMP_NUM_THREADS, or what control groups
    grant; None where neither is less than the processors that it would count.

    Libraries read no quota, and threads beyond it only stop each other.
    """
    threads = thread_count()
    return threads if threads < len(usable_cores()) else None


def _stated_threads() -> int | None:
    """OMP_NUM_THREADS, by which schedulers and workers bound every library; of a list for nested regions the first."""
    outermost = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(outermost) if outermost.isascii() and outermost.isdecimal() and int(outermost) > 0 else None


def memory_mib() -> float:
    """MiB that this process may use: the machine's, or less where its control groups grant less."""
    import psutil

    total, limit = int(psutil.virtual_memory().total), read_limits().memory_bytes
    return round((total if limit is None else min(total, limit)) / 2**20, 1)


@dataclass(frozen=True)
class Limits:
    """What the control groups of a process grant, of Docker, Kubernetes, systemd or Slurm; None: no limit."""

    cores: float | None = None
    memory_bytes: int | None = None


def read_limits(root: str | Path = "/") -> Limits:
    """The limits of this process's control groups, of version 1, 2 or both: of its own group and of all around it, up
    to the root that it sees, the smallest holds. `root` is the folder that holds `proc` and `sys`.
    """
    root = Path(root)
    paths: dict[str, str] = {}
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        paths |= dict.fromkeys(names.split(","), path)  # of version 2 the name is empty
    cores, memory = [], []
    for line in _read(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, *options) = before.split(), [*after.split(), "", ""]
        if len(fields) < 5 or kind not in ("cgroup", "cgroup2"):
            continue
        top, mount = (_OCTAL.sub(lambda match: chr(int(match[1], 8)), field) for field in fields[3:5])
        held = [""] if kind == "cgroup2" else [name for name in ",".join(options).split(",") if name in paths]
        for path in {paths[name] for name in held if name in paths}:
            for group in _groups(root / mount.lstrip("/"), top, path):
                cores += [_quota(group)]
                memory += [_number(group / name) for name in ("memory.max", "memory.limit_in_bytes")]
    return Limits(min(filter(None, cores), default=None), min(filter(None, memory), default=None))


def _groups(mount: Path, top: str, path: str) -> Iterator[Path]:
    """Folders of the group at `path` and of those around it, where the group `top` is mounted at `mount`."""
    below = PurePosixPath(path)
    # A container may see its own group as the root, or the host's path of it.
    inside = below.is_relative_to(top) and ".." not in below.parts
    for part in [below.relative_to(top), *below.relative_to(top).parents] if inside else [PurePosixPath(".")]:
        yield mount / part


def _number(path: Path) -> int | None:
    """The bytes in a limit's file; None for "max", for version 1's number beyond any memory, and for no such file."""
    text = _read(path).strip()
    return int(text) if text.isdecimal() and text.isascii() and int(text) < NO_LIMIT else None


def _quota(group: Path) -> float | None:
    """Processors whose time a group gets: quota by period, in microseconds."""
    fields = _read(group / "cpu.max").split() or [
        *_read(group / "cpu.cfs_quota_us").split(), *_read(group / "cpu.cfs_period_us").split()
    ]  # fmt: skip
    if len(fields) != 2 or not all(field.isdecimal() and field.isascii() for field in fields) or not int(fields[1]):
        return None
    return int(fields[0]) / int(fields[1])


def pin(cores: Sequence[int]) -> None:
    """Restrict this process, and the threads that it starts, to these processors."""
    import psutil

    try:
        psutil.Process().cpu_affinity(list(cores))
    except (AttributeError, ValueError, OSError, psutil.Error) as error:
        raise InputError(f"processors {','.join(map(str, cores))}: this system cannot pin a process to them") from error


@dataclass(frozen=True)
class Machine:
    """`isa` are the notable instruction sets, oldest first; `cores` and `memory_mib` are what this process may use."""

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
    name = fields.get("model name") or fields.get("hardware") or ""
    if not name and "cpu part" in fields:
        name = f"arm implementer {fields.get('cpu implementer', '?')} part {fields['cpu part']}"
    return " ".join(name.split()), tuple(flag for flag in notable if flag in flags)


def parse_sysctl(text: str) -> tuple[str, tuple[str, ...]]:
    """Model name and notable instruction sets of macOS's `sysctl machdep.cpu hw.optional`, on Apple's processors."""
    fields = {key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    on = {APPLE_FEATURES.get(key.rsplit(".", 1)[-1]) for key, value in fields.items() if value == "1"}
    return fields.get("machdep.cpu.brand_string", ""), tuple(flag for flag in NOTABLE_ARM if flag in on)


def _processor() -> tuple[str, tuple[str, ...]]:
    if sys.platform == "darwin":
        command = ["/usr/sbin/sysctl", "machdep.cpu", "hw.optional"]
        try:
            done = subprocess.run(command, capture_output=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return "", ()
        return parse_sysctl(done.stdout.decode("utf-8", "replace"))
    return parse_cpuinfo(_read("/proc/cpuinfo"))


def _os_name() -> str:
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]}"
    if sys.platform == "win32":
        return f"Windows {platform.release()} ({platform.version()})"
    fields = dict(line.split("=", 1) for line in _read("/etc/os-release").splitlines() if "=" in line)
    name = fields.get("PRETTY_NAME", platform.system()).strip('"')
    return f"{name}, kernel {platform.release()}"


def read_machine() -> Machine:
    """Describe this machine, as far as this process may use it."""
    cpu, isa = _processor()
    name = cpu or platform.processor()
    return Machine(name, platform.machine(), isa, core_count(), memory_mib(), _os_name())


def read_heat() -> dict[str, Any]:
    """Load average, temperatures, frequencies and battery, as psutil reads them; unknown ones are None or empty."""
    import psutil

    def read(name: str, **options: bool) -> Any:
        with contextlib.suppress(
            AttributeError, NotImplementedError, OSError, ValueError
        ):  # a system or sensor without
            return getattr(psutil, name)(**options)
        return None

    battery, chips = read("sensors_battery"), read("sensors_temperatures") or {}
    return {
        "load_1min": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,  # psutil's starts at 0
        "thermal_c": {
            f"{chip} {sensor.label or n}": sensor.current for chip in chips for n, sensor in enumerate(chips[chip], 1)
        },
        "cpu_mhz": tuple(core.current for core in read("cpu_freq", percpu=True) or ()),
        "battery_percent": battery and float(battery.percent),
        "charging": battery and battery.power_plugged,
    }


PACKAGES = ("msdc", "torch", "torchao", "executorch", "transformers", "tokenizers", "sentencepiece", "onnx",
            "onnxruntime", "numpy")  # fmt: skip


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Versions of Python and of those of `packages` that are installed."""
    by_name = {"python": platform.python_version()}
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            by_name[name] = importlib.metadata.version(name)
    return by_name


def environment() -> dict[str, Any]:
    """`versions` and `machine`, as run folders and results record them."""
    return {"versions": versions(), "machine": asdict(read_machine())}
