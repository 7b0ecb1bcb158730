"""What a native runner is: a program with its libraries, built by `msdc.bench.toolchain.build` or by the user."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from msdc.errors import InputError
from msdc.export.runtimes import RuntimeName

RUNNER = "msdc-runner"
# Glibc's dynamic loader per machine: it starts a payload on a system that has another C library or none.
LOADERS = {"aarch64": "ld-linux-aarch64.so.1", "x86_64": "ld-linux-x86-64.so.2"}
# ELF e_machine
ELF_MACHINES = {0x3E: "x86_64", 0xB7: "aarch64", 0x28: "arm", 0x03: "i686", 0xF3: "riscv64"}


@dataclass(frozen=True)
class RunnerBuild:
    """A runner that is ready to be pushed.

    `loader` is the file in lib/ that starts the program; None where the system's own loader does. `machine` is as
    `uname -m` prints it, None for a script.
    """

    program: Path
    libraries: tuple[Path, ...]
    machine: str | None
    loader: str | None
    runtime: RuntimeName | None
    version: str

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that a device needs."""
        return (self.program, *self.libraries)


def elf_machine(path: Path) -> str | None:
    """Machine of an ELF file as `uname -m` prints it; None for a file that is not ELF (a script).

    Raises:
        InputError: an ELF file for a machine that is not in `ELF_MACHINES`.
    """
    with open(path, "rb") as handle:
        head = handle.read(20)
    if head[:4] != b"\x7fELF" or len(head) < 20:
        return None
    code = int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
    if code not in ELF_MACHINES:
        raise InputError(f"{path}: an ELF program for an unknown machine (code {code})")
    return ELF_MACHINES[code]


def own_runner(path: Path) -> RunnerBuild:
    """A runner built by the user (with an NDK, for example): a program, and the libraries of `lib/` beside it.

    Raises:
        InputError: there is no such file.
    """
    program = path / RUNNER if path.is_dir() else path
    if not program.is_file():
        raise InputError(f"{path}: no such runner; build one with --build-runner")
    libraries = tuple(sorted(p for p in (program.parent / "lib").glob("*") if p.is_file()))
    loader = next((p.name for p in libraries if p.name in LOADERS.values()), None)
    return RunnerBuild(program, libraries, elf_machine(program), loader, None, "")
