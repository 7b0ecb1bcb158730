"""A computer and a phone in networks of their own with a cable between them; run as a program inside the first.

unshare --net --map-root-user python two_networks.py cable
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COMPUTER, PHONE = "10.213.7.8", "10.213.7.9"
WAIT_S = 900
INSIDE = ["unshare", "--net", "--map-root-user"]


def run(part: str) -> dict[str, Any]:
    """What the program prints of `cable` or `engines`; `skip` says why it cannot run here."""
    try:
        cable = ["ip", "link", "add", "name", "one", "type", "veth", "peer", "name", "two"]
        probe = subprocess.run([*INSIDE, *cable], capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        return {"skip": "unshare is not installed"}
    if probe.returncode != 0:
        return {"skip": f"no networks can be made here: {probe.stderr.strip()[-200:]}"}
    command = [*INSIDE, sys.executable, str(Path(__file__).resolve()), part]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@contextlib.contextmanager
def phone_network() -> Iterator[tuple[str, ...]]:
    """The command that enters the phone's network."""
    phone = subprocess.Popen(["unshare", "--net", "sleep", str(WAIT_S)])
    try:
        mine, end = os.readlink("/proc/self/ns/net"), time.monotonic() + 60
        while os.readlink(f"/proc/{phone.pid}/ns/net") == mine and time.monotonic() < end:
            time.sleep(0.05)
        enter = ("nsenter", "-t", str(phone.pid), "-n")
        steps = (
            f"ip link add name computer type veth peer name phone netns {phone.pid}",
            f"ip addr add {COMPUTER}/24 dev computer", "ip link set computer up", "ip link set lo up",
            f"ip route add default via {PHONE}",
            f"{' '.join(enter)} ip addr add {PHONE}/24 dev phone", f"{' '.join(enter)} ip link set phone up",
        )  # fmt: skip
        for step in steps:
            subprocess.run(step.split(), check=True, timeout=60)
        yield enter
    finally:
        phone.kill()
        phone.wait()


def cable(bundle: Path, settings: Any, enter: tuple[str, ...]) -> dict[str, Any]:
    """A phone measures; then another one does whose cable is pulled: `link`, `run` and `lost`."""
    import devtools
    from link_phone import Link

    from msdc.errors import MsdcError

    outcome: dict[str, Any] = {}
    with devtools.chromium(before=enter) as browser:
        for part in ("run", "lost"):
            endless = settings.model_copy(update={"runs": 100_000, "warmup": 10_000, "timeout_s": 90})
            link = Link(bundle, settings if part == "run" else endless, silence_s=60 if part == "run" else 10)
            page = browser.open(link.link)
            page.wait("!document.getElementById('start').disabled")
            page.run("document.getElementById('start').click()")
            if part == "run":
                page.wait("!document.getElementById('after').hidden")
                outcome |= {"link": link.link, "run": link.end()[0].model_dump(mode="json")}
                continue
            page.wait("document.getElementById('progress').value > 0.2")
            subprocess.run(["ip", "link", "set", "computer", "down"], check=True, timeout=60)
            try:
                link.end()
            except MsdcError as error:
                outcome["lost"] = str(error)
    return outcome


def engines(bundle: Path, settings: Any) -> dict[str, Any]:
    """Facts of the page in each installed browser, from an origin that is secure in none of them."""
    from link_phone import Link

    from msdc.bench.devices.web.browser import ENGINES, opened
    from msdc.errors import MsdcError

    runs: dict[str, Any] = {}
    for engine in ENGINES.values():
        try:
            engine.program()
        except MsdcError as error:
            runs[engine.name] = {"skip": str(error)}
            continue
        link = Link(bundle, settings, starts=True)
        with opened(engine, link.link):
            (run,) = link.end()
        runs[engine.name] = run.model_dump(mode="json")
    return runs


def main(part: str) -> None:
    import tiny_models as tiny

    from msdc.bench.options import BenchSettings

    bundle = tiny.bundle("fp32", "onnx")
    settings = BenchSettings(tasks=(), runs=3, warmup=0, lengths=(8,), timeout_s=WAIT_S)
    with phone_network() as enter:
        print(json.dumps(cable(bundle, settings, enter) if part == "cable" else engines(bundle, settings)))


if __name__ == "__main__":
    main(sys.argv[1])
