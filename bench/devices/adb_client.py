"""One device through the adb program: shell, push and pull, each of which succeeds or raises.

Additions to adb: `adb shell` exits with code 0 when the device dies, so every script ends with a sentinel line that
must arrive; `adb push` renames the file when the target folder is missing, so folders are created first; several
devices may be attached, so the serial is always given.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from msdc.bench.system_programs import last_words, require, run_tool
from msdc.errors import InputError, MsdcError
from msdc.processes import Finished, run_program

DEFAULT_SERVER_PORT = 5037
# A serial of this form comes from `adb connect` and is forgotten when the server restarts.
NETWORK_SERIAL = re.compile(r"^[\w.\-]+:\d+$")
GONE = ("device offline", "not found", "no devices", "closed", "connection reset", "protocol fault", "device still",
        "cannot connect to daemon", "connect failed", "no response", "failed to get feature set", "EOF")  # fmt: skip


class DeviceGone(MsdcError):
    """The device or the adb server stopped answering."""


def server_port() -> int:
    """Port of the adb server: ANDROID_ADB_SERVER_PORT, or adb's default."""
    raw = os.environ.get("ANDROID_ADB_SERVER_PORT", "")
    return int(raw) if raw.isdigit() else DEFAULT_SERVER_PORT


def attached(program: str) -> dict[str, str]:
    """Serial -> state of every attached device.

    Raises:
        MsdcError: the adb server does not start.
    """
    listing = run_tool([program, "devices"], "adb devices", timeout_s=30)
    found = {}
    for line in listing.splitlines():
        serial, separator, state = line.strip().partition("\t")
        if separator:
            found[serial] = state.strip()
    return found


HINTS = {
    "unauthorized": "unlock the phone and allow USB debugging",
    "offline": "unplug it and plug it in again",
    "no permissions": "add udev rules for it (package android-sdk-platform-tools-common)",
    "recovery": "start its system",
    "sideload": "start its system",
    "bootloader": "start its system",
}


def choose_serial(program: str, asked: str | None) -> str:
    """The serial to use: exactly the requested one, or the only one attached.

    Raises:
        InputError: none, several, or no exact match; lists the attached ones.
        MsdcError: it is attached but not ready.
    """
    found = attached(program)
    if asked is None:
        ready = [serial for serial, state in found.items() if state == "device"]
        if len(ready) > 1:
            names = " or ".join(f"adb:{serial}" for serial in ready)
            raise InputError(f"{len(ready)} devices attached: name one, --device {names}")
        if not found:
            raise InputError("no device attached: plug one in with USB debugging on, or adb connect HOST:PORT")
        asked = (ready or list(found))[0]
    if asked not in found:
        near = [serial for serial in found if serial.startswith(asked)]
        # A prefix is refused, even a unique one: another phone of a rack would be measured by mistake.
        hint = f"; attached: {', '.join(near or found)}" if found else "; nothing is attached"
        raise InputError(f"no device with serial {asked}{hint}")
    state = found[asked]
    if state != "device":
        hint = next((text for key, text in HINTS.items() if state.startswith(key)), "check the connection")
        raise MsdcError(f"device {asked} is {state.split(';')[0]}: {hint}")
    return asked


class Adb:
    """The device with one serial. `program` is the path of adb; the server is that of the environment."""

    def __init__(self, serial: str, program: str | None = None) -> None:
        self.serial = serial
        self.program = program or require("adb")[0]

    def _command(self, *arguments: str) -> list[str]:
        return [self.program, "-s", self.serial, *arguments]

    def _run(self, *arguments: str, timeout_s: float, grows: tuple[Path, int] | None = None) -> Finished:
        done = run_program(self._command(*arguments), timeout_s=timeout_s, grows=grows)
        if done is None:
            raise DeviceGone(f"device {self.serial}: no answer to adb {arguments[0]} in {timeout_s:g} s")
        return done

    def shell(self, script: str, *, timeout_s: float = 180.0) -> Finished:
        """Run a POSIX shell script on the device.

        Raises:
            DeviceGone: the end of the script did not arrive, whatever the exit code of adb.
        """
        done = self.run_long(script, timeout_s=timeout_s)
        if done is None:
            raise DeviceGone(f"device {self.serial}: no answer to adb shell in {timeout_s:g} s")
        return done

    def run_long(self, script: str, *, timeout_s: float) -> Finished | None:
        """Like `shell` for a long script; None after `timeout_s`, when it may still run on the device."""
        mark = f"msdc-end-{secrets.token_hex(6)}"
        # The mark is on a line of its own, whatever the script's output ends with; printf is one write.
        marked = f"( {script}\n); printf '\\n%s %s\\n' {mark} $?"
        done = run_program(self._command("shell", marked), timeout_s=timeout_s)
        if done is None:
            return None
        match = re.search(rf"\r?\n{mark} (\d{{1,3}})\s*\Z", done.output)
        if match is None:
            word = last_words(done.errors) or last_words(done.output)
            raise DeviceGone(f"device {self.serial} went away while a command ran" + (f" ({word})" if word else ""))
        return Finished(int(match[1]), done.output[: match.start()], done.errors)

    def push(self, files: Sequence[Path], folder: str, *, timeout_s: float = 600.0) -> None:
        """Copy files into an existing folder of the device.

        Raises:
            MsdcError: the device's disk is full, or it refuses.
            DeviceGone: it stopped answering.
        """
        # The trailing slash makes a missing folder an error instead of a new name.
        done = self._run("push", *(str(path.absolute()) for path in files), f"{folder}/", timeout_s=timeout_s)
        if done.code == 0:
            return
        output = f"{done.output}\n{done.errors}"
        word = last_words(output)
        if "No space left" in output:
            raise MsdcError(f"device {self.serial}: its disk is full (copying to {folder})")
        if any(sign.lower() in output.lower() for sign in GONE):
            raise DeviceGone(f"device {self.serial} went away while files were copied to it ({word})")
        raise MsdcError(f"device {self.serial}: cannot copy to {folder} ({word})")

    def pull(self, remote: str, local: Path, max_bytes: int, *, timeout_s: float = 600.0) -> None:
        """Copy one file from the device.

        Raises:
            DeviceGone: it did not arrive.
            MsdcError: it has more than `max_bytes`.
        """
        done = self._run("pull", remote, str(local.absolute()), timeout_s=timeout_s, grows=(local, max_bytes))
        if done.code != 0 or not local.is_file():
            word = last_words(f"{done.output}\n{done.errors}")
            raise DeviceGone(f"device {self.serial}: {remote} did not come back ({word})")

    def answers(self) -> bool:
        """Whether the device runs a command now."""
        with contextlib.suppress(MsdcError):
            return self.shell("true", timeout_s=30).code == 0
        return False

    def come_back(self, timeout_s: float) -> bool:
        """Wait for a device that went away, and reconnect to a network device; returns whether it is back."""
        end = time.monotonic() + timeout_s
        while True:
            if NETWORK_SERIAL.match(self.serial):
                with contextlib.suppress(MsdcError):
                    connect(self.serial, self.program)
            if self.answers():
                return True
            if time.monotonic() >= end:
                return False
            time.sleep(0.5)


def connect(address: str, program: str) -> None:
    """`adb connect`: attach a device on the network.

    Raises:
        DeviceGone: nothing listens there.
    """
    # A dead connection may still be listed as offline, and adb would keep it.
    state = attached(program).get(address)
    if state == "device":
        return
    if state is not None:
        disconnect(address, program)
    output = run_tool([program, "connect", address], "adb connect", timeout_s=30)
    if "connected to" not in output:
        raise DeviceGone(f"cannot connect to {address}: {last_words(output)}")


def disconnect(address: str, program: str) -> None:
    """`adb disconnect`; errors are ignored."""
    with contextlib.suppress(MsdcError, OSError):
        run_tool([program, "disconnect", address], "adb disconnect", timeout_s=30)
