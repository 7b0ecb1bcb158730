"""A cached build or download is used only while every byte is as it was made."""

import shutil

import pytest

from msdc import cache


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def make(stage) -> None:
    (stage / "lib").mkdir()
    (stage / "program").write_bytes(b"good" * 1000)
    (stage / "lib/one.so").write_bytes(b"library")
    (stage / "lib/link.so").symlink_to("one.so")


def flip(path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def relink(path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


@pytest.mark.parametrize(
    "harm",
    [
        lambda folder: flip(folder / "program"),
        lambda folder: (folder / "program").write_bytes(b""),
        lambda folder: (folder / "program").unlink(),
        lambda folder: (folder / "lib/extra.so").write_bytes(b"preloaded"),
        lambda folder: relink(folder / "lib/link.so"),
        lambda folder: (folder / cache.CONTENTS).unlink(),
        lambda folder: (folder / cache.CONTENTS).write_text("[]"),
        lambda folder: (folder / cache.CONTENTS).write_text("{"),
        lambda folder: flip(folder / cache.STAMP),
        lambda folder: shutil.rmtree(folder / "lib"),
    ],
    ids=["flip", "empty", "missing", "added", "relinked", "unlisted", "list", "no-json", "stamp", "folder"],
)
def test_damage_means_made_anew_and_said_once(own_cache, capsys, harm):
    folder = cache.cached_folder("things", {"a": 1}, make)
    contents = cache.contents(folder)
    assert cache.cached_folder("things", {"a": 1}, lambda _: pytest.fail("made twice")) == folder
    assert capsys.readouterr().err == ""
    harm(folder)
    assert cache.cached_folder("things", {"a": 1}, make) == folder
    assert capsys.readouterr().err.count("rebuilt") == 1
    assert {k: v for k, v in cache.contents(folder).items()} == contents
    cache.cached_folder("things", {"a": 1}, lambda _: pytest.fail("made twice"))
