"""The server behind a link: phones join, say that they live, and answer once each."""

from __future__ import annotations

import hmac
import json
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from msdc.bench.devices.browser.server import BEAT_BYTES, FileServer, Reply, answer_json, answer_object, json_bytes
from msdc.bench.devices.link.answer import plain
from msdc.bench.result import DeviceRun
from msdc.errors import MsdcError

# Pages that are opened again take a new seat; strangers with the link shall not fill the memory.
SPARE_SEATS = 16
REPLY_S = 10.0
STEP_S = 0.2

Accept = Callable[[dict[str, Any], str], tuple[DeviceRun, dict[str, Any]]]


@dataclass
class Seat:
    """One phone that started: its own secret, its name, the last sign of life, and what became of it."""

    token: str
    number: int
    name: str = ""
    heard: float = field(default_factory=time.monotonic)
    state: Literal["measuring", "answered", "failed"] = "measuring"
    line: str = ""

    @property
    def title(self) -> str:
        """What messages call it."""
        return self.name or f"phone {self.number}"


class LinkServer(FileServer):
    """Serve the page and take up to `expect` answers, one per phone.

    `accept(answer, name)` makes a run of an answer and what the phone shows of it, or raises `MsdcError`. `tell` is
    called with one line when something happens. A phone that was silent for `silence_s` is gone.
    """

    def __init__(
        self,
        files: Mapping[str, Path | bytes],
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        *,
        expect: int,
        max_answer: int,
        silence_s: float,
        accept: Accept,
        tell: Callable[[str], None],
        packed: Mapping[str, bytes] | None = None,
    ) -> None:
        self.expect, self.max_answer, self.silence_s = expect, max_answer, silence_s
        self.accept, self.tell = accept, tell
        self.runs: list[DeviceRun] = []
        self.seats: list[Seat] = []
        self._open = True
        self._lock = threading.Lock()
        self._accepting = threading.Lock()
        super().__init__(files, host, port, tls, packed)

    # Requests

    def _seat(self, name: str) -> tuple[Seat | None, str]:
        """The seat and the verb of `SEAT/VERB`; every seat is compared, in constant time each."""
        token, _, verb = name.partition("/")
        found = [
            seat for seat in self.seats if hmac.compare_digest(seat.token.encode(), token.encode("utf-8", "replace"))
        ]
        return (found[0] if found else None), verb

    def limit(self, name: str) -> int | None:
        """See `FileServer.limit`."""
        if name == "join":
            return BEAT_BYTES
        seat, verb = self._seat(name)
        return {"answer": self.max_answer, "alive": BEAT_BYTES}.get(verb) if seat is not None else None

    def too_long(self, name: str, size: int) -> None:
        """See `FileServer.too_long`."""
        seat, verb = self._seat(name)
        if seat is not None and verb == "answer" and seat.state == "measuring":
            self._fail(seat, f"the page's answer has {size} bytes, more than {self.max_answer}")

    def take(self, name: str, raw: bytes) -> Reply:
        """See `FileServer.take`."""
        if name == "join":
            return self._join(raw)
        seat, verb = self._seat(name)
        assert seat is not None
        if verb == "answer":
            return self._answer(seat, raw)
        seat.heard = time.monotonic()
        # A page that has answered may send one more sign of life before it reads the reply.
        wanted = seat.state == "answered" or (self._open and seat.state == "measuring")
        return (204 if wanted else 410), b""

    def _join(self, raw: bytes) -> Reply:
        try:
            wanted = answer_object(answer_json(raw))
        except MsdcError as error:
            return 400, _error(str(error))
        name = plain(str(wanted.get("name") or ""))
        with self._lock:
            old, _ = self._seat(str(wanted.get("seat") or ""))
            if old is not None and old.state == "answered":
                return 409, _error("the result of this page has been received already")
            if not self._open or len(self.runs) >= self.expect:
                return 409, _error("the computer waits for no further result")
            if old is not None and old.state == "measuring":
                old.heard, old.name = time.monotonic(), name
                return 200, json_bytes({"seat": old.token})
            if len(self.seats) >= self.expect + SPARE_SEATS:
                return 409, _error("this link was started too often; ask for a new one")
            seat = Seat(secrets.token_urlsafe(16), len(self.seats) + 1, name)
            self.seats.append(seat)
        self.tell(f"{seat.title} has opened the link and measures")
        return 200, json_bytes({"seat": seat.token})

    def _answer(self, seat: Seat, raw: bytes) -> Reply:
        # One after the other: tasks are scored here, and only the first `expect` answers are taken.
        with self._accepting:
            if seat.state != "measuring" or not self._open:
                return 409, _error("the result of this page has been received already")
            if len(self.runs) >= self.expect:
                return 409, _error("the computer waits for no further result")
            try:
                run, shown = self.accept(answer_object(answer_json(raw)), seat.name)
            except MsdcError as error:
                line = " ".join(str(error).split())
                self._fail(seat, line)
                return 400, _error(line)
            except Exception as error:
                # Whatever an answer does to what reads it, it is this phone's failure.
                self._fail(seat, f"the page's answer: {type(error).__name__}")
                return 400, _error("the answer could not be read")
            with self._lock:
                self.runs.append(run)
                seat.state, seat.name = "answered", run.device.name
        self.tell(f"{run.device.name} has answered")
        return 200, json_bytes(shown)

    def _fail(self, seat: Seat, line: str) -> None:
        with self._lock:
            seat.state, seat.line = "failed", line
        self.tell(f"{seat.title}: {line}")

    # The wait

    def _lost(self, seat: Seat) -> bool:
        return seat.state == "measuring" and time.monotonic() - seat.heard > self.silence_s

    def _finished(self) -> bool:
        with self._lock:
            if len(self.runs) >= self.expect:
                return True
            lost = [seat for seat in self.seats if self._lost(seat)]
            live = [seat for seat in self.seats if seat.state == "measuring" and seat not in lost]
            used = len(self.seats) - len(live)
            return not live and used >= self.expect

    def wait(self, timeout_s: float) -> list[str]:
        """Wait for `expect` answers; returns one line per phone that failed, nothing where all have answered."""
        end = time.monotonic() + timeout_s
        while not (finished := self._finished()) and time.monotonic() < end:
            time.sleep(STEP_S)
        self._open = False
        # The last phone shall see its result before the server is gone.
        self.drain(REPLY_S)
        if len(self.runs) >= self.expect:
            return []
        lines = [f"{seat.title}: {seat.line}" for seat in self.seats if seat.state == "failed"]
        lines += [
            f"{seat.title} fell silent: its page was closed, its screen locked, or its network lost"
            for seat in self.seats
            if self._lost(seat)
        ]
        if not finished:
            measuring = sum(seat.state == "measuring" and not self._lost(seat) for seat in self.seats)
            still = f", {measuring} still measuring" if measuring else ""
            lines.append(
                f"{len(self.runs)} of {self.expect} devices answered in {timeout_s:g} s{still}"
                if self.seats
                else f"no phone started within {timeout_s:g} s"
            )
        return lines


def _error(line: str) -> bytes:
    return json.dumps({"error": line}).encode()
