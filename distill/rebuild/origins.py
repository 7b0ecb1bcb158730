"""The files of an origin: from local copies, or downloaded once into the user's cache and checked.

A local copy is a folder, a git repository (bare or not; read at the commit) or an archive. Only the files that are read
are taken, into a folder of their own; nothing of a source is run.
"""

from __future__ import annotations

import fnmatch
import functools
import glob
import hashlib
import io
import lzma
import re
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from msdc.distill.data.download import corpus_cache
from msdc.distill.rebuild.source_list import Origin
from msdc.distill.rebuild.transfer import apt_package, download, pypi_file
from msdc.errors import InputError
from msdc.files import disk_errors, locked, sha256_file, staged_folder
from msdc.progress import say

MAX_FILE_BYTES = 2 << 30
ARCHIVES = (".tar.gz", ".tgz", ".zip", ".whl", ".deb", ".tar.xz", ".tar")
Member = tuple[str, Callable[[], bytes]]


class Missing(InputError):
    """A source that cannot be had."""


def is_pattern(path: str) -> bool:
    """Whether a path of the source list is a glob."""
    return any(sign in path for sign in "*?[")


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a file of a source is one of those that are read."""
    return any(name == pattern or (is_pattern(pattern) and fnmatch.fnmatchcase(name, pattern)) for pattern in patterns)


def _safe(name: str) -> str:
    parts = [part for part in PurePosixPath(name).parts if part not in (".", "/")]
    if not parts or ".." in parts:
        raise InputError(f"{name[:80]}: a file name that leads out of its archive")
    return "/".join(parts)


def _bounded(stream: IO[bytes] | None, name: str) -> bytes:
    raw = stream.read(MAX_FILE_BYTES + 1) if stream is not None else b""
    if len(raw) > MAX_FILE_BYTES:
        raise InputError(f"{name}: larger than {MAX_FILE_BYTES >> 30} GiB")
    return raw


def _deb_tar(path: Path) -> tarfile.TarFile:
    """The data archive in a Debian package, which is an `ar` archive."""
    raw = path.read_bytes()
    if not raw.startswith(b"!<arch>\n"):
        raise InputError(f"{path.name}: not a Debian package")
    at = 8
    while at + 60 <= len(raw):
        name, size = raw[at : at + 16].decode("ascii", "replace").strip(), int(raw[at + 48 : at + 58])
        if name.startswith("data.tar"):
            return tarfile.open(fileobj=io.BytesIO(raw[at + 60 : at + 60 + size]))
        at += 60 + size + size % 2
    raise InputError(f"{path.name}: a Debian package without data")


def archive_members(path: Path) -> Iterator[Member]:
    """(name, reader of the bytes) of an archive's files; the one folder above all files of a snapshot stays.

    Raises:
        InputError: not an archive that can be read.
    """
    try:
        if path.suffix in (".zip", ".whl"):
            with zipfile.ZipFile(path) as content:
                for info in content.infolist():
                    if not info.is_dir():

                        def read(info: zipfile.ZipInfo = info) -> bytes:
                            with content.open(info) as stream:
                                return _bounded(stream, info.filename)

                        yield info.filename, read
            return
        with _deb_tar(path) if path.suffix == ".deb" else tarfile.open(path) as tar:
            for member in tar:
                if member.isfile():
                    yield (
                        member.name.removeprefix("./"),
                        lambda m=member: _bounded(tar.extractfile(m), m.name),  # type: ignore[misc]
                    )
    except (zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, EOFError, NotImplementedError, ValueError) as error:
        raise InputError(f"{path.name}: not an archive that can be read ({error})") from error


def _folder_members(folder: Path) -> Iterator[Member]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path.read_bytes


def _git_folder(folder: Path) -> Path | None:
    for place in (folder / ".git", folder, folder / "repo" / ".git", folder / "repo"):
        if (place / "HEAD").is_file() and (place / "objects").is_dir():
            return place
    return None


def _git_members(repository: Path, commit: str | None, name: str) -> Iterator[Member]:
    """Files of a repository at a commit, or at its newest one where it does not have that."""

    def git(*arguments: str) -> bytes:
        done = subprocess.run(["git", f"--git-dir={repository}", *arguments], capture_output=True, check=False)
        if done.returncode:
            raise InputError(f"{name}: {done.stderr.decode('utf-8', 'replace').strip()[:160]}")
        return done.stdout

    if shutil.which("git") is None:
        raise Missing(f"{name}: a git repository, and git is not installed")
    try:
        git("cat-file", "-e", f"{commit}^{{commit}}")
        at = str(commit)
    except InputError:
        at = "HEAD"
        say(f"warning: {name}: the local copy does not have commit {str(commit)[:10]}; its newest one is read")
    # One process for all files
    command = ["git", f"--git-dir={repository}", "cat-file", "--batch"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as objects:
        asked, answers = objects.stdin, objects.stdout
        assert asked is not None and answers is not None

        def read(blob: str, path: str) -> bytes:
            asked.write(f"{blob}\n".encode())
            asked.flush()
            head = answers.readline().split()
            if len(head) != 3 or not head[2].isdigit():  # "ID missing" of a partial clone
                raise Missing(f"{name}: the local copy lacks {path}")
            raw = answers.read(int(head[2]))
            answers.read(1)
            return raw

        for line in git("ls-tree", "-r", "-z", at).decode("utf-8", "replace").split("\0"):
            kind, _, path = line.partition("\t")
            if path and " blob " in kind:
                yield path, functools.partial(read, kind.split()[2], path)
        asked.close()


def local_copy(origin: Origin, sources: Path) -> Iterator[Member] | None:
    """The files of a local copy below `sources`; None where it has none."""
    name = str(getattr(origin, origin.kind))
    stems = [name.replace("/", "+")]
    if origin.version:
        version = origin.version.replace(":", "%3a")
        stems += [f"{stems[0]}-{origin.version}", f"{stems[0]}_{version}", f"{stems[0].lstrip('@')}-{origin.version}"]
    if origin.url is not None:
        stems = [PurePosixPath(name).name]
    for stem in stems:
        folder = sources / stem
        if folder.is_dir():
            repository = _git_folder(folder)
            return _git_members(repository, origin.commit, stem) if repository else _folder_members(folder)
        if folder.is_file():
            return archive_members(folder)
        for path in sorted(sources.glob(f"{glob.escape(stem)}*")):
            if path.is_file() and path.name.endswith(ARCHIVES) and path.name[len(stem) :][:1] in (".", "-", "_"):
                return archive_members(path)
    return None


def _inner(members: Iterable[Member], wanted: Sequence[str], strip: bool) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of the files that `wanted` names, with those inside of zip and tar archives (`path!member`)."""
    outer = {path.partition("!")[0] for path in wanted}
    for found, read in members:
        name = found.partition("/")[2] if strip else found
        if not matches(name, outer):
            continue
        try:
            raw = read()
        except Missing as error:
            say(f"warning: {error}")
            continue
        if matches(name, [path for path in wanted if "!" not in path]):
            yield _safe(name), raw
        inside = [path.partition("!")[2] for path in wanted if "!" in path and matches(name, [path.partition("!")[0]])]
        if inside:
            try:
                with zipfile.ZipFile(io.BytesIO(raw)) as content:
                    for info in content.infolist():
                        if matches(info.filename, inside):
                            with content.open(info) as stream:
                                yield _safe(f"{name}!/{info.filename}"), _bounded(stream, info.filename)
            except zipfile.BadZipFile as error:
                raise InputError(f"{name}: not a zip archive ({error})") from error


def digest(folder: Path) -> str:
    """Sha256 of the list of a folder's files, as `sha256sum FILES | sha256sum` prints it."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    lines = "".join(f"{sha256_file(folder / name)}  {name}\n" for name in names)
    return hashlib.sha256(lines.encode()).hexdigest()


def _downloaded(origin: Origin, wanted: Sequence[str]) -> tuple[Iterator[Member], bool]:
    """Files of a downloaded origin, and whether they lie below one folder that is to be removed from their names."""
    cache = corpus_cache() / "sources"
    if origin.github is not None:
        base = f"{origin.github}/{origin.commit}"
        whole = [path.partition("!")[0] for path in wanted]
        if not any(map(is_pattern, whole)) and len(set(whole)) <= 40:
            files = {
                path: download(f"https://raw.githubusercontent.com/{base}/{path}", cache / "raw" / base / path)
                for path in dict.fromkeys(whole)
            }
            return ((path, file.read_bytes) for path, file in files.items()), False
        url = f"https://codeload.github.com/{origin.github}/tar.gz/{origin.commit}"
        return archive_members(download(url, cache / f"{base.replace('/', '+')}.tar.gz")), True
    if origin.npm is not None:
        short = origin.npm.rsplit("/", 1)[-1]
        url = f"https://registry.npmjs.org/{origin.npm}/-/{short}-{origin.version}.tgz"
        return archive_members(download(url, cache / f"{short}-{origin.version}.tgz")), True
    if origin.pypi is not None:
        return archive_members(pypi_file(origin.pypi, str(origin.version), cache)), False
    if origin.debian is not None:
        return archive_members(apt_package(origin.debian, str(origin.version), cache)), False
    name = PurePosixPath(str(origin.url)).name
    file = download(str(origin.url), cache / name)
    return (archive_members(file) if name.endswith(ARCHIVES) else iter([(name, file.read_bytes)])), False


def take_files(origin: Origin, wanted: Sequence[str], sources: Path | None) -> Path:
    """A folder with the files of an origin that `wanted` names, checked; those of zip members are `path!/member`.

    Raises:
        Missing: the source cannot be had, or lacks a file.
        InputError: its files are other ones than those that the source list was made with.
    """
    given = local_copy(origin, sources) if sources is not None else None
    if sources is not None and given is None:
        raise Missing(f"{origin}: no copy in {sources}")
    key = hashlib.sha256(f"{origin}{origin.commit}{sorted(set(wanted))}".encode()).hexdigest()[:16]
    folder = corpus_cache() / "sources" / "files" / f"{re.sub(r'[^A-Za-z0-9.@]+', '-', str(origin))}-{key}"
    # What was downloaded is kept; a local copy may change, so it is read anew.
    if given is None and folder.is_dir() and (origin.sha256 is None or digest(folder) == origin.sha256):
        return folder
    members, strip = (given, False) if given is not None else _downloaded(origin, wanted)
    if given is not None and origin.npm is not None:
        strip = True
    with (
        disk_errors(folder),
        locked(folder.with_name(f"{folder.name}.lock")),
        staged_folder(folder, force=True) as stage,
    ):
        for name, raw in _inner(members, wanted, strip):
            place = stage / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(raw)
        lacking = [path for path in dict.fromkeys(wanted) if not find_files(stage, path)]
        if lacking:
            raise Missing(f"{origin}: without {lacking[0]}")
        if origin.sha256 is not None and (have := digest(stage)) != origin.sha256:
            text = f"{origin}: other files than expected (sha256 {have[:16]}, expected {origin.sha256[:16]})"
            if sources is None:
                raise InputError(text)
            say(f"warning: {text}; the local copy is read")
    return folder


def find_files(folder: Path, path: str) -> list[Path]:
    """The taken files that a path of the source list names, by name."""
    wanted = path.replace("!", "!/")
    if not is_pattern(wanted):
        return [folder / wanted] if (folder / wanted).is_file() else []
    names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    return [folder / name for name in names if fnmatch.fnmatchcase(name, wanted)]
