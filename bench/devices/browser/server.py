"""Servers of a measurement: a fixed list of files behind a secret path, answers of bounded size."""

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
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from msdc.errors import MsdcError
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
Reply = tuple[int, bytes]


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(
        self, address: tuple[str, int], handler: type[http.server.BaseHTTPRequestHandler], tls: ssl.SSLContext | None
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.tls = tls
        self._free = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(address, handler)

    def get_request(self) -> tuple[Any, Any]:
        """A connection; its handshake is made by its own thread, so that a silent client holds up nobody."""
        connection, client = super().get_request()
        if self.tls is not None:
            connection = self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
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


class FileServer(ABC):
    """Serve `files` (address below the secret path -> a path, or the content); subclasses take what is posted.

    `packed` holds some of the files compressed by gzip, for clients that accept it.
    """

    def __init__(
        self,
        files: Mapping[str, Path | bytes],
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        packed: Mapping[str, bytes] | None = None,
    ) -> None:
        self.files, self.packed = dict(files), dict(packed or {})
        self.token = secrets.token_urlsafe(16)
        self._host, self._secure = host, tls is not None
        self._replying, self._idle = 0, threading.Condition()
        self._server = _Server((host, port), self._handler(), tls)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def port(self) -> int:
        """The port it listens at."""
        return int(self._server.server_address[1])

    @property
    def address(self) -> str:
        """The page's address."""
        host = f"[{self._host}]" if ":" in self._host else str(ipaddress.ip_address(self._host))
        return f"{'https' if self._secure else 'http'}://{host}:{self.port}/{self.token}/"

    @abstractmethod
    def limit(self, name: str) -> int | None:
        """Bytes that may be posted to `name`; None: nothing may."""

    @abstractmethod
    def too_long(self, name: str, size: int) -> None:
        """A post of `size` bytes to `name` was refused."""

    @abstractmethod
    def take(self, name: str, raw: bytes) -> Reply:
        """Status and JSON for what was posted to `name`."""

    def drain(self, timeout_s: float) -> None:
        """Wait until the posts that were taken have been replied to, or their clients are gone."""
        with self._idle:
            self._idle.wait_for(lambda: not self._replying, timeout_s)

    @contextlib.contextmanager
    def _reply_pending(self) -> Iterator[None]:
        with self._idle:
            self._replying += 1
        try:
            yield
        finally:
            with self._idle:
                self._replying -= 1
                self._idle.notify_all()

    def _name(self, path: str) -> str | None:
        """The file that `path` asks for, None without the secret."""
        head, _, rest = path.split("?", 1)[0].lstrip("/").partition("/")
        if not hmac.compare_digest(head.encode("utf-8", "replace"), self.token.encode()):
            return None
        return rest or "index.html"

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = SOCKET_S
            protocol_version = "HTTP/1.1"
            server_version, sys_version = "msdc", ""

            def do_GET(self) -> None:
                name = owner._name(self.path)
                source = owner.files.get(name) if name is not None else None
                if name is None or source is None:
                    return self._reply(404)
                more = {}
                if name in owner.packed and "gzip" in self.headers.get("Accept-Encoding", ""):
                    source, more = owner.packed[name], {"Content-Encoding": "gzip"}
                with contextlib.ExitStack() as stack:
                    if isinstance(source, bytes):
                        size, blocks = len(source), iter([source])
                    else:
                        size, opened = source.stat().st_size, stack.enter_context(source.open("rb"))
                        blocks = iter(lambda: opened.read(BLOCK_BYTES), b"")
                    self._head(200, size, TYPES.get(Path(name).suffix, "application/octet-stream"), more)
                    self._send(blocks)

            def _send(self, blocks: Iterator[bytes]) -> None:
                with contextlib.suppress(OSError):
                    for block in blocks:
                        self.wfile.write(block)

            def do_POST(self) -> None:
                name, length = owner._name(self.path), self.headers.get("Content-Length", "")
                limit = owner.limit(name) if name is not None else None
                refused = None
                if name is None or limit is None:
                    refused = 404
                elif not (length.isascii() and length.isdigit() and len(length) < 20):
                    refused = 411
                elif int(length) > limit:
                    owner.too_long(name, int(length))
                    refused = 413
                if refused is not None:
                    self.close_connection = True  # what follows on it is an unread body
                    return self._reply(refused)
                assert name is not None
                raw = self.rfile.read(int(length))
                if len(raw) < int(length):
                    self.close_connection = True
                    return self._reply(400)
                with owner._reply_pending():
                    return self._reply(*owner.take(name, raw))

            def _head(self, code: int, size: int, kind: str, more: Mapping[str, str] | None = None) -> None:
                self.send_response(code)
                size_headers = {} if code == 204 else {"Content-Type": kind, "Content-Length": str(size)}
                if self.close_connection:
                    size_headers["Connection"] = "close"
                for key, value in {**HEADERS, **size_headers, **(more or {})}.items():
                    self.send_header(key, value)
                self.end_headers()

            def _reply(self, code: int, body: bytes = b"") -> None:
                self._head(code, len(body), TYPES[".json"])
                self._send(iter([body]))

            def log_message(self, *arguments: object) -> None:
                pass

        return Handler


class PageServer(FileServer):
    """A server on loopback that waits for one answer of at most `max_answer` bytes; later ones are refused with 409.

    `heard` is the time (monotonic) of the page's last sign of life, `phase` what it said then.
    """

    def __init__(self, files: Mapping[str, Path | bytes], max_answer: int) -> None:
        self.max_answer = max_answer
        self.answer: Any = None
        self.refused: str | None = None
        self.answered = threading.Event()
        self.heard = time.monotonic()
        self.phase = ""
        self._lock = threading.Lock()
        super().__init__(files)

    def limit(self, name: str) -> int | None:
        """See `FileServer.limit`."""
        return {"answer": self.max_answer, "alive": BEAT_BYTES}.get(name)

    def too_long(self, name: str, size: int) -> None:
        """See `FileServer.too_long`."""
        if name == "answer":
            with self._lock:
                if not self.answered.is_set():
                    self.refused = f"the page's answer has {size} bytes, more than {self.max_answer}"
                    self.answered.set()

    def take(self, name: str, raw: bytes) -> Reply:
        """See `FileServer.take`."""
        if name == "alive":
            self.heard, self.phase = time.monotonic(), raw.decode("utf-8", "replace")
            return 204, b""
        with self._lock:
            if self.answered.is_set():
                return 409, b""
            try:
                self.answer = answer_json(raw)
            except MsdcError as error:
                self.refused = str(error)
            self.answered.set()
            return (204 if self.refused is None else 400), b""

    def result(self) -> dict[str, Any]:
        """The page's answer.

        Raises:
            MsdcError: it was refused, or the page reports an error.
        """
        if self.refused is not None:
            raise MsdcError(self.refused)
        return answer_object(self.answer)


def answer_json(raw: bytes) -> Any:
    """The JSON of an answer.

    Raises:
        MsdcError: it is none, or holds NaN.
    """
    try:
        return parse_json(raw.decode("utf-8"))
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise MsdcError("the page's answer is not JSON") from error


def answer_object(answer: Any) -> dict[str, Any]:
    """The object that an answer is.

    Raises:
        MsdcError: it is none, or the page reports an error.
    """
    if not isinstance(answer, dict):
        raise MsdcError("the page's answer is not an object")
    if "error" in answer:
        raise MsdcError(" ".join(str(answer["error"]).split())[:300])
    return answer


def json_bytes(value: Any) -> bytes:
    """JSON for a page."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
