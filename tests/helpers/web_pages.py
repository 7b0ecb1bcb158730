"""Pages in a real headless Chromium that post their answer to a server of the test."""

import contextlib
import http.server
import json
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pytest

from msdc.bench.devices.web.browser import engine_of, opened
from msdc.errors import MsdcError

TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".mjs": "text/javascript",
         ".json": "application/json", ".wasm": "application/wasm"}  # fmt: skip
ANSWER_S = 900  # only a page that hangs waits for so long; a busy machine may need minutes


class Reply(NamedTuple):
    """What is sent in place of a file: `length` is announced, None for the content's own."""

    status: int = 200
    content: bytes = b""
    headers: Mapping[str, str] = {}
    length: int | None = None


class Site:
    """A server on loopback: folders by their first path part, one POST address for answers.

    `change(name, content)` may replace what is sent for a file, `reply(name, query, headers)` the whole answer, where
    it gives one; `asked` lists the paths of all requests; `headers` are sent with the files of one folder, or with one
    file.
    """

    def __init__(self, folders: dict[str, Path]) -> None:
        self.folders = folders
        self.change: Callable[[str, bytes], bytes] = lambda name, content: content
        self.reply: Callable[[str, str, Mapping[str, str]], Reply | None] = lambda name, query, headers: None
        self.asked: list[str] = []
        self.headers: dict[str, dict[str, str]] = {}
        self.answers: queue.Queue[Any] = queue.Queue()
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                address = urlsplit(self.path)
                name = unquote(address.path).lstrip("/")
                site.asked.append(name)
                top, _, rest = name.partition("/")
                path = site.folders.get(top, Path("/nowhere")) / rest
                if (reply := site.reply(name, address.query, self.headers)) is not None:
                    self.send(reply, {"Access-Control-Allow-Origin": "*"})
                    return
                if ".." in name or not path.is_file():
                    self.send_error(404)
                    return
                content = site.change(name, path.read_bytes())
                usual = {"Content-Type": TYPES.get(path.suffix, "application/octet-stream")}
                self.send(Reply(200, content), usual | site.headers.get(top, {}) | site.headers.get(name, {}))

            def send(self, reply: Reply, headers: Mapping[str, str]) -> None:
                self.send_response(reply.status)
                length = {"Content-Length": str(len(reply.content) if reply.length is None else reply.length)}
                for key, value in (
                    {"Cache-Control": "no-store"} | length | dict(headers) | dict(reply.headers)
                ).items():
                    self.send_header(key, value)
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(reply.content)

            def do_OPTIONS(self) -> None:
                allowed = {"Access-Control-Allow-Headers": "*, Authorization"}
                self.send(Reply(204, headers=allowed), {"Access-Control-Allow-Origin": "*"})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                site.answers.put(json.loads(body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/{path}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@contextlib.contextmanager
def site(**folders: Path) -> Iterator[Site]:
    opened = Site(folders)
    try:
        yield opened
    finally:
        opened.close()


def answer_of_engine(site: Site, path: str, name: str) -> Any:
    """What the page at `path` posts, in a fresh profile of the browser called `name`; an object with `error` fails."""
    engine = engine_of(name)
    try:
        engine.program()
    except MsdcError as error:
        pytest.skip(str(error))
    with opened(engine, site.url(path)):
        answer = site.answers.get(timeout=ANSWER_S)
    assert "error" not in answer, answer["error"]
    return answer
