"""The server of a measurement: a fixed list of files behind a secret path, one bounded answer per page.

A page of this machine is known beforehand; phones that open a link join first, and get a secret of their own.
"""

from __future__ import annotations

import contextlib
import hmac
import http.server
import ipaddress
import json
import secrets
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from msdc.errors import MsdcError, printable
from msdc.files import parse_json

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".wasm": "application/wasm",
}
# The page may run threads, and loads nothing from elsewhere.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self' 'wasm-unsafe-eval' blob:; worker-src 'self'; "
    "connect-src 'self'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
BLOCK_BYTES = 1 << 20
SOCKET_S = 30.0
MAX_CONNECTIONS = 64
BEAT_BYTES = 1024
LONGEST_NAME = 60
# Pages that are opened again take a new seat; strangers with the link shall not fill the memory.
SPARE_SEATS = 16
SILENCE_S = 60.0  # a page speaks every few seconds; phones stop pages that are not in front
REPLY_S = 10.0
STEP_S = 0.2

Reply = tuple[int, bytes]
# (answer, the name that the page joined with) -> (what is kept of it, what the page shows)
Accept = Callable[[dict[str, Any], str], tuple[Any, dict[str, Any]]]


@dataclass
class Seat:
    """One page that started: its own secret, its name, the last sign of life, and what became of it."""

    token: str
    number: int
    name: str = ""
    heard: float = field(default_factory=time.monotonic)
    phase: str = ""
    state: Literal["measuring", "answered", "failed"] = "measuring"
    line: str = ""

    @property
    def title(self) -> str:
        """What messages call it."""
        return self.name or f"phone {self.number}"


class AnswerServer(socketserver.ThreadingTCPServer):
    """Serve `files` (address below the secret path -> a path, or the content) and take `expect` answers, one per page.

    Args:
        files: what a page may fetch.
        accept: makes of an answer what is kept, and what the page shows of it; raises `MsdcError` for a bad one.
        max_answer: bytes of an answer, at most.
        link: pages join; else there is one page, which posts to `answer` and `alive`.
        expect: answers that are waited for; later ones are refused.
        host: address to listen at.
        port: 0 for any.
        tls: None for plain HTTP.
        packed: some of the files compressed by gzip, for clients that accept it.
        silence_s: a page that was silent for so long is gone.
        tell: called with one line when something happens.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(
        self,
        files: Mapping[str, Path | bytes],
        accept: Accept,
        max_answer: int,
        *,
        link: bool = False,
        expect: int = 1,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        packed: Mapping[str, bytes] | None = None,
        silence_s: float = SILENCE_S,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.files, self.packed = dict(files), dict(packed or {})
        self.accept, self.tell = accept, tell
        self.max_answer, self.expect, self.silence_s, self.link = max_answer, expect, silence_s, link
        self.token = secrets.token_urlsafe(16)
        self.answers: list[Any] = []
        self.seats = [] if link else [Seat("", 1)]
        self.settled = threading.Event()  # an answer was taken, or a page failed
        self._open = True
        self._lock, self._accepting = threading.Lock(), threading.Lock()
        self._replying, self._idle = 0, threading.Condition()
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        self._host, self._tls = host, tls
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def port(self) -> int:
        """The port it listens at."""
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        """The page's address."""
        host = f"[{self._host}]" if ":" in self._host else str(ipaddress.ip_address(self._host))
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}/{self.token}/"

    # Connections

    def get_request(self) -> tuple[Any, Any]:
        """A connection; its handshake is made by its own thread, so that a silent client holds up nobody."""
        connection, client = super().get_request()
        if self._tls is not None:
            connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, client

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection; more than `MAX_CONNECTIONS` are closed."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is the browser's business; nothing is logged."""

    def name_of(self, path: str) -> str | None:
        """The file that `path` asks for, None without the secret."""
        head, _, rest = path.split("?", 1)[0].lstrip("/").partition("/")
        if not hmac.compare_digest(head.encode("utf-8", "replace"), self.token.encode()):
            return None
        return rest or "index.html"

    # What pages post

    def _seat(self, name: str) -> tuple[Seat | None, str]:
        """The seat and the verb of `SEAT/VERB`; every seat is compared, in constant time each."""
        token, _, verb = name.rpartition("/")
        raw = token.encode("utf-8", "replace")
        found = [seat for seat in self.seats if hmac.compare_digest(seat.token.encode(), raw)]
        return (found[0] if found else None), verb

    def limit(self, name: str) -> int | None:
        """Bytes that may be posted to `name`; None: nothing may."""
        if name == "join" and self.link:
            return BEAT_BYTES
        seat, verb = self._seat(name)
        return {"answer": self.max_answer, "alive": BEAT_BYTES}.get(verb) if seat is not None else None

    def too_long(self, name: str, size: int) -> None:
        """A post of `size` bytes to `name` was refused."""
        seat, verb = self._seat(name)
        if seat is not None and verb == "answer" and seat.state == "measuring":
            self._fail(seat, f"the page's answer has {size} bytes, more than {self.max_answer}")

    def take(self, name: str, raw: bytes) -> Reply:
        """Status and JSON for what was posted to `name`."""
        with self._idle:
            self._replying += 1
        if name == "join":
            return self._join(raw)
        seat, verb = self._seat(name)
        assert seat is not None
        if verb == "answer":
            return self._answer(seat, raw)
        seat.heard, seat.phase = time.monotonic(), raw.decode("utf-8", "replace")
        # A page that has answered may send one more sign of life before it reads the reply.
        wanted = seat.state == "answered" or (self._open and seat.state == "measuring")
        return (204 if wanted else 410), b""

    def replied(self) -> None:
        """The reply to a post was sent, or its client is gone."""
        with self._idle:
            self._replying -= 1
            self._idle.notify_all()

    def _join(self, raw: bytes) -> Reply:
        try:
            wanted = answer_object(raw)
        except MsdcError as error:
            return 400, _error(str(error))
        name = plain(str(wanted.get("name") or ""))
        with self._lock:
            old, _ = self._seat(f"{wanted.get('seat') or ''}/")
            if old is not None and old.state == "answered":
                return 409, _error("the result of this page has been received already")
            if not self._open or len(self.answers) >= self.expect:
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
            if len(self.answers) >= self.expect:
                return 409, _error("the computer waits for no further result")
            try:
                kept, shown = self.accept(answer_object(raw), seat.name)
            except MsdcError as error:
                line = " ".join(str(error).split())
                self._fail(seat, line)
                return 400, _error(line)
            except Exception as error:
                # Whatever an answer does to what reads it, it is this page's failure.
                self._fail(seat, f"the page's answer: {type(error).__name__}")
                return 400, _error("the answer could not be read")
            with self._lock:
                self.answers.append(kept)
                seat.state, seat.name = "answered", shown.get("name", seat.name)
                self.settled.set()
        self.tell(f"{seat.title} has answered")
        return 200, json_bytes(shown)

    def _fail(self, seat: Seat, line: str) -> None:
        with self._lock:
            seat.state, seat.line = "failed", line
            self.settled.set()
        self.tell(f"{seat.title}: {line}")

    # The wait for phones

    def _lost(self, seat: Seat) -> bool:
        return seat.state == "measuring" and time.monotonic() - seat.heard > self.silence_s

    def _finished(self) -> bool:
        with self._lock:
            if len(self.answers) >= self.expect:
                return True
            live = [seat for seat in self.seats if seat.state == "measuring" and not self._lost(seat)]
            return not live and len(self.seats) >= self.expect

    def wait(self, timeout_s: float) -> list[str]:
        """Wait for `expect` answers; returns one line per phone that failed, nothing where all have answered."""
        end = time.monotonic() + timeout_s
        while not (finished := self._finished()) and time.monotonic() < end:
            time.sleep(STEP_S)
        self._open = False
        # The last phone shall see its result before the server is gone.
        with self._idle:
            self._idle.wait_for(lambda: not self._replying, REPLY_S)
        if len(self.answers) >= self.expect:
            return []
        lines = [f"{seat.title}: {seat.line}" for seat in self.seats if seat.state == "failed"]
        lost = [seat for seat in self.seats if self._lost(seat)]
        lines += [
            f"{seat.title} fell silent: its page was closed, its screen locked, or its network lost" for seat in lost
        ]
        if not finished and not self.seats:
            lines.append(f"no phone started within {timeout_s:g} s")
        elif not finished:
            measuring = sum(seat.state == "measuring" for seat in self.seats) - len(lost)
            still = f", {measuring} still measuring" if measuring else ""
            lines.append(f"{len(self.answers)} of {self.expect} devices answered in {timeout_s:g} s{still}")
        return lines


class _Handler(http.server.BaseHTTPRequestHandler):
    server: AnswerServer
    timeout = SOCKET_S
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "msdc", ""

    def do_GET(self) -> None:
        name = self.server.name_of(self.path)
        source = self.server.files.get(name) if name is not None else None
        if name is None or source is None:
            return self._reply(404)
        more = {}
        if name in self.server.packed and "gzip" in self.headers.get("Accept-Encoding", ""):
            source, more = self.server.packed[name], {"Content-Encoding": "gzip"}
        with contextlib.ExitStack() as stack:
            if isinstance(source, bytes):
                size, blocks = len(source), iter([source])
            else:
                size, opened = source.stat().st_size, stack.enter_context(source.open("rb"))
                blocks = iter(lambda: opened.read(BLOCK_BYTES), b"")
            self._head(200, size, TYPES.get(Path(name).suffix, "application/octet-stream"), more)
            self._send(blocks)

    def do_POST(self) -> None:
        name, length = self.server.name_of(self.path), self.headers.get("Content-Length", "")
        limit = self.server.limit(name) if name is not None else None
        refused = None
        if name is None or limit is None:
            refused = 404
        elif not (length.isascii() and length.isdigit() and len(length) < 20):
            refused = 411
        elif int(length) > limit:
            self.server.too_long(name, int(length))
            refused = 413
        if refused is not None:
            self.close_connection = True  # what follows on it is an unread body
            return self._reply(refused)
        assert name is not None
        raw = self.rfile.read(int(length))
        if len(raw) < int(length):
            self.close_connection = True
            return self._reply(400)
        try:
            self._reply(*self.server.take(name, raw))
        finally:
            self.server.replied()

    def _head(self, code: int, size: int, kind: str, more: Mapping[str, str] | None = None) -> None:
        self.send_response(code)
        size_headers = {} if code == 204 else {"Content-Type": kind, "Content-Length": str(size)}
        if self.close_connection:
            size_headers["Connection"] = "close"
        for key, value in {**HEADERS, **size_headers, **(more or {})}.items():
            self.send_header(key, value)
        self.end_headers()

    def _send(self, blocks: Iterator[bytes]) -> None:
        with contextlib.suppress(OSError):
            for block in blocks:
                self.wfile.write(block)

    def _reply(self, code: int, body: bytes = b"") -> None:
        self._head(code, len(body), TYPES[".json"])
        self._send(iter([body]))

    def log_message(self, *arguments: object) -> None:
        pass


def plain(text: str) -> str:
    """One line without control characters, of at most `LONGEST_NAME` characters."""
    return " ".join(printable(text).split())[:LONGEST_NAME].strip()


def answer_object(raw: bytes) -> dict[str, Any]:
    """The JSON object that a page posted.

    Raises:
        MsdcError: it is none, holds NaN, or reports an error of the page.
    """
    try:
        answer = parse_json(raw.decode("utf-8"))
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise MsdcError("the page's answer is not JSON") from error
    if not isinstance(answer, dict):
        raise MsdcError("the page's answer is not an object")
    if "error" in answer:
        raise MsdcError(" ".join(str(answer["error"]).split())[:300])
    return answer


def json_bytes(value: Any) -> bytes:
    """JSON for a page."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")


def _error(line: str) -> bytes:
    return json.dumps({"error": line}).encode()
