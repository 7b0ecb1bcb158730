"""Files that are complete or absent: atomic writes, staged folders, hashes, bounded reads."""

from __future__ import annotations

import codecs
import contextlib
import errno
import glob
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from msdc.errors import DiskFullError, InputError, InUse, MsdcError

if TYPE_CHECKING:
    from filelock import BaseFileLock

# Everything that ships is below this folder, in a checkout (through its links) as in an installed package.
PACKAGE = Path(__file__).resolve().parent
MAX_JSON_BYTES = 64 * 1024 * 1024
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# A snapshot's repository in the cache of the Hugging Face hub.
_REPOSITORY = re.compile(r"(models|datasets|spaces)--.")
# Finder's, and its AppleDouble files next to every other one; Windows Explorer's; KDE's.
_SYSTEM_FILE = re.compile(r"\.DS_Store|\._.*|Thumbs\.db|ehthumbs\.db|desktop\.ini|\.directory|Icon\r", re.I | re.S)
# The specification of Git LFS bounds a pointer.
_POINTER, MAX_POINTER_BYTES = b"version https://git-lfs.github.com/spec/v1", 1024
# float64 ends at 1.8e308.
MAX_DIGITS = 308
# Younger ones may belong to a writer on another machine, whose lock is not seen here.
LEFT_OVER_SECONDS = 24 * 3600
# Of a locked folder: the lock and the process that holds it. They are two files because filelock may empty its own.
LOCK_FILE, HOLDER_FILE = ".lock", "running.json"
# Errors of a full disk: no space, no quota, a file as large as the file system or the user's limit allows.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Paths that cannot be written: no permission, a file where a folder should be, a mount point, a name too long.
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EBUSY,
            errno.EXDEV, errno.ENAMETOOLONG, errno.ELOOP)  # fmt: skip
# torch, safetensors and tokenizers report a full disk as text, without an errno.
_FULL_TEXTS = ("No space left", "os error 28", "os error 27", "File too large", "file write failed", "unexpected pos")


def _full(target: Path) -> DiskFullError:
    # Show files of a staged folder under their final path.
    shown = re.sub(r"(^|[/\\])\.([^/\\]+)\.[a-z0-9_]{8}\.partial(?=[/\\]|$)", r"\1\2", str(target))
    return DiskFullError(f"disk full while writing {shown}: free some space and run again")


def _other_cache(target: Path) -> str:
    """The setting that helps where `target` is in the user's cache."""
    with contextlib.suppress(MsdcError):
        if target.is_relative_to(user_cache()):
            return "; to keep the cache elsewhere, set XDG_CACHE_HOME to a folder that you may write"
    return ""


@contextlib.contextmanager
def disk_errors(target: Path) -> Iterator[None]:
    """Turn a full disk, or a path at `target` that cannot be written, into an error of one line."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise _full(target) from error
        # A folder that is missing and cannot be made, such as one of /proc; other missing files are somebody's else.
        absent = error.errno == errno.ENOENT and Path(str(error.filename)) in (target, *target.parents)
        if error.errno in REFUSED or absent:
            why = "a part of this path is a file" if error.errno in (errno.EEXIST, errno.ENOTDIR) else error.strerror
            raise MsdcError(f"cannot write {target}: {why}{_other_cache(target)}") from error
        raise
    except MsdcError:
        raise
    except Exception as error:
        if any(sign in str(error) for sign in _FULL_TEXTS):
            raise _full(target) from error
        raise


def _fsync(path: Path) -> None:
    # Windows flushes only files that are open for writing, and opens no folders.
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hidden(target: Path, kind: str) -> Path:
    """A hidden name next to `target`, on the same file system."""
    return target.with_name(f".{target.name}.{secrets.token_hex(4)}.{kind}")


@contextlib.contextmanager
def _mark(path: Path, alone: bool = False) -> Iterator[bool]:
    """Mark a file or folder as one that a living writer has; with `alone` it yields whether no other writer has it.

    Clocks jump, so its age does not show this. On Linux only: macOS lets such a lock exclude those of SQLite, and
    Windows removes no open file.
    """
    if sys.platform != "linux":
        yield True
        return
    import fcntl

    descriptor, free = os.open(path, os.O_RDONLY), True
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
        except OSError as error:  # any other error: a file system without locks
            free = error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN)
        yield free
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def atomic_path(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path next to `target`; on success fsync and rename it to `target`, on failure remove it."""
    target = Path(target)
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _clean_left_over(target)
        temporary = _hidden(target, "partial")
        temporary.touch(exist_ok=False)
        mode = temporary.stat().st_mode
        try:
            with _mark(temporary):
                yield temporary
                _fsync(temporary)
                # A test kills the process at this audit event: no other event marks the state before the rename.
                sys.audit("msdc.files.complete", str(temporary))
                # Some writers (safetensors) create a file that only its owner can read.
                os.chmod(temporary, mode)
                os.replace(temporary, target)
            _fsync(target.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def unfinished(target: Path, key: str) -> Iterator[BinaryIO]:
    """A file next to `target` for what is done of it: a writer that is killed leaves it to the next one with this key.

    Removed at the end and at an error, not where a signal ends the process.

    Raises:
        InputError: another process writes `target` (noticed on Linux only).
    """
    name = hashlib.sha256(key.encode()).hexdigest()[:8]
    path = target.with_name(f".{target.name}.{name}.partial")
    busy = InUse(f"{target}: in work by another process; wait until it ends, or choose another path")
    with disk_errors(target), contextlib.ExitStack() as stack:
        target.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        try:
            is_free, file = stack.enter_context(_mark(path, alone=True)), stack.enter_context(open(path, "r+b"))
        except FileNotFoundError:  # the other process has just ended
            raise busy from None
        if not is_free:
            raise busy
        try:
            yield file
        except Exception:
            stack.close()  # Windows removes no open file
            path.unlink(missing_ok=True)
            raise
        stack.close()
        path.unlink(missing_ok=True)


def matching_files(pattern: str) -> list[Path]:
    """The files of a path or glob, sorted."""
    paths = map(Path, glob.glob(str(Path(pattern).expanduser()), recursive=True))
    return without_system_files(path for path in paths if path.is_file())


def write_text(target: str | os.PathLike[str], text: str) -> None:
    """Write UTF-8 text atomically, with the line ends of `text` on every system."""
    with atomic_path(target) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


@contextlib.contextmanager
def locked(path: str | os.PathLike[str], busy: Callable[[], str] | None = None) -> Iterator[BaseFileLock]:
    """Hold the lock of the file `path`, which is created if it is missing. The end of the process releases it.

    While another process or thread holds it: wait, or with `busy` raise an `InputError` with this text. A thread may
    hold it more than once.
    """
    from filelock import FileLock, Timeout  # a tenth of the time of a first vector, which takes no lock

    path = Path(os.path.realpath(Path(path).parent)) / Path(path).name
    lock = FileLock(path, is_singleton=True)
    with disk_errors(path):
        for attempts_left in reversed(range(20)):
            try:
                lock.acquire(blocking=busy is None)  # this also creates the folder
                break
            except Timeout as error:
                assert busy is not None, "without one it waits"
                raise InputError(busy()) from error
            except (FileExistsError, FileNotFoundError):  # its holder just creates or removes the folder
                if not attempts_left:
                    raise
                time.sleep(0.001)
    try:
        yield lock
    finally:
        lock.release()


@contextlib.contextmanager
def held(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Keep other processes out of `folder`; their error names the holder.

    A missing folder is created, and removed at the end if it is empty.

    Raises:
        InputError: another process holds it.
    """
    real = Path(os.path.realpath(folder))
    holder = real / HOLDER_FILE
    created = [missing_folder for missing_folder in (real, *real.parents) if not missing_folder.exists()]

    def busy() -> str:
        who = "another process"
        for _ in range(20):  # a new holder has not written its file yet
            with contextlib.suppress(InputError, TypeError, KeyError):
                who = "process {pid} on {host} since {since}".format(**read_json(holder, 4096))
                break
            time.sleep(0.05)
        return f"{folder}: in use by {who}; wait until it ends, or choose another folder"

    with locked(real / LOCK_FILE, busy) as lock:
        outermost = lock.lock_counter == 1
        try:
            if outermost:
                since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
                with disk_errors(holder):
                    holder.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}))
            yield
        finally:
            if outermost:
                holder.unlink(missing_ok=True)
                # Before the release: afterwards the file could be the lock of another process.
                with contextlib.suppress(OSError):
                    if created and [path.name for path in real.iterdir()] == [LOCK_FILE]:
                        (real / LOCK_FILE).unlink()
                        for missing_folder in created:
                            missing_folder.rmdir()


def remove_folder(folder: str | os.PathLike[str]) -> None:
    """Remove a folder that no process holds; if the process is killed meanwhile, it is complete or gone."""
    real = Path(os.path.realpath(folder))
    with contextlib.ExitStack() as stack:
        stack.enter_context(held(real))
        if os.name == "nt":  # Windows renames no folder with an open file
            stack.close()
        _discard(real, real)


def write_json(target: str | os.PathLike[str], value: Any) -> None:
    """Write JSON atomically: insertion order, two spaces of indentation, a final line end, no NaN."""
    write_text(target, json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def link_root(folder: str | os.PathLike[str]) -> Path:
    """The folder that links below `folder` may lead to: itself, or of a snapshot in the Hugging Face cache the tree of
    its repository, where every file is a link to `models--OWNER--NAME/blobs`.
    """
    root = Path(folder).resolve()
    for ancestor in (root, *root.parents):
        repository = ancestor.parent.parent
        if (
            ancestor.parent.name == "snapshots"
            and _REPOSITORY.match(repository.name)
            and (repository / "blobs").is_dir()
        ):
            return repository
    return root


def without_system_files(paths: Iterable[Path]) -> list[Path]:
    """`paths`, sorted, without what operating systems leave in folders that somebody opened, copied or packed."""
    return sorted(path for path in paths if not _SYSTEM_FILE.fullmatch(path.name) and "__MACOSX" not in path.parts)


def plain_name(name: str, others: str = r"[^A-Za-z0-9_.-]+") -> str:
    """`name` as a name of a folder or package, with a hyphen for each run of characters that `others` matches.

    Where that changes it, the first digits of its sha256 follow: two names in another script are two plain names.
    """
    plain = re.sub(others, "-", name).strip("-.")
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return plain if plain and plain == name else f"{plain or 'model'}-{digest[:8]}"


def refuse_pointer(path: str | os.PathLike[str]) -> None:
    """Refuse a file that holds Git LFS's reference to a file: git made the checkout without the files themselves."""
    with open(path, "rb") as handle:
        start = handle.read(len(_POINTER))
    if start == _POINTER:
        raise InputError(f"{path}: a pointer of Git LFS, not the file itself: run `git lfs pull` where it was cloned")


def regular_size(path: str | os.PathLike[str]) -> int:
    """Bytes of a regular file that is not a pointer of Git LFS; a link is followed."""
    try:
        status = os.stat(path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{path}: a folder; expected a file")
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path}: not a regular file (a device, a pipe or a socket)")
    if status.st_size < MAX_POINTER_BYTES:
        # What cannot be opened is the reader's error.
        with contextlib.suppress(OSError):
            refuse_pointer(path)
    return status.st_size


def file_state(path: str | os.PathLike[str]) -> tuple[int, ...] | None:
    """Inode, size and times, which change when a file is written or replaced; None if there is no file.

    Copies keep the time of their contents, and a new file may reuse an inode: the time of the inode's own change
    differs.
    """
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is too large for a number")
    return value


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def parse_json(text: str) -> Any:
    """JSON from an untrusted source: no NaN, no infinity (nor 1e999), no integer beyond float's range, no half of a
    surrogate pair.

    Raises:
        ValueError: not JSON, or not of this kind.
        RecursionError: nested too deeply.
    """
    value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_integer)
    if _SURROGATE.search(text):
        # Half of a pair is no character and cannot be written to a file.
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError("half of a surrogate pair in a text") from error
    return value


def _decoded(raw: bytes) -> str:
    """The text of UTF-8, or of what its byte order mark names."""
    return raw.decode("utf-16" if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig")


def read_json(path: str | os.PathLike[str], max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Read a JSON file from an untrusted source; see `parse_json`.

    Raises:
        InputError: missing, not a regular file, larger than `max_bytes`, not UTF-8 (nor UTF-16 with a byte order mark,
            as PowerShell writes it), or not JSON.
    """
    regular_size(path)
    try:
        with open(path, "rb") as handle:
            raw = handle.read(max_bytes + 1)
        if len(raw) > max_bytes:
            raise InputError(f"{path}: more than the {max_bytes} bytes of JSON allowed")
        return parse_json(_decoded(raw))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON ({error})") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def user_cache() -> Path:
    """`$XDG_CACHE_HOME/msdc`, or `~/.cache/msdc` without that variable, on every system."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    # The XDG specification requires that relative paths are ignored.
    if os.path.isabs(base):
        return Path(base) / "msdc"
    if not os.path.isabs(home := _home()):
        raise MsdcError("this user has no home folder for the cache: set XDG_CACHE_HOME to a folder that you may write")
    return Path(home) / ".cache" / "msdc"


def _home() -> str:
    """This user's home folder; "" for a user that the system does not know. An empty HOME is as good as none."""
    if os.name == "nt" or os.environ.get("HOME"):
        return os.path.expanduser("~")
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


def refuse_existing(target: Path, force: bool | None, marks: tuple[str, ...] = ()) -> None:
    """Refuse to overwrite `target` without `force` (None: the caller has no such option), and with it anything that
    msdc has not written.

    Without `marks` a regular file may be replaced; with them an empty folder, or one that has all these files, but
    never the working directory.
    """
    with disk_errors(target):
        if not target.exists():
            return
    if not force:
        option = "" if force is None else " or pass `force`"
        raise InputError(f"{target} exists already: choose another path{option}")
    if not marks:
        if not target.is_file():
            raise InputError(f"{target}: not a regular file, it is not replaced; choose another path")
    elif not target.is_dir() or (
        without_system_files(target.iterdir()) and not all((target / name).is_file() for name in marks)
    ):
        raise InputError(f"{target}: not a folder with {' and '.join(marks)}, it is not replaced; choose another path")
    elif Path.cwd().is_relative_to(target.resolve()):
        raise InputError(f"{target}: the working directory is not replaced; choose another path")


def _discard(path: Path, target: Path) -> None:
    """Remove `path`, first renamed to a hidden name of `target` from which recovery never restores it."""
    doomed = _hidden(target, "partial")
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, doomed)
        shutil.rmtree(doomed) if doomed.is_dir() and not doomed.is_symlink() else doomed.unlink()


def _put_in_place(stage: Path, target: Path, check: Callable[[], None]) -> None:
    """Rename `stage` to `target`; an existing one is hidden first. Other writers may do the same meanwhile."""
    hidden: list[Path] = []
    for _ in range(100):
        try:
            # A rename onto a folder succeeds only if that is empty.
            os.rename(stage, target)
            break
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        check()
        hidden.append(_hidden(target, "old"))
        with contextlib.suppress(FileNotFoundError):  # another writer was faster
            os.rename(target, hidden[-1])
    else:
        raise MsdcError(f"{target}: other processes keep replacing it; run again")
    for path in hidden:
        _discard(path, target)


def _clean_left_over(target: Path) -> None:
    """Restore a folder hidden by a kill between two renames; remove what writers killed over a day ago have left."""
    name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{8}}\.(partial|old)")
    for leftover in sorted(target.parent.iterdir() if target.parent.is_dir() else ()):
        if not name.fullmatch(leftover.name):
            continue
        with contextlib.suppress(OSError):
            if leftover.suffix == ".old" and not target.exists():
                os.rename(leftover, target)
                continue
            latest = max(
                path.stat().st_mtime for path in (leftover, *(leftover.iterdir() if leftover.is_dir() else ()))
            )
            if abs(time.time() - latest) > LEFT_OVER_SECONDS:  # noqa: TID251
                with _mark(leftover, alone=True) as free:
                    _discard(leftover, target) if free else None


@contextlib.contextmanager
def staged_folder(
    target: str | os.PathLike[str], force: bool | None = False, marks: tuple[str, ...] = ()
) -> Iterator[Path]:
    """Yield an empty folder next to `target`; on success it becomes `target`, on failure it is removed.

    With `force` an existing folder is hidden by a rename once the new one is complete; if the process is killed between
    the two renames, the next writer restores it. Of several writers the last one wins. `refuse_existing` decides what
    may be replaced; without `marks` anything, as in our own cache. A link is followed.
    """
    shown, target = Path(target), Path(os.path.realpath(target))

    def check() -> None:
        if marks or not force:
            refuse_existing(shown, force, marks)

    _clean_left_over(target)
    check()
    with disk_errors(shown):
        target.parent.mkdir(parents=True, exist_ok=True)
        stage = _hidden(target, "partial")
        stage.mkdir()
        readable = stage.stat().st_mode & 0o444
        try:
            with _mark(stage):
                yield stage
                for path in stage.rglob("*"):
                    if path.is_file() and not path.is_symlink():
                        _fsync(path)
                        # Some writers (safetensors) create files that only their owner can read.
                        os.chmod(path, path.stat().st_mode | readable)
                sys.audit("msdc.files.complete", str(stage))
                _put_in_place(stage, target, check)
            _fsync(target.parent)
        finally:
            shutil.rmtree(stage, ignore_errors=True)


def link_file(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """A hard link, or a copy if `target` is on another file system or links are not supported."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def sha256_file(path: str | os.PathLike[str]) -> str:
    """Hex sha256 of one file, read in blocks."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def first_damaged(hashes: Mapping[Path, str]) -> Path | None:
    """The first of these files that is missing, or has not the sha256 that was noted."""
    for path, sha256 in hashes.items():
        try:
            if sha256_file(path) != sha256:
                return path
        except OSError:
            return path
    return None


def drop_oldest(folder: Path, pattern: str, most: int) -> None:
    """Keep the `most` newest files of a cache, which other processes may drop too."""
    states = {path: state for path in folder.glob(pattern) if (state := file_state(path)) is not None}
    newest_first = sorted(states, key=lambda path: states[path][2], reverse=True)
    for path in newest_first[most:]:
        with contextlib.suppress(OSError):
            path.unlink()


def sha256_files(paths: list[Path]) -> str:
    """One hex sha256 over several files, by name and content, independent of their folder."""
    return sha256_named((path, sha256_file(path)) for path in paths)


def sha256_named(hashes: Iterable[tuple[Path, str]]) -> str:
    """`sha256_files` from known hashes; files of one name keep their order."""
    digest = hashlib.sha256()
    for path, file_hash in sorted(hashes, key=lambda pair: pair[0].name):
        digest.update(f"{path.name}\0{file_hash}\n".encode())
    return digest.hexdigest()
