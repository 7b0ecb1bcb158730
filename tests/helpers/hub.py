"""A server with the interface of the Hugging Face hub for one repository, and the cache that its clients fill."""

import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def _handler(name: str, folder: Path, revisions: dict[str, str], asked: list[str], sizes: bool):
    class Handler(http.server.BaseHTTPRequestHandler):
        def _send(self, status: int, body: bytes = b"", kind: str = "application/json", **headers: str) -> None:
            self.send_response(status)
            for key, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
                self.send_header(key.replace("_", "-"), value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def _missing(self, code: str) -> None:
            self._send(404, b"{}", X_Error_Code=code)

        def do_GET(self) -> None:
            path = unquote(self.path.partition("?")[0])
            asked.append(path)
            api, files = f"/api/models/{name}", f"/{name}/resolve/"
            if path.startswith(f"{api}/revision/") or path == api:
                revision = path.removeprefix(api).removeprefix("/revision/") or "main"
                if revision not in revisions:
                    return self._missing("RevisionNotFound")
                listed = [
                    {"rfilename": p.relative_to(folder).as_posix()} | ({"size": p.stat().st_size} if sizes else {})
                    for p in folder.rglob("*")
                    if p.is_file()
                ]
                return self._send(
                    200, json.dumps({"id": name, "sha": revisions[revision], "siblings": listed}).encode()
                )
            if path.startswith(f"{api}/tree/"):
                entries = [
                    {"type": "file", "path": p.relative_to(folder).as_posix(), "size": p.stat().st_size,
                     "oid": hashlib.sha1(p.read_bytes()).hexdigest()}
                    for p in sorted(folder.rglob("*")) if p.is_file()
                ]  # fmt: skip
                return self._send(200, json.dumps(entries).encode())
            if path.startswith(files):
                revision, _, file = path.removeprefix(files).partition("/")
                if not (folder / file).is_file():
                    return self._missing("EntryNotFound")
                raw = (folder / file).read_bytes()
                tag = hashlib.sha1(raw).hexdigest()
                return self._send(200, raw, "application/octet-stream", ETag=f'"{tag}"',
                                  X_Repo_Commit=revisions.get(revision, revision))  # fmt: skip
            return self._missing("RepoNotFound")

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def hub(
    name: str, folder: Path, *, branches: dict[str, str] | None = None, sizes: bool = True
) -> Iterator[tuple[str, list[str]]]:
    """Address of a hub whose only repository `name` has the files of `folder`, and the paths that were asked for.

    `branches` maps names to commits, by default `main` to `COMMIT`. Without `sizes` only the tree states them.
    """
    revisions = {"main": COMMIT} if branches is None else branches
    revisions = revisions | {commit: commit for commit in revisions.values()}
    asked: list[str] = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(name, folder, revisions, asked, sizes))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def cached(folder: Path, cache: Path, name: str = "me/bundle") -> Path:
    """The snapshot of a repository with the files of `folder`, as the library lays it out: links to `blobs`."""
    root = cache / f"models--{name.replace('/', '--')}"
    snapshot, blobs = root / "snapshots" / COMMIT, root / "blobs"
    blobs.mkdir(parents=True)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            blob = blobs / hashlib.sha256(path.read_bytes()).hexdigest()
            blob.write_bytes(path.read_bytes())
            link = snapshot / path.relative_to(folder)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(Path(*[".."] * (len(link.relative_to(root).parts) - 1), "blobs", blob.name))
    (root / "refs").mkdir()
    (root / "refs/main").write_text(COMMIT)
    return snapshot
