"""OPUS over a real HTTP server on the loopback, the hub by its own cache; what a run downloads is recorded."""

import concurrent.futures
import functools
import hashlib
import http.server
import io
import json
import random
import shutil
import threading
import zipfile
from pathlib import Path
from typing import ClassVar

import pytest

from msdc.distill import distill
from msdc.distill.catalog import parse_recipe
from msdc.distill.data import download as remote
from msdc.distill.data.corpora import open_corpus
from msdc.distill.inputs import record_downloads
from msdc.distill.recipe import Corpus
from msdc.encoders.folder import locate_model
from msdc.errors import InputError


class Handler(http.server.SimpleHTTPRequestHandler):
    """Sends files, and their ends; keeps what was asked for."""

    asked: ClassVar[list[str | None]] = []
    fault: ClassVar[str] = ""  # "cut" or "chunked": the connection ends early; "shifted": from another position

    def do_GET(self) -> None:
        requested_range, file = self.headers.get("Range"), Path(self.translate_path(self.path))
        tag = f'"{hashlib.md5(file.read_bytes()).hexdigest()}"' if file.is_file() else ""
        self.asked.append(requested_range)
        if not file.is_file():
            return self.send_error(404)
        if self.headers.get("If-Range", tag) != tag:
            requested_range = None
        raw = file.read_bytes()
        start = int(requested_range.removeprefix("bytes=").removesuffix("-")) if requested_range else 0
        if start and start >= len(raw):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(raw)}")
            return self.end_headers()
        start -= start > 0 and self.fault == "shifted"
        rest = raw[start:]
        self.send_response(206 if requested_range else 200)
        self.send_header("ETag", tag)
        if requested_range:
            self.send_header("Content-Range", f"bytes {start}-{len(raw) - 1}/{len(raw)}")
        if self.fault == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            return self.wfile.write(b"%x\r\n%s\r\n" % (len(rest) // 2, rest[: len(rest) // 2]))
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        return self.wfile.write(rest[: len(rest) // 2] if self.fault == "cut" else rest)


@pytest.fixture
def opus(tmp_path, monkeypatch):
    """A loopback server laid out as OPUS is; yields its folder."""
    folder = tmp_path / "served"
    handler = functools.partial(Handler, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(remote, "OPUS_URL", base + "/OPUS-{name}/{version}/moses/{pair}.txt.zip")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    moses = folder / "OPUS-Talks" / "v1" / "moses"
    moses.mkdir(parents=True)
    yield moses
    Handler.fault = ""
    server.shutdown()
    server.server_close()


def write_zip(path, files):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    path.write_bytes(data.getvalue())


def test_a_download_goes_on_where_it_stopped(opus, tmp_path):
    (opus / "text.txt").write_bytes(b"0123456789")
    url = remote.OPUS_URL.partition("/OPUS-")[0] + "/OPUS-Talks/v1/moses/text.txt"
    tag = f'"{hashlib.md5(b"0123456789").hexdigest()}"'
    # The part is of this version, of another one, or of none that is known.
    for version, asked in ((tag, "bytes=5-"), ('"old"', "bytes=5-"), ("", None)):
        (tmp_path / ".text.txt.part").write_bytes(b"01234" if version == tag else b"abcde")
        (tmp_path / ".text.txt.version").write_text(version)
        Handler.asked.clear()
        for _ in range(2):  # the second time it is there
            assert remote.download(url, tmp_path / "text.txt").read_bytes() == b"0123456789"
        assert Handler.asked == [asked]
        assert [path.name for path in tmp_path.glob(".text*")] == []
        (tmp_path / "text.txt").unlink()


@pytest.mark.parametrize(
    ("fault", "problem"), [("cut", "ended early"), ("chunked", "ended early"), ("shifted", "another part of the file")]
)
def test_a_download_that_fails_is_one_line_and_the_next_is_right(opus, tmp_path, monkeypatch, fault, problem):
    (opus / "text.txt").write_bytes(raw := bytes(range(256)) * 40)
    url, target = remote.OPUS_URL.partition("/OPUS-")[0] + "/OPUS-Talks/v1/moses/text.txt", tmp_path / "text.txt"
    monkeypatch.setattr(Handler, "protocol_version", "HTTP/1.1")
    tag = f'"{hashlib.md5(raw).hexdigest()}"'
    (tmp_path / ".text.txt.part").write_bytes(raw[:100])
    (tmp_path / ".text.txt.version").write_text(tag)
    Handler.fault = fault
    for _ in range(2 if fault != "shifted" else 1):
        with pytest.raises(InputError, match=problem) as error:
            remote.download(url, target)
        assert "\n" not in str(error.value)
        assert not target.exists()
    Handler.fault = ""
    assert remote.download(url, target).read_bytes() == raw


def test_a_part_that_is_complete_needs_no_second_download(opus, tmp_path):
    """A process killed before the last rename; and a part that is longer than the file."""
    (opus / "text.txt").write_bytes(b"0123456789")
    url, target = remote.OPUS_URL.partition("/OPUS-")[0] + "/OPUS-Talks/v1/moses/text.txt", tmp_path / "text.txt"
    tag = f'"{hashlib.md5(b"0123456789").hexdigest()}"'
    for part, asked in ((b"0123456789", ["bytes=10-"]), (b"0123456789ab", ["bytes=12-", None])):
        (tmp_path / ".text.txt.part").write_bytes(part)
        (tmp_path / ".text.txt.version").write_text(tag)
        Handler.asked.clear()
        assert remote.download(url, target).read_bytes() == b"0123456789"
        assert Handler.asked == asked
        target.unlink()


def test_processes_that_download_to_one_path_wait_for_the_first(opus, tmp_path):
    (opus / "text.txt").write_bytes(raw := bytes(range(256)) * 20_000)
    url, target = remote.OPUS_URL.partition("/OPUS-")[0] + "/OPUS-Talks/v1/moses/text.txt", tmp_path / "text.txt"
    Handler.asked.clear()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        paths = [*pool.map(lambda _: remote.download(url, target), range(4))]
    assert [path.read_bytes() == raw for path in paths] == [True] * 4
    assert Handler.asked == [None]


def test_damaged_archives_are_one_line(opus, tmp_path):
    """Flipped bytes anywhere: lengths, methods, flags, compressed data, checksums."""
    text = "".join(f"Sentence number {n}.\n" for n in range(300))
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for code in ("de", "en"):
            archive.writestr(f"Talks.de-en.{code}", text)
    raw, generator, refused = data.getvalue(), random.Random(0), 0
    for _ in range(300):
        damaged = bytearray(raw)
        for position in generator.sample(range(len(raw)), 3):
            damaged[position] = generator.randrange(256)
        (opus / "de-en.txt.zip").write_bytes(bytes(damaged) if generator.random() < 0.9 else raw[: len(raw) // 2])
        try:
            remote.fetch_opus(Corpus(opus="Talks/v1", languages=["de"]))
        except InputError as error:
            assert "\n" not in str(error)
            refused += 1
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    assert refused > 100


def test_opus_pair_is_fetched_once_and_read(opus):
    write_zip(
        opus / "de-en.txt.zip", {"Talks.de-en.en": "Yes.\nNo.\n", "Talks.de-en.de": "Ja.\nNein.\n", "README": "x"}
    )
    corpus = Corpus(opus="Talks/v1", languages=["de"])
    for _ in range(2):
        (source,) = open_corpus(corpus)
        assert [(r.source, r.target, r.language) for r in source.read()] == [
            ("Yes.", "Ja.", "de"),
            ("No.", "Nein.", "de"),
        ]
        (opus / "de-en.txt.zip").unlink(missing_ok=True)


def test_opus_names_that_are_not_there_or_not_archives(opus):
    with pytest.raises(InputError, match="cannot be fetched"):
        open_corpus(Corpus(opus="Talks/v9", languages=["de"]))
    (opus / "en-fr.txt.zip").write_bytes(b"not a zip")
    with pytest.raises(InputError, match="not a zip archive"):
        open_corpus(Corpus(opus="Talks/v1", languages=["fr"]))
    write_zip(opus / "en-nl.txt.zip", {"../evil.en": "x\n", "evil.nl": "x\n"})
    with pytest.raises(InputError, match="does not contain exactly one"):
        open_corpus(Corpus(opus="Talks/v1", languages=["nl"]))
    with pytest.raises(InputError, match="expected NAME/VERSION"):
        open_corpus(Corpus(opus="Talks", languages=["nl"]))


def test_an_opus_pair_that_is_not_there_is_skipped_with_a_warning(opus, capsys, monkeypatch):
    write_zip(opus / "de-en.txt.zip", {"Talks.de-en.en": "Yes.\n", "Talks.de-en.de": "Ja.\n"})
    (source,) = open_corpus(Corpus(opus="Talks/v1", languages=["de", "tr"]))
    assert source.language == "de"
    assert "warning: OPUS corpus Talks/v1 en-tr: http" in capsys.readouterr().err
    # A server that does not answer at all is an error.
    monkeypatch.setattr(remote, "OPUS_URL", "http://127.0.0.1:9/{name}/{version}/{pair}")
    with pytest.raises(InputError, match="en-tr: cannot be fetched"):
        open_corpus(Corpus(opus="Talks/v1", languages=["de", "tr"]))


def test_hub_files_keep_their_language(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: str(tmp_path / "set"))
    for code in ("de", "fr"):
        (tmp_path / "set" / f"en-{code}").mkdir(parents=True)
        (tmp_path / "set" / f"en-{code}" / "train-00000.tsv").write_text(f"Yes.\t{code}\n")
    (source,) = open_corpus(Corpus(hub="owner/parallel", languages=["fr"]))
    assert (source.language, source.why) == ("fr", "by its folder")
    assert [(row.source, row.target) for row in source.read()] == [("Yes.", "fr")]
    # Files that are not named by the pair are left to the `datasets` library.
    assert remote.fetch_hub(Corpus(hub="owner/parallel", languages=["tr"])) == []


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def talks(opus):
    english = "".join(f"Sentence number {n}.\n" for n in range(40))
    german = "".join(f"Satz Nummer {n}.\n" for n in range(40))
    write_zip(opus / "de-en.txt.zip", {"Talks.de-en.en": english, "Talks.de-en.de": german})
    return {"de-en.en": sha(english), "de-en.de": sha(german)}


def test_a_run_records_its_opus_files_and_says_what_changed(talks, tiny_tree, tmp_path, capsys):
    tiny_tree["corpora"] = [{"opus": "Talks/v1", "languages": ["de"]}]
    tiny_tree["stages"] = [{**tiny_tree["stages"][0], "steps": 2}]
    tiny_tree["assistant"]["vocabulary"]["train"] = 120
    tiny_tree["student"] = None
    recipe = parse_recipe(tiny_tree, "tiny")
    distill(recipe, tmp_path / "run")
    assert json.loads((tmp_path / "run" / "downloads.json").read_text()) == {"opus Talks/v1": {"files": talks}}
    assert "changed" not in capsys.readouterr().err
    (file,) = (tmp_path / "cache").rglob("de-en.de")
    file.write_text(file.read_text().replace("Satz", "Sitz"))
    distill(recipe, tmp_path / "run", resume=True)
    messages = capsys.readouterr().err
    assert messages.count("warning: opus Talks/v1: changed since this run started: de-en.de (see") == 1, messages


def test_a_recipe_of_local_files_records_nothing(tiny_tree, tmp_path):
    record_downloads(parse_recipe(tiny_tree, "tiny"), tmp_path)
    assert list(tmp_path.glob("downloads.json")) == []


@pytest.fixture
def hub(tmp_path, monkeypatch, tiny_teacher):
    """The hub's own client over a cache with a data set and a model, each in two revisions; no network."""
    import huggingface_hub

    commits = {"main": "a" * 40, "v2": "b" * 40}
    for kind, name in (("datasets", "me--pairs"), ("models", "me--teacher")):
        root = tmp_path / "hub" / f"{kind}--{name}"
        for ref, commit in commits.items():
            folder = root / "snapshots" / commit
            if kind == "models":
                shutil.copytree(tiny_teacher, folder)
            else:
                folder.mkdir(parents=True)
                # As in the hub's cache: a snapshot is made of links to blobs.
                (root / "blobs").mkdir(exist_ok=True)
                (root / "blobs" / ref).write_text(f"one {ref}\teins {ref}\n")
                (folder / "en-de-train.tsv").symlink_to(f"../../blobs/{ref}")
            (root / "refs").mkdir(exist_ok=True)
            (root / "refs" / ref).write_text(commit)
    real = huggingface_hub.snapshot_download

    def cached(*names, **options):
        return real(*names, **{**options, "cache_dir": tmp_path / "hub", "local_files_only": True})

    monkeypatch.setattr(huggingface_hub, "snapshot_download", cached)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return commits


def rows(name):
    return [row.source for source in open_corpus(Corpus(hub=name, languages=["de"])) for row in source.read()]


@pytest.mark.parametrize(("pin", "ref"), [("", "main"), ("@v2", "v2"), ("@" + "b" * 40, "v2")])
def test_a_revision_pins_data_sets_and_models(hub, pin, ref):
    assert rows(f"me/pairs{pin}") == [f"one {ref}"]
    assert locate_model(f"me/teacher{pin}").name == hub[ref]


def test_a_revision_that_is_not_there(hub):
    for name in ("me/pairs@v3", "me/pairs@" + "c" * 40):
        with pytest.raises(InputError, match="cannot be fetched"):
            rows(name)
    with pytest.raises(InputError, match="not found on the hub"):
        locate_model("me/teacher@v3")


def test_hub_files_are_recorded_with_their_revision(hub, tiny_tree, tmp_path):
    tiny_tree["corpora"] = [{"hub": "me/pairs@v2", "languages": ["de"]}]
    tiny_tree["teacher"] = "me/teacher@v2"
    record_downloads(parse_recipe(tiny_tree, "tiny"), tmp_path)
    records = json.loads((tmp_path / "downloads.json").read_text())
    assert records.keys() == {"hub me/pairs@v2", "model me/teacher@v2"}
    data = records["hub me/pairs@v2"]
    assert data["revision"] == hub["v2"]
    assert list(data["files"].values()) == [sha("one v2\teins v2\n")]
    model = records["model me/teacher@v2"]
    assert model["revision"] == hub["v2"]
    assert {"model.safetensors", "config.json"} <= model["files"].keys()
