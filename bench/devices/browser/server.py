"""The server of one measurement: loopback, a fixed list of files behind a secret path, one answer of bounded size."""

from __future__ import annotations

import contextlib
import hmac
import http.server
import json
import secrets
import socketserver
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from msdc.errors import MsdcError
from msdc.files import parse_json

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".wasm": "application/wasm",
}
# The page may run threads, and loads nothing from elsewhere.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self' 'wasm-unsafe-eval' blob:; worker-src 'self'; "
    "connect-src 'self'; style-src 'self'; img-src data:",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
BLOCK_BYTES = 1 << 20
SOCKET_S = 30.0


class _Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is the browser's business; nothing is logged."""


class PageServer:
    """Serve `files` (address below the secret path -> a path, or the content itself) and wait for one answer.

    The first answer of at most `max_answer` bytes is taken, later ones are refused with 409. `heard` is the time
    (monotonic) of the page's last sign of life, `phase` what it said then.
    """

    def __init__(self, files: Mapping[str, Path | bytes], max_answer: int) -> None:
        self.files = dict(files)
        self.max_answer = max_answer
        self.token = secrets.token_urlsafe(16)
        self.answer: Any = None
        self.refused: str | None = None
        self.answered = threading.Event()
        self.heard = time.monotonic()
        self.phase = ""
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)

    def __enter__(self) -> PageServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def address(self) -> str:
        """The page's address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/{self.token}/"

    def _name(self, path: str) -> str | None:
        """The file that `path` asks for, None without the secret."""
        head, _, rest = path.split("?", 1)[0].lstrip("/").partition("/")
        if not hmac.compare_digest(head.encode(), self.token.encode()):
            return None
        return rest or "index.html"

    def _take(self, raw: bytes) -> int:
        """The status that an answer gets."""
        with self._lock:
            if self.answered.is_set():
                return 409
            try:
                self.answer = parse_json(raw.decode("utf-8"))
            except (UnicodeDecodeError, ValueError, RecursionError):
                self.refused = "the page's answer is not JSON"
            self.answered.set()
            return 204 if self.refused is None else 400

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = SOCKET_S
            server_version, sys_version = "msdc", ""

            def do_GET(self) -> None:
                name = owner._name(self.path)
                source = owner.files.get(name) if name is not None else None
                if name is None or source is None:
                    return self._status(404)
                with contextlib.ExitStack() as stack:
                    if isinstance(source, bytes):
                        size, blocks = len(source), iter([source])
                    else:
                        size, opened = source.stat().st_size, stack.enter_context(source.open("rb"))
                        blocks = iter(lambda: opened.read(BLOCK_BYTES), b"")
                    self._status(200, {"Content-Type": TYPES.get(Path(name).suffix, "application/octet-stream")}, size)
                    self._send(blocks)

            def _send(self, blocks: Iterator[bytes]) -> None:
                with contextlib.suppress(OSError):
                    for block in blocks:
                        self.wfile.write(block)

            def do_POST(self) -> None:
                name = owner._name(self.path)
                length = self.headers.get("Content-Length", "")
                if name not in ("answer", "alive"):
                    return self._status(404)
                if not length.isdigit():
                    return self._status(411)
                if int(length) > (owner.max_answer if name == "answer" else 1024):
                    if name == "answer":
                        owner.refused = f"the page's answer has {int(length)} bytes, more than {owner.max_answer}"
                        owner.answered.set()
                    return self._status(413)
                raw = self.rfile.read(int(length))
                if name == "answer":
                    return self._status(owner._take(raw))
                owner.heard, owner.phase = time.monotonic(), raw.decode("utf-8", "replace")
                return self._status(204)

            def _status(self, code: int, headers: Mapping[str, str] | None = None, size: int = 0) -> None:
                self.send_response(code)
                for key, value in {**HEADERS, **(headers or {}), "Content-Length": str(size)}.items():
                    self.send_header(key, value)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        return Handler

    def result(self) -> dict[str, Any]:
        """The page's answer.

        Raises:
            MsdcError: it was refused, or the page reports an error.
        """
        if self.refused is not None:
            raise MsdcError(self.refused)
        if not isinstance(self.answer, dict):
            raise MsdcError("the page's answer is not an object")
        if "error" in self.answer:
            raise MsdcError(" ".join(str(self.answer["error"]).split())[:300])
        return self.answer


def json_bytes(value: Any) -> bytes:
    """JSON for a page."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
