"""`msdc push` with the real client library against a server on the loopback that speaks the hub's protocol."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from msdc.commands.push import planned, pushable
from msdc.errors import InputError


class Hub(ThreadingHTTPServer):
    """Keeps the files of commits; uploads are answered with `status`."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.created: list[dict] = []
        self.files: dict[str, bytes] = {}
        self.tokens: set[str | None] = set()


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *args):
        pass

    def answer(self, value, status=200):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer({"id": "me/mine", "sha": "0" * 40, "siblings": []})

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.tokens.add(self.headers.get("Authorization"))
        if self.path == "/api/repos/create":
            self.server.created.append(json.loads(raw))
            url = f"http://127.0.0.1:{self.server.server_port}/me/mine"
            self.answer({"url": url, "name": "me/mine", "id": "1"})
        elif self.path == "/api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        elif self.server.status != 200:
            self.answer({"error": "no"}, self.server.status)
        elif "/preupload/" in self.path:
            files = json.loads(raw)["files"]
            self.answer({"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files]})
        elif "/commit/" in self.path:
            for line in map(json.loads, raw.splitlines()):
                if line["key"] == "file":
                    self.server.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            url = f"http://127.0.0.1:{self.server.server_port}/me/mine/commit/1"
            self.answer({"commitUrl": url, "commitOid": "1", "success": True})
        else:
            self.answer({"error": f"unexpected {self.path}"}, 404)


@pytest.fixture
def hub():
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "runs" / "first" / "student"
    (folder / "stock").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "README.md").write_text("# mine\n")
    (folder / "stock" / "model.safetensors").write_bytes(b"weights")
    (folder / ".x.partial").write_text("left over")
    return folder


def push(hub, tmp_path, *words, token="hf_test"):
    settings = {
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
        "HF_HOME": str(tmp_path / "home"),
        "HF_TOKEN": token,
    }
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")} | settings
    command = [sys.executable, "-m", "msdc.cli", "push", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


def test_a_model_is_one_commit_of_its_files(hub, model, tmp_path):
    done = push(hub, tmp_path, model, "me/mine", "--private")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"http://127.0.0.1:{hub.server_port}/me/mine/commit/1"
    assert {name: (model / name).read_bytes() for name in hub.files} == hub.files
    assert sorted(hub.files) == ["README.md", "config.json", "stock/model.safetensors"]
    assert hub.created[0]["name"] == "mine" and hub.created[0].get("private", hub.created[0].get("visibility"))
    assert hub.tokens == {"Bearer hf_test"}


def test_a_hub_that_refuses_is_one_line(hub, model, tmp_path):
    hub.status = 403
    done = push(hub, tmp_path, model, "me/mine")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "me/mine: the hub refuses (403): run `hf auth login`" in done.stderr and not hub.files


def test_what_would_be_pushed(model, tmp_path):
    assert planned(pushable(model)) == {"README.md": 7, "config.json": 2, "stock/model.safetensors": 7}
    (model.parent / "recipe.yaml").write_text("")
    assert pushable(model.parent) == model  # of a run its student
    with pytest.raises(InputError, match="neither a model nor a bundle"):
        pushable(tmp_path)
    (model / "README.md").unlink()
    with pytest.raises(InputError, match=r"no README.md"):
        pushable(model)
