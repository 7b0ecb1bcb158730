"""A phone without a browser: it speaks to a link's server as the page does, and as no page would."""

import contextlib
import copy
import http.client
import json
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import tiny_models as tiny

from msdc.bench.devices.web.link import LinkDevice
from msdc.bench.devices.web.measurement import Measurement
from msdc.bench.devices.web.server import Accept, AnswerServer
from msdc.bench.options import BenchSettings
from msdc.bench.result import DeviceRun
from msdc.errors import MsdcError
from msdc.export.golden import encode_vectors, read_golden

WAIT_S = 300  # only a hang takes so long
ANDROID = (
    "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Mobile Safari/537.36"
)


SETTINGS = BenchSettings(tasks=(), runs=3, warmup=0, lengths=(8, 16), address="127.0.0.2", timeout_s=WAIT_S)


def tiny_bundle() -> Path:
    """A bundle that browsers run."""
    return tiny.bundle("fp32", "onnx")


class Client:
    """Requests below a link, each on a connection of its own."""

    def __init__(self, link: str) -> None:
        self.parts = urlsplit(link)

    def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers for a path below the link, or anywhere with a leading slash."""
        full = path if path.startswith("/") else self.parts.path + path
        with contextlib.closing(http.client.HTTPConnection(self.parts.netloc, timeout=WAIT_S)) as connection:
            connection.request(method, full, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(), dict(answer.getheaders())

    def post(self, path: str, value: Any) -> tuple[int, Any]:
        """Status and JSON of a reply."""
        status, body, _ = self.ask("POST", path, value if isinstance(value, bytes) else json.dumps(value).encode())
        return status, json.loads(body) if body else None

    def start(self, name: str = "") -> int:
        """The number of a page that starts."""
        status, reply = self.post("start", {"name": name})
        assert status == 200, reply
        return reply["number"]


def phone_answer(bundle: Path, settings: BenchSettings, **changes: Any) -> dict[str, Any]:
    """What a phone would send that computes exactly what the export computed; dotted keys change a part of it."""
    golden = read_golden(bundle)
    timed = {"samples": [2.0] * settings.runs, "warmup": 8, "settled": True, "cold": [9.0], "calls_per_sample": 1}
    answer = {
        "load_ms": 900.0, "first_ms": 30.0, "loaded_heap_bytes": 2**24, "heap_bytes": 2**24,
        "latency": [{"length": length, **timed} for length in settings.lengths],
        "tokenize": timed, "pipeline": timed, "clock_step_ms": 0.1, "worker": True, "threads": 1, "runtime": "1.30.0",
        "golden": {"ids": golden["ids"], "vectors": encode_vectors(np.asarray(golden["vectors"]["onnx"]))},
        "vectors": "", "name": "Ada's phone", "hints": None, "battery_before": None, "battery_after": None,
        "page": {"agent": ANDROID, "hidden": False, "timer_gap_ms": 1.0, "secure": False, "isolated": False,
                 "cores": 8, "device_memory_gib": None},
    }  # fmt: skip
    answer = copy.deepcopy(answer)
    for path, value in changes.items():
        *parents, last = path.split("__")
        parent = answer
        for part in parents:
            parent = parent[part]
        parent[last] = value
    return answer


def link_server(accept: Accept | None = None, host: str = "127.0.0.1", token_s: float = WAIT_S) -> AnswerServer:
    """A server of two files that takes an answer of 100 bytes; without `accept` it refuses any."""

    def refuse(answer: dict[str, Any]) -> Any:
        raise MsdcError(f"refused {answer}")

    files = {"index.html": b"<p>", "about.json": b"{}"}
    return AnswerServer(files, accept or refuse, 100, host=host, token_s=token_s)


class Link:
    """A `LinkDevice` that runs in a thread, and its link.

    `starts`: the page starts by itself, for browsers that no test can click in.
    """

    def __init__(
        self,
        bundle: Path,
        settings: BenchSettings,
        name: str | None = None,
        silence_s: float = WAIT_S,
        starts: bool = False,
    ) -> None:
        self.link = ""
        self.runs: list[DeviceRun] = []
        self.error: BaseException | None = None
        self._shown = threading.Event()
        owner = self

        class Shown(LinkDevice):
            def show(self, link: str, port: int, settings: BenchSettings) -> None:
                owner.link = link
                owner._shown.set()

            def _files(self, measurement: Measurement) -> dict[str, Path | bytes]:
                files = super()._files(measurement)
                if starts:
                    script = files["link.js"]
                    assert isinstance(script, Path)
                    files["link.js"] = script.read_bytes() + b"\nawait start();\n"
                return files

        device = Shown(name)
        device.silence_s = silence_s

        def run() -> None:
            try:
                self.runs = device.run(bundle, settings)
            except BaseException as error:
                self.error = error
            self._shown.set()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        assert self._shown.wait(WAIT_S)
        assert self.link, self.error
        self.client = Client(self.link)

    def end(self) -> list[DeviceRun]:
        """The runs, or the device's error raised."""
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        if self.error is not None:
            raise self.error
        return self.runs
