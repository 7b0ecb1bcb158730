"""The server of examples/server, run by uvicorn with two workers."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

import msdc

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install '.[test]'")
pytest.importorskip("uvicorn", reason="uvicorn is not installed: pip install '.[test]'")
WORKERS = 2
START_S = 120


class Server:
    """Requests to the server at a port."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, method: str, path: str, body: object = None, **query: object) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        url = f"{self.url}{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=START_S) as answer:
                status, content = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, content = error.code, error.read()
        return status, json.loads(content) if content else None

    def notes_by_worker(self, log: Path | None = None) -> dict[int, int]:
        """Process -> its number of notes, asked until every worker has answered."""
        counts: dict[int, int] = {}
        end = time.monotonic() + START_S
        with ThreadPoolExecutor(8) as threads:
            while len(counts) < WORKERS:
                assert time.monotonic() < end, log and log.read_text()
                with contextlib.suppress(OSError):  # while they start
                    for _, facts in threads.map(lambda _: self.ask("GET", "/health"), range(16)):
                        counts[facts["process"]] = facts["notes"]
                time.sleep(0.1)
        return counts

    def search(self, query: str) -> list[str]:
        return [hit["text"] for hit in self.ask("GET", "/search", query=query)[1]]


@contextlib.contextmanager
def running(index: Path) -> Iterator[Server]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "--app-dir", ROOT / "examples/server", "app:app",
               "--port", str(port), "--workers", str(WORKERS), "--log-level", "warning"]  # fmt: skip
    environment = os.environ | {"NOTES_INDEX": str(index), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONSAFEPATH", None)
    log = index.with_name("server.log")
    with open(log, "w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)
        try:
            server = Server(port)
            server.notes_by_worker(log)
            yield server
        finally:
            process.terminate()
            try:
                process.wait(START_S)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def test_two_hundred_requests_at_once(tmp_path):
    """Two workers write and search; both have what a dictionary has."""
    with running(tmp_path / "notes.sqlite") as server:
        assert server.ask("POST", "/notes", {"text": "The car is on level 2."})[0] == 201
        expected = {f"n{number}": f"note {number} about town {number % 7}" for number in range(60)}
        requests: list[tuple[str, str, dict[str, str] | None, dict[str, object]]]
        requests = [("PUT", f"/notes/{key}", {"text": text}, {}) for key, text in expected.items()]
        requests += [("POST", "/notes", {"text": f"another note {number}"}, {}) for number in range(40)]
        requests += [("GET", "/search", None, {"query": "Wo ist das Auto?"}) for _ in range(80)]
        requests += [("GET", "/health", None, {}) for _ in range(20)]
        random.Random(1).shuffle(requests)
        with ThreadPoolExecutor(16) as threads:
            answers = list(threads.map(lambda request: server.ask(*request[:3], **request[3]), requests))
        for (method, path, body, _), (status, answer) in zip(requests, answers, strict=True):
            assert status == (201 if method == "POST" else 200), answer
            if path == "/search":
                assert answer[0]["text"] == "The car is on level 2."
            if method == "POST":
                expected[answer["id"]] = body["text"]
        edited, deleted = list(expected)[:10], list(expected)[10:20]
        with ThreadPoolExecutor(16) as threads:
            list(threads.map(lambda key: server.ask("PUT", f"/notes/{key}", {"text": f"changed {key}"}), edited))
            statuses = list(threads.map(lambda key: server.ask("DELETE", f"/notes/{key}")[0], deleted * 2))
        assert sorted(statuses) == [204] * 10 + [404] * 10
        expected |= {key: f"changed {key}" for key in edited}
        for key, text in expected.items():
            status, note = server.ask("GET", f"/notes/{key}")
            assert (status, note and note.get("text")) == ((404, None) if key in deleted else (200, text))
        assert {*server.notes_by_worker().values()} == {1 + len(expected) - len(deleted)}
        assert server.search("lattice quantum chromodynamics") == []


def test_bad_requests_change_nothing(tmp_path):
    with running(tmp_path / "notes.sqlite") as server:
        assert server.ask("PUT", "/notes/a", {"text": "a note"})[0] == 200
        for body in ({"text": ""}, {"text": " \n"}, {"text": "a" * 20_001}, {"title": "a"}, [], {"text": 1}):
            assert server.ask("PUT", "/notes/a", body)[0] == 422, body
            assert server.ask("POST", "/notes", body)[0] == 422, body
        for query in (
            {},
            {"query": " "},
            {"query": "a" * 1001},
            {"query": "a", "top": 0},
            {"query": "a", "offset": -1},
        ):
            assert server.ask("GET", "/search", **query)[0] == 422, query
        status, answer = server.ask("PUT", "/notes/%00", {"text": "a"})
        assert (status, "NUL character" in answer["detail"]) == (422, True)
        assert server.ask("GET", "/notes/b")[0] == server.ask("DELETE", "/notes/b")[0] == 404
        assert server.ask("GET", "/notes/a") == (200, {"id": "a", "text": "a note", "title": ""})


def test_a_worker_that_is_killed_loses_nothing_that_it_confirmed(tmp_path):
    with running(tmp_path / "notes.sqlite") as server:
        victim = min(server.notes_by_worker())

        def put(number: int) -> str | None:
            if number == 20:
                os.kill(victim, signal.SIGKILL)
            with contextlib.suppress(OSError, HTTPException):
                if server.ask("PUT", f"/notes/{number}", {"text": f"note {number}"})[0] == 200:
                    return str(number)
            return None

        with ThreadPoolExecutor(4) as threads:
            confirmed = {key for key in threads.map(put, range(60)) if key}
        assert len(confirmed) > 20
        for key in confirmed:
            assert server.ask("GET", f"/notes/{key}") == (200, {"id": key, "text": f"note {key}", "title": ""})


def test_an_index_of_another_model_is_encoded_again(tmp_path):
    with msdc.open_index(tmp_path / "notes.sqlite", "msdc-nano") as index:
        index.add(["The car is on level 2.", "La reunión empieza a las nueve.", *(f"note {n}" for n in range(300))])
    with running(tmp_path / "notes.sqlite") as server:
        assert server.search("Wo ist das Auto?")[0] == "The car is on level 2."
        assert server.ask("GET", "/health")[1]["model"] == "msdc-mini"
