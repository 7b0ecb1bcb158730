"""A loopback server laid out as OPUS is."""

import functools
import http.server
import io
import threading
import zipfile

import pytest

from msdc.distill.data import download as remote


@pytest.fixture
def opus(tmp_path, monkeypatch):
    """A loopback server laid out as OPUS is; yields its folder."""
    folder = tmp_path / "served"
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(remote, "OPUS_URL", base + "/OPUS-{name}/{version}/moses/{pair}.txt.zip")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    moses = folder / "OPUS-Talks" / "v1" / "moses"
    moses.mkdir(parents=True)
    yield moses
    server.shutdown()
    server.server_close()


def write_zip(path, files):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    path.write_bytes(data.getvalue())
