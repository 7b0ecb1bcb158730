"""Pages in a real headless Chromium that post their answer to a server of the test."""

import contextlib
import http.server
import json
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from msdc.bench.devices.web.browser import engine_of, opened
from msdc.errors import MsdcError

TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".mjs": "text/javascript", ".json":
         "application/json", ".wasm": "application/wasm"}  # fmt: skip
ANSWER_S = 900  # only a page that hangs waits for so long; a busy machine may need minutes


class Site:
    """A server on loopback: folders by their first path part, one POST address for answers.

    `change(name, content)` may replace what is sent for a file; `asked` lists the paths of all requests; `headers` are
    sent with the files of one folder, or with one file.
    """

    def __init__(self, folders: dict[str, Path]) -> None:
        self.folders = folders
        self.change: Callable[[str, bytes], bytes] = lambda name, content: content
        self.asked: list[str] = []
        self.headers: dict[str, dict[str, str]] = {}
        self.answers: queue.Queue[Any] = queue.Queue()
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = unquote(urlsplit(self.path).path).lstrip("/")
                site.asked.append(name)
                top, _, rest = name.partition("/")
                path = site.folders.get(top, Path("/nowhere")) / rest
                if ".." in name or not path.is_file():
                    self.send_error(404)
                    return
                content = site.change(name, path.read_bytes())
                self.send_response(200)
                usual = {"Content-Type": TYPES.get(path.suffix, "application/octet-stream"),
                         "Content-Length": str(len(content)), "Cache-Control": "no-store"}  # fmt: skip
                for key, value in (usual | site.headers.get(top, {}) | site.headers.get(name, {})).items():
                    self.send_header(key, value)
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(content)

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
