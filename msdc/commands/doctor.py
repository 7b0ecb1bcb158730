"""`msdc doctor`: check that this machine has what msdc needs, and say how to get what is missing."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click

from msdc.commands.offline import quickstart_needs
from msdc.extras import PACKAGES, extra_of, installed
from msdc.machine import read_machine

State = Literal["ok", "missing", "wrong", "info"]
# Versions are read from the metadata of the installed package, not repeated here.
BASE_PACKAGES = ("onnxruntime", "onnx", "sentencepiece", "tokenizers", "huggingface-hub")


@dataclass(frozen=True)
class Check:
    """One line of the answer. `needed`: msdc does not work without it; the others add devices or speed."""

    group: str
    name: str
    state: State
    found: str
    needed: bool = False
    remedy: str = ""


def requirements() -> dict[str, str]:
    """Version rules of the installed metadata: name -> specifier (`==2.13.0`), of the base install and of extras."""
    rules: dict[str, str] = {}
    for line in importlib.metadata.requires("msdc") or []:
        match = re.match(r"^([A-Za-z0-9._-]+)\s*(.*)$", line.split(";")[0].strip())
        if match:
            name = re.sub(r"[-_.]+", "-", match.group(1)).lower()
            rules.setdefault(name, match.group(2).strip("() "))
    return rules


def check_package(name: str, rule: str, extra: str | None = None) -> Check:
    """Whether the installed version satisfies the rule of the metadata; a package of an extra may be absent."""
    from packaging.specifiers import SpecifierSet

    remedy = f'pip install "{name}{rule}"'
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if extra is not None:
            return Check("extras", name, "missing", "not installed", False, f"pip install 'msdc[{extra}]'")
        return Check("packages", name, "missing", "not installed", True, remedy)
    group = "packages" if extra is None else "extras"
    # A local part ("+cpu") names the build of the wheel, not its version.
    if SpecifierSet(rule).contains(version.split("+")[0], prereleases=True):
        return Check(group, name, "ok", f"{version} ({rule or 'any'})", True)
    return Check(group, name, "wrong", f"{version}, tested with {rule}", True, remedy)


def check_kernels() -> list[Check]:
    """Kernels inside the ExecuTorch and ONNX Runtime wheels."""
    checks = _onnx_kernels()
    return [*_executorch_kernels(), *checks] if installed("executorch") else checks


def _executorch_kernels() -> list[Check]:
    # torchao warns about GPU extensions that it was not built with.
    logging.disable(logging.WARNING)
    checks = []
    again = "pip install --force-reinstall executorch==1.5.1"
    try:
        # torch has to be loaded before the ExecuTorch extension, which needs its libraries.
        importlib.import_module("torch")
        from executorch.runtime import Runtime

        importlib.import_module("executorch.kernels.quantized")
        runtime = Runtime.get()
        operators = runtime.operator_registry.operator_names
        quantized = [name for name in operators if name.startswith("quantized_decomposed::")]
        backends = list(runtime.backend_registry.registered_backend_names)
        enough = any("embedding_byte" in name for name in quantized)
        checks.append(Check("kernels", "ExecuTorch quantized operators", "ok" if enough else "missing",
                            f"{len(quantized)} registered", True, "" if enough else again))  # fmt: skip
        xnnpack = "XnnpackBackend" in backends
        checks.append(Check("kernels", "XNNPACK delegate", "ok" if xnnpack else "missing",
                            ", ".join(backends) or "none", True, "" if xnnpack else again))  # fmt: skip
    except Exception as error:
        found = f"{type(error).__name__}: {str(error)[:100]}"
        checks.append(Check("kernels", "ExecuTorch runtime", "missing", found, True, again))
    logging.disable(logging.NOTSET)
    return checks


def _onnx_kernels() -> list[Check]:
    try:
        import onnxruntime

        providers = onnxruntime.get_available_providers()
        return [Check("kernels", "ONNX Runtime providers", "ok", ", ".join(providers), True)]
    except Exception as error:
        return [Check("kernels", "ONNX Runtime", "missing", str(error)[:100], True, "pip install onnxruntime")]


def bf16_ratio(size: int = 256, seconds: float = 0.2) -> float | None:
    """Time of a bfloat16 matrix product relative to float32, one thread; None without torch."""
    try:
        import torch
    except ImportError:
        return None
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        best = []
        for dtype in (torch.float32, torch.bfloat16):
            a = torch.randn(size, size).to(dtype)
            fastest, end = float("inf"), time.perf_counter() + seconds
            while time.perf_counter() < end or fastest == float("inf"):
                start = time.perf_counter()
                torch.mm(a, a)
                fastest = min(fastest, time.perf_counter() - start)
            best.append(fastest)
        return best[1] / best[0]
    finally:
        torch.set_num_threads(threads)


def check_machine() -> list[Check]:
    """Processor, instruction sets, memory, disk, bf16 speed."""
    machine = read_machine()
    processor = f"{machine.cpu or 'unknown'} ({machine.arch}), {machine.cores} cores usable"
    checks = [
        Check("machine", "processor", "info", processor),
        Check("machine", "instruction sets", "info", " ".join(machine.isa) or "none of note"),
        Check("machine", "memory", "info", f"{machine.memory_mib / 1024:.1f} GiB"),
        Check("machine", "free disk here", "info", f"{shutil.disk_usage('.').free / 2**30:.1f} GiB"),
        Check("machine", "system", "info", machine.os),
    ]
    ratio = bf16_ratio()
    if ratio is not None:
        word = "fast" if ratio < 1 else "slow: train in float32 here"
        found = f"{word} ({ratio:.2g} times the time of float32, 256 x 256 product)"
        checks.append(Check("machine", "bfloat16", "info", found))
    try:
        import torch

        gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none"
        checks.append(Check("machine", "GPU", "info", gpu))
    except ImportError:
        pass
    return checks


def _version_line(program: str, argument: str = "--version") -> str:
    try:
        done = subprocess.run([program, argument], capture_output=True, text=True, timeout=20, check=False, cwd="/")
    except (OSError, subprocess.TimeoutExpired):
        return "found, but it does not answer"
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0][:80] if lines else "found"


# name, programs (any of them), purpose, how to install it on Debian
TOOLS = (
    ("adb", ("adb",), "bench on phones", "apt-get install adb"),
    ("qemu (arm64 system)", ("qemu-system-aarch64",), "bench on an emulated phone", "apt-get install qemu-system-arm"),
    ("mmdebstrap", ("mmdebstrap",), "make the emulated phone", "apt-get install mmdebstrap"),
    ("C++ compiler", ("g++", "clang++"), "native runner for this machine", "apt-get install g++"),
    ("arm64 cross compiler", ("aarch64-linux-gnu-g++",), "phone runner", "apt-get install g++-aarch64-linux-gnu"),
    ("Chromium", ("chromium", "chromium-browser", "google-chrome"), "bench in a browser", "apt-get install chromium"),
)


def check_tools() -> list[Check]:
    """System programs. The quickstart needs none of them."""
    checks = []
    for name, programs, purpose, remedy in TOOLS:
        path = next((found for program in programs if (found := shutil.which(program)) and os.path.isabs(found)), None)
        if path is None:
            checks.append(Check("devices", name, "missing", f"not found; for: {purpose}", False, remedy))
        else:
            checks.append(Check("devices", name, "ok", _version_line(path)))
    return checks


def check_quickstart() -> list[Check]:
    """What `msdc quickstart` needs where there is no network. Without it msdc works; see `quickstart_needs`."""
    needs = quickstart_needs(read_machine(), Path.cwd())
    group = "quickstart without a network"
    checks = [Check(group, need.name, "ok" if need.met else "missing", need.found, False, need.mend) for need in needs]
    works = all(need.met for need in needs)
    return [*checks, Check(group, "it will work", "ok" if works else "missing", "yes" if works else "no: see above")]


def examine() -> list[Check]:
    """Every check, in the order of printing."""
    rules = requirements()
    python = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    fits = (3, 11) <= sys.version_info[:2] < (3, 14)
    remedy = "" if fits else "use Python 3.11 to 3.13"
    checks = [Check("packages", "Python", "ok" if fits else "wrong", f"{python} (>=3.11,<3.14)", True, remedy)]
    checks += [check_package(name, rules.get(name, "")) for name in BASE_PACKAGES]
    checks += [check_package(name, rules.get(name, ""), extra_of(module)) for module, (_, name) in PACKAGES.items()]
    return [*checks, *check_kernels(), *check_machine(), *check_quickstart(), *check_tools()]


def healthy(checks: list[Check]) -> bool:
    """Whether nothing that msdc needs is missing or wrong."""
    return not any(check.needed and check.state in ("missing", "wrong") for check in checks)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> int:
    """Check versions, kernels, processor and devices; say how to get what is missing.

    Exit code 1 if something that msdc needs is missing. A missing device only limits what can be measured.
    """
    checks = examine()
    good = healthy(checks)
    if as_json:
        answer = {"healthy": good, "checks": [asdict(check) for check in checks]}
        click.echo(json.dumps(answer, ensure_ascii=False, indent=2))
        return 0 if good else 1
    marks = {"ok": "ok", "missing": "--", "wrong": "!!", "info": "  "}
    width = max(len(check.name) for check in checks)
    group = ""
    for check in checks:
        if check.group != group:
            group = check.group
            click.echo(f"\n{group}")
        click.echo(f"  {marks[check.state]} {check.name:<{width}}  {check.found}")
        if check.remedy:
            click.echo(f"     {'':<{width}}  get it: {check.remedy}")
    bad = "something that msdc needs is missing or wrong: see !! and -- above"
    click.echo("\n" + ("everything that msdc needs is installed" if good else bad))
    return 0 if good else 1
