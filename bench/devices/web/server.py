"""The server of a measurement: a fixed list of files behind a secret path, one bounded answer of the page.

The answer is that of the page that started last: one that is loaded again, or opened on another phone, starts over.
"""

from __future__ import annotations

import contextlib
import hmac
import http.client
import http.server
import io
import json
import secrets
import shutil
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
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
# Connections that have not shown the secret: how many, and how long one may take. Browsers open six at a time.
MAX_STRANGERS = 64
TOKEN_S = 10.0
# Of a request's headers together. Browsers send 1 KiB; http.server alone takes 100 lines of 64 KiB from anybody.
MAX_HEAD_BYTES = 16 * 1024
MESSAGE_BYTES = 1024
LONGEST_NAME = 60
SILENCE_S = 60.0  # a page speaks every few seconds; phones stop pages that are not in front

Reply = tuple[int, bytes]
# An answer -> (what is kept of it, what the page shows)
Accept = Callable[[dict[str, Any]], tuple[Any, dict[str, Any]]]


@dataclass
class Page:
    """A page that started: what messages call it, what it last reported and when, and what became of it."""

    number: int = 0
    title: str = "the page"
    heard: float = field(default_factory=time.monotonic)
    phase: str = ""
    state: Literal["measuring", "answered", "failed"] = "measuring"
    line: str = ""


class AnswerServer(socketserver.ThreadingTCPServer):
    """Serve `files` (address below the secret path -> a path, or the content) and take one answer.

    Args:
        accept: makes of an answer what is kept, and what the page shows of it; raises `MsdcError` for a bad one.
        max_answer: bytes of an answer, at most.
        token_s: seconds until a connection without the secret is closed.
        report: called with one line when something happens.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = MAX_STRANGERS

    def __init__(
        self, files: Mapping[str, Path | bytes], accept: Accept, max_answer: int, *, host: str = "127.0.0.1",
        port: int = 0, token_s: float = TOKEN_S, report: Callable[[str], None] = lambda line: None,
    ) -> None:  # fmt: skip
        self.files, self.accept, self.max_answer, self.report = files, accept, max_answer, report
        self.token, self.token_s = secrets.token_urlsafe(16), token_s
        self.page = Page()
        self.answer: Any = None
        self.settled = threading.Event()  # the answer was taken, or the page failed, and it has the reply
        self._accepting = threading.Lock()
        self._strangers: dict[Any, float] = {}  # connection without the secret -> since when, the oldest first
        self._listing = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)
        self.port = int(self.server_address[1])
        shown = f"[{host}]" if ":" in host else host
        # As browsers name it: without the port that http implies.
        self.host = shown if self.port == 80 else f"{shown}:{self.port}"
        self.origin = f"http://{self.host}"
        self.address = f"{self.origin}/{self.token}/"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()

    # Connections

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection; where too many have not shown the secret, the oldest of them gives way."""
        with self._listing:
            if len(self._strangers) >= MAX_STRANGERS:
                self._shut(next(iter(self._strangers)))
            self._strangers[request] = time.monotonic()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._listing:
                self._strangers.pop(request, None)

    def service_actions(self) -> None:
        """Close connections that show no secret: a page sends it as soon as it is connected."""
        with self._listing:
            for request in [key for key, since in self._strangers.items() if time.monotonic() - since > self.token_s]:
                self._shut(request)

    def _shut(self, request: socket.socket) -> None:
        """End a connection, whose thread wakes up and closes it; `_listing` is locked."""
        del self._strangers[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is the browser's business; nothing is logged."""

    def name_of(self, path: str, request: Any) -> str | None:
        """The file that `path` asks for, None without the secret."""
        head, _, rest = path.split("?", 1)[0].lstrip("/").partition("/")
        if not hmac.compare_digest(head.encode("utf-8", "replace"), self.token.encode()):
            return None
        with self._listing:
            self._strangers.pop(request, None)
        return rest or "index.html"

    def is_own(self, headers: Message) -> bool:
        """Whether a request was meant for this server, and sent by its own pages.

        A page elsewhere reaches it under a name of its own that leads here (DNS rebinding), or as another origin. Some
        browsers send the origin "null" for pages without a referrer, as these are.
        """
        return headers.get("Host") == self.host and headers.get("Origin", self.origin) in (self.origin, "null")

    # What pages post: `start`, then NUMBER/alive and NUMBER/answer

    def take(self, name: str, size: int, read: Callable[[int], bytes]) -> Reply:
        """Status and JSON for a post of `size` bytes to `name`; a post that is not allowed is not read."""
        number, _, verb = name.rpartition("/")
        if name != "start" and verb not in ("alive", "answer"):
            return 404, b""
        page = self.page
        if name != "start" and number != str(page.number):
            return 410, b""
        if size > (self.max_answer if verb == "answer" else MESSAGE_BYTES):
            if verb == "answer":
                with self._accepting:
                    self._fail(page, f"the page's answer has {size} bytes, more than {self.max_answer}")
            return 413, b""
        raw = read(size)
        if len(raw) < size:
            return 400, b""
        if name == "start":
            return self._start(raw)
        if verb == "answer":
            return self._answer(page, raw)
        page.heard, page.phase = time.monotonic(), plain(raw.decode("utf-8", "replace"))
        return 204, b""

    def _start(self, raw: bytes) -> Reply:
        try:
            request = answer_object(raw)
        except MsdcError as error:
            return 400, json_bytes({"error": str(error)})
        with self._accepting:
            if self.page.state != "measuring":
                return 409, json_bytes({"error": "the computer has its result"})
            self.page = page = Page(self.page.number + 1)
        page.title = plain(str(request.get("name") or "")) or page.title
        self.report(f"{page.title} has started")
        return 200, json_bytes({"number": page.number})

    def _answer(self, page: Page, raw: bytes) -> Reply:
        with self._accepting:
            if page is not self.page:
                return 410, b""
            if page.state != "measuring":
                return 409, json_bytes({"error": "the result of this page has been received already"})
            try:
                self.answer, shown = self.accept(answer_object(raw))
            except Exception as error:
                # Whatever an answer does to what reads it, it is this page's failure.
                is_ours = isinstance(error, MsdcError)
                line = " ".join(str(error).split()) if is_ours else f"the page's answer: {type(error).__name__}"
                self._fail(page, line)
                return 400, json_bytes({"error": line})
            page.state = "answered"
            return 200, json_bytes(shown)

    def _fail(self, page: Page, line: str) -> None:
        if page.state == "measuring":
            page.state, page.line = "failed", line


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
    """One request per connection."""

    server: AnswerServer
    timeout = SOCKET_S
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
        self._reply(421)
        return False

    def do_GET(self) -> None:
        name = self.server.name_of(self.path, self.connection)
        source = self.server.files.get(name) if name is not None else None
        if name is None or source is None:
            return self._reply(404)
        with io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as stream:
            self._reply(200, stream, TYPES.get(Path(name).suffix, "application/octet-stream"))

    def do_POST(self) -> None:
        name, length = self.server.name_of(self.path, self.connection), self.headers.get("Content-Length", "")
        if name is None:
            return self._reply(404)
        if not (length.isascii() and length.isdigit() and len(length) < 20):
            return self._reply(411)
        try:
            code, body = self.server.take(name, int(length), self.rfile.read)
            self._reply(code, io.BytesIO(body))
        finally:
            if self.server.page.state != "measuring":
                self.server.settled.set()

    def _reply(self, code: int, body: BinaryIO | None = None, kind: str = TYPES[".json"]) -> None:
        body = body or io.BytesIO()
        self.send_response(code)
        headers = dict(HEADERS)
        if code != 204:
            headers |= {"Content-Type": kind, "Content-Length": str(body.seek(0, io.SEEK_END))}
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        body.seek(0)
        with contextlib.suppress(OSError):
            shutil.copyfileobj(body, self.wfile)

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
