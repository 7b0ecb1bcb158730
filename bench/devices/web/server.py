"""The server of a measurement: a fixed list of files behind a secret path, one bounded answer per page.

A page of this machine is known beforehand; phones that open a link join first, and get a secret of their own.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import http.server
import io
import json
import math
import secrets
import shutil
import socket
import socketserver
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import Any, BinaryIO, Literal, Self

from msdc.errors import MsdcError, printable
from msdc.files import parse_json

TYPES = {".json": "application/json", ".wasm": "application/wasm"} | {
    f".{ending}": f"text/{kind}; charset=utf-8"
    for ending, kind in (("html", "html"), ("css", "css"), ("js", "javascript"), ("mjs", "javascript"))
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
SOCKET_S = 30.0
MAX_CONNECTIONS = 64
# Connections that have not shown the secret: how long one may take, and how many an address may have. Browsers open six
# at a time, and phones on cables all come from this machine's own address.
TOKEN_S = 10.0
MAX_STRANGERS = 16
# How long a connection that has shown it may take for its next request.
REQUEST_S = 120.0
# Of a request's headers together. Browsers send 1 KiB; http.server alone takes 100 lines of 64 KiB from anybody.
MAX_HEAD_BYTES = 16 * 1024
BEAT_BYTES = 1024
LONGEST_NAME = 60
# Pages that are opened again take a new seat; strangers with the link shall not fill the memory.
SPARE_SEATS = 16
SILENCE_S = 60.0  # a page speaks every few seconds; phones stop pages that are not in front
SILENT = "fell silent: its page was closed, its screen locked, or its network lost"
REPLY_S = 10.0
STEP_S = 0.2
WORDS = (Path(__file__).parent / "words.txt").read_text(encoding="utf-8").split()  # 256
PHASES = {"load": "downloads", "warm": "measures", "noisy": "noisy, its owner may measure again", "silent": "silent"}

Reply = tuple[int, bytes]
# (answer, the name that the page joined with) -> (what is kept of it, what the page shows)
Accept = Callable[[dict[str, Any], str], tuple[Any, dict[str, Any]]]


@dataclass
class Seat:
    """One page that started: its own secret, what messages call it, the last sign of life, and what became of it."""

    token: str
    number: int = 1
    title: str = "the page"
    heard: float = field(default_factory=time.monotonic)
    phase: str = ""
    numbers: tuple[int, ...] = ()  # percent done and of the battery, where the page reports them
    state: Literal["measuring", "answered", "failed"] = "measuring"
    line: str = ""

    @property
    def words(self) -> str:
        """What the page shows and the terminal prints, so that its owner can compare: 32 bits."""
        return " ".join(WORDS[byte] for byte in hashlib.sha256(self.token.encode()).digest()[:4])

    def beat(self, raw: bytes) -> None:
        """A sign of life: a word for what the page does, and numbers."""
        self.heard = time.monotonic()
        self.phase, *rest = raw.decode("utf-8", "replace").split()[:3] or [""]
        self.numbers = tuple(
            int(number) for number in rest if number.isascii() and number.isdigit() and int(number) <= 100
        )

    def status(self) -> str:
        """One line: which phone, what it does, percent, battery."""
        does = PHASES.get(self.phase, "starts") if self.state == "measuring" else self.state
        parts = zip(("{} %", "battery {} %"), self.numbers, strict=False)
        name = f"phone {self.number} ({self.words})"
        return ", ".join([f"{name} {self.title}: {does}", *(form.format(number) for form, number in parts)])


@dataclass
class _Visitor:
    """A connection: whose, since when it waits for a request, and whether it has shown the secret."""

    address: str
    since: float = field(default_factory=time.monotonic)
    has_secret: bool = False

    def is_late(self, now: float, token_s: float) -> bool:
        """Whether its next request takes too long."""
        return now - self.since > (REQUEST_S if self.has_secret else token_s)


class AnswerServer(socketserver.ThreadingTCPServer):
    """Serve `files` (address below the secret path -> a path, or the content) and take `expect` answers, one per page.

    Args:
        accept: makes of an answer what is kept, and what the page shows of it; raises `MsdcError` for a bad one.
        max_answer: bytes of an answer, at most.
        link: pages join; else there is one page, which posts to `answer` and `alive`.
        packed: some of the files compressed by gzip, for clients that accept it.
        silence_s, token_s: a page that was silent for so long is gone; a connection without the secret is closed.
        report: called with one line when something happens.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(
        self, files: Mapping[str, Path | bytes], accept: Accept, max_answer: int, *, link: bool = False,
        expect: int = 1, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None,
        packed: Mapping[str, bytes] | None = None, silence_s: float = SILENCE_S, token_s: float = TOKEN_S,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:  # fmt: skip
        self.files, self.packed, self.accept, self.report = files, packed or {}, accept, report
        self.max_answer, self.expect, self.link = max_answer, expect, link
        self.silence_s, self.token_s = silence_s, token_s
        self.token = secrets.token_urlsafe(16)
        self.answers: list[Any] = []
        self.seats = [] if link else [Seat("")]
        self.settled = threading.Event()  # an answer was taken, or a page failed
        self._open, self._tls = True, tls
        self._lock, self._accepting = threading.Lock(), threading.Lock()
        self._replying, self._idle = 0, threading.Condition()
        self._visitors: dict[Any, _Visitor] = {}  # connection -> what is known of it, the longest silent one first
        self._visiting = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)
        self.port = int(self.server_address[1])
        shown = f"[{host}]" if ":" in host else host
        # As browsers name it: without the port that the scheme implies.
        self.host = shown if self.port == (443 if tls else 80) else f"{shown}:{self.port}"
        self.origin = f"{'https' if tls else 'http'}://{self.host}"
        self.address = f"{self.origin}/{self.token}/"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()

    # Connections

    def get_request(self) -> tuple[Any, Any]:
        """A connection; its handshake is made by its own thread, so that a silent client blocks no other."""
        connection, client = super().get_request()
        if self._tls is not None:
            connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, client

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection.

        Where there are too many, one gives way: the oldest without the secret; else, of the address that has most, the
        one that has asked for nothing for the longest time.
        """
        address = client_address[0]
        with self._visiting:
            strangers = [
                (connection, visitor.address)
                for connection, visitor in self._visitors.items()
                if not visitor.has_secret
            ]
            same_address = [connection for connection, whose in strangers if whose == address]
            if len(same_address) >= MAX_STRANGERS:
                self._turn_out(same_address[0])
            elif len(self._visitors) >= MAX_CONNECTIONS:
                ((most, _),) = Counter(visitor.address for visitor in self._visitors.values()).most_common(1)
                of_most = (connection for connection, visitor in self._visitors.items() if visitor.address == most)
                self._turn_out(strangers[0][0] if strangers else next(of_most))
            self._visitors[request] = _Visitor(address)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._visiting:
                self._visitors.pop(request, None)

    def service_actions(self) -> None:
        """Close connections that show no secret (a page sends it as soon as it is connected), and slow requests."""
        now = time.monotonic()
        with self._visiting:
            for request in [
                connection for connection, visitor in self._visitors.items() if visitor.is_late(now, self.token_s)
            ]:
                self._turn_out(request)

    def _turn_out(self, request: Any) -> None:
        """End a connection, whose thread wakes up and closes it; `_visiting` is held."""
        del self._visitors[request]
        with contextlib.suppress(OSError):
            # Not TLS's own, which another thread may be inside of.
            socket.socket.shutdown(request, socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is the browser's business; nothing is logged."""

    def name_of(self, path: str, request: Any) -> str | None:
        """The file that `path` asks for, None without the secret."""
        head, _, rest = path.split("?", 1)[0].lstrip("/").partition("/")
        if not hmac.compare_digest(head.encode("utf-8", "replace"), self.token.encode()):
            return None
        with self._visiting:
            if visitor := self._visitors.pop(request, None):
                # Behind all others. What it posts has the time of a request; a download may take longer.
                visitor.has_secret, visitor.since = True, time.monotonic()
                self._visitors[request] = visitor
        return rest or "index.html"

    def waits(self, request: Any, since: float) -> None:
        """A connection waits for its next request since `since`."""
        with self._visiting:
            if request in self._visitors:
                self._visitors[request].since = since

    def is_own(self, headers: Message) -> bool:
        """Whether a request was meant for this server, and sent by its own pages.

        A page elsewhere reaches it under a name of its own that leads here (DNS rebinding), or as another origin. Some
        browsers send the origin "null" for pages without a referrer, as these are.
        """
        return headers.get("Host") == self.host and headers.get("Origin", self.origin) in (self.origin, "null")

    # What pages post

    def seat_of(self, name: str) -> tuple[Seat | None, str]:
        """The seat and the verb of `SEAT/VERB`; every seat is compared, in constant time each."""
        token, _, verb = name.rpartition("/")
        raw = token.encode("utf-8", "replace")
        seats = [seat for seat in self.seats if hmac.compare_digest(seat.token.encode(), raw)]
        return (seats[0] if seats else None), verb

    def take(self, name: str, size: int, read: Callable[[int], bytes]) -> Reply:
        """Status and JSON for a post of `size` bytes to `name`; a post that is not allowed is not read."""
        seat, verb = self.seat_of(name)
        joins = self.link and name == "join"
        if not joins and (seat is None or verb not in ("answer", "alive")):
            return 404, b""
        if size > (self.max_answer if verb == "answer" else BEAT_BYTES):
            if seat is not None and verb == "answer" and seat.state == "measuring":
                self._fail(seat, f"the page's answer has {size} bytes, more than {self.max_answer}")
            return 413, b""
        raw = read(size)
        if len(raw) < size:
            return 400, b""
        if seat is None or joins:
            return self._join(raw)
        if verb == "answer":
            return self._answer(seat, raw)
        seat.beat(raw)
        # A page that has answered may send one more sign of life before it reads the reply.
        is_awaited = seat.state == "answered" or (self._open and seat.state == "measuring")
        return (204 if is_awaited else 410), b""

    @contextlib.contextmanager
    def replying(self) -> Iterator[None]:
        """While a post is answered: `wait` lets it come to its end."""
        with self._idle:
            self._replying += 1
        try:
            yield
        finally:
            with self._idle:
                self._replying -= 1
                self._idle.notify_all()

    def _refusal(self, seat: Seat | None) -> Reply | None:
        """The reply where no answer of `seat`, or of a new page, is waited for."""
        if seat is not None and seat.state != "measuring":
            return 409, json_bytes({"error": "the result of this page has been received already"})
        if not self._open or len(self.answers) >= self.expect:
            return 409, json_bytes({"error": "the computer waits for no further result"})
        return None

    def _join(self, raw: bytes) -> Reply:
        try:
            request = answer_object(raw)
        except MsdcError as error:
            return 400, json_bytes({"error": str(error)})
        with self._lock:
            seat, _ = self.seat_of(f"{request.get('seat') or ''}/")
            if seat is not None and seat.state == "failed":
                seat = None  # it starts over
            if refusal := self._refusal(seat):
                return refusal
            if seat is None and len(self.seats) >= self.expect + SPARE_SEATS:
                return 409, json_bytes({"error": "this link was started too often; ask for a new one"})
            started = seat is None
            if seat is None:
                number = len(self.seats) + 1
                seat = Seat(secrets.token_urlsafe(16), number, f"phone {number}")
                self.seats.append(seat)
            seat.beat(b"")
            seat.title = plain(str(request.get("name") or "")) or seat.title
        if started:
            self.report(f"{seat.title} has opened the link; its page shows: phone {seat.number}, {seat.words}")
        return 200, json_bytes({"seat": seat.token, "number": seat.number, "words": seat.words})

    def _answer(self, seat: Seat, raw: bytes) -> Reply:
        # One after the other: tasks are scored here, and only the first `expect` answers are taken.
        with self._accepting:
            if refusal := self._refusal(seat):
                return refusal
            try:
                accepted, shown = self.accept(answer_object(raw), seat.title)
            except Exception as error:
                # Whatever an answer does to what reads it, it is this page's failure.
                is_ours = isinstance(error, MsdcError)
                line = " ".join(str(error).split()) if is_ours else f"the page's answer: {type(error).__name__}"
                self._fail(seat, line)
                return 400, json_bytes({"error": line})
            with self._lock:
                self.answers.append(accepted)
                seat.state, seat.title = "answered", shown.get("name", seat.title)
                self.settled.set()
        self.report(f"{seat.title} has answered")
        return 200, json_bytes(shown)

    def _fail(self, seat: Seat, line: str) -> None:
        with self._lock:
            seat.state, seat.line = "failed", line
            self.settled.set()
        self.report(f"{seat.title}: {line}")

    # The wait for phones

    def _lost(self, seat: Seat) -> bool:
        return seat.state == "measuring" and time.monotonic() - seat.heard > self.silence_s

    def _finished(self) -> bool:
        """Whether all have answered or reported that they cannot; a silent phone may come back."""
        with self._lock:
            live = any(seat.state == "measuring" for seat in self.seats)
            return len(self.answers) >= self.expect or (not live and len(self.seats) >= self.expect)

    def wait(self, timeout_s: float, show: Callable[[list[str]], None] = lambda lines: None) -> list[str]:
        """Wait for `expect` answers; returns one line per phone that failed, nothing where all have answered.

        `show` gets a line per phone, several times a second.
        """
        end = time.monotonic() + timeout_s
        while not (finished := self._finished()) and time.monotonic() < end:
            for seat in self.seats:
                if self._lost(seat) and seat.phase != "silent":
                    seat.phase = "silent"
                    minutes = max(1, round((end - time.monotonic()) / 60))
                    self.report(
                        f"{seat.title} {SILENT}; it may open the link again for {minutes} min, Ctrl-C ends the wait"
                    )
            show([seat.status() for seat in self.seats])
            time.sleep(STEP_S)
        self._open = False
        # The last phone shall see its result before the server is gone.
        with self._idle:
            self._idle.wait_for(lambda: not self._replying, REPLY_S)
        if len(self.answers) >= self.expect:
            return []
        lines = [f"{seat.title}: {seat.line}" for seat in self.seats if seat.state == "failed"]
        lost = [seat.title for seat in self.seats if self._lost(seat)]
        lines += [f"{name} {SILENT}" for name in lost]
        if not finished:
            lines.append(f"{len(self.answers)} of {self.expect} devices answered in {timeout_s:g} s")
        return lines


class _Head:
    """The headers of one request, read from `stream`; more than `MAX_HEAD_BYTES` are status 431."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.remaining = stream, MAX_HEAD_BYTES

    def readline(self, size: int) -> bytes:
        """The next line."""
        line: bytes = self.stream.readline(min(size, self.remaining + 1))
        self.remaining -= len(line)
        if self.remaining < 0:
            raise http.client.HTTPException(f"more than {MAX_HEAD_BYTES} bytes of headers")
        return line


class _Handler(http.server.BaseHTTPRequestHandler):
    server: AnswerServer
    timeout = SOCKET_S
    disable_nagle_algorithm = True  # head and content are written apart: 40 ms per reply
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "msdc", ""

    def parse_request(self) -> bool:
        """Also refuses requests that were meant for another server, whatever their method."""
        stream: Any = self.rfile
        self.rfile = _Head(stream)  # type: ignore[assignment]
        try:
            is_request = super().parse_request()
        finally:
            self.rfile = stream
        if not is_request:
            return False
        if self.server.is_own(self.headers):
            return True
        self.close_connection = True
        self._reply(421)
        return False

    def do_GET(self) -> None:
        name = self.server.name_of(self.path, self.connection)
        source = self.server.files.get(name) if name is not None else None
        if name is None or source is None:
            return self._reply(404)
        extra_headers = {}
        if name in self.server.packed and "gzip" in self.headers.get("Accept-Encoding", ""):
            source, extra_headers = self.server.packed[name], {"Content-Encoding": "gzip"}
        with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as stream:
            self._reply(200, stream, TYPES.get(Path(name).suffix, "application/octet-stream"), extra_headers)

    def do_POST(self) -> None:
        name, length = self.server.name_of(self.path, self.connection), self.headers.get("Content-Length", "")
        if name is not None and not (length.isascii() and length.isdigit() and len(length) < 20):
            self.close_connection = True
            return self._reply(411)
        with self.server.replying():
            code, body = (404, b"") if name is None else self.server.take(name, int(length), self.rfile.read)
            # What follows on the connection of a post that was not read is its body.
            self.close_connection |= not body and code != 204
            self._reply(code, io.BytesIO(body))

    def _reply(
        self,
        code: int,
        body: BinaryIO | None = None,
        kind: str = TYPES[".json"],
        extra_headers: Mapping[str, str] | None = None,
    ) -> None:
        body = body or io.BytesIO()
        self.send_response(code)
        headers = {**HEADERS, **(extra_headers or {})}
        if code != 204:
            headers |= {"Content-Type": kind, "Content-Length": str(body.seek(0, io.SEEK_END))}
        if self.close_connection:
            headers["Connection"] = "close"
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        body.seek(0)
        # A download may take its time; each part of it has that of the socket.
        self.server.waits(self.connection, math.inf)
        with contextlib.suppress(OSError):
            shutil.copyfileobj(body, self.wfile)
        self.server.waits(self.connection, time.monotonic())

    def log_message(self, *arguments: object) -> None:
        pass


def plain(text: str) -> str:
    """One line without control characters, of at most `LONGEST_NAME` characters."""
    return " ".join(printable(text).split())[:LONGEST_NAME].strip()


def answer_object(raw: bytes) -> dict[str, Any]:
    """The JSON object that a page posted; `MsdcError` where it is none, holds NaN, or reports an error of the page."""
    try:
        answer = parse_json(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise MsdcError("the page's answer is not JSON") from error
    if not isinstance(answer, dict):
        raise MsdcError("the page's answer is not an object")
    if "error" in answer:
        raise MsdcError(" ".join(str(answer["error"]).split())[:300])
    return answer


def json_bytes(value: Any) -> bytes:
    """JSON for a page."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
