"""Files that are complete or absent: atomic writes, staged folders, hashes, bounded reads."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import hashlib
import json
import math
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msdc.errors import InputError, MsdcError

# Everything that ships is below this folder, in a checkout (through its links) as in an installed package.
PACKAGE = Path(__file__).resolve().parent
MAX_JSON_BYTES = 64 * 1024 * 1024
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# float64 ends at 1.8e308.
MAX_DIGITS = 308
# Younger ones may belong to a process that still writes.
LEFT_OVER_SECONDS = 24 * 3600


# Errors of a full disk: no space, no quota, a file as large as the file system or the user's limit allows.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# torch, safetensors, tokenizers and faiss report them as text, without an errno.
_FULL_TEXTS = ("No space left", "os error 28", "os error 27", "File too large", "file write failed", "unexpected pos")


def _full(target: Path) -> MsdcError:
    # Files of a folder that is being staged are named as they will be.
    shown = re.sub(r"(^|[/\\])\.([^/\\]+)\.[a-z0-9_]{8}\.partial(?=[/\\]|$)", r"\1\2", str(target))
    return MsdcError(f"disk full while writing {shown}: free some space and run again")


@contextlib.contextmanager
def disk_errors(target: Path) -> Iterator[None]:
    """Turn a full disk or a missing permission under `target` into one line.

    Raises:
        MsdcError: the disk is full or `target` cannot be written.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise _full(target) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise MsdcError(f"cannot write {target}: {error.strerror}") from error
        raise
    except MsdcError:
        raise
    except Exception as error:
        if any(sign in str(error) for sign in _FULL_TEXTS):
            raise _full(target) from error
        raise


def _fsync(path: Path) -> None:
    # Windows flushes only what is open for writing, and opens no folders.
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def atomic_path(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside `target`; on success fsync and rename it there, on failure leave nothing."""
    target = Path(target)
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _clean_left_over(target)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            _fsync(temporary)
            # Audit events mark the states that a kill can leave and that Python has no event for; a test kills there.
            sys.audit("msdc.files.complete", str(temporary))
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, target)
            _fsync(target.parent)
        finally:
            temporary.unlink(missing_ok=True)


def write_text(target: str | os.PathLike[str], text: str) -> None:
    """Write UTF-8 text atomically, with the same bytes on every system: line ends stay as they are in `text`."""
    with atomic_path(target) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


@contextlib.contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the lock of the file `path`, which is made where it is missing; waits while another process holds it."""
    from filelock import FileLock

    path = Path(path)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def write_json(target: str | os.PathLike[str], value: Any) -> None:
    """Write JSON atomically: insertion order, two spaces of indentation, a final line end, no NaN."""
    write_text(target, json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False) + "\n")


def regular_size(path: str | os.PathLike[str]) -> int:
    """Bytes of a regular file; a link is followed.

    Raises:
        InputError: missing, unreadable, or a folder, device, pipe or socket, which may have no end.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{path}: a folder, a file was expected")
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path}: not a regular file (a device, a pipe or a socket)")
    return status.st_size


def _constant(name: str) -> float:
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
    """JSON from an untrusted source: no NaN, no infinity (also not as 1e999), no integer beyond float's range, no half
    of a surrogate pair.

    Raises:
        ValueError: not such JSON.
        RecursionError: nested too deeply.
    """
    value = json.loads(text, parse_constant=_constant, parse_float=_finite, parse_int=_integer)
    if _SURROGATE.search(text):
        # A lone half is no character, and no file that holds it can be written.
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError("half of a surrogate pair in a text") from error
    return value


def read_json(path: str | os.PathLike[str], max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Read a JSON file from an untrusted source; see `parse_json`.

    Raises:
        InputError: missing, not a regular file, larger than `max_bytes`, not UTF-8, or not JSON.
    """
    path = Path(path)
    size = regular_size(path)
    try:
        if size > max_bytes:
            raise InputError(f"{path}: {size} bytes of JSON, more than the {max_bytes} allowed")
        with open(path, "rb") as handle:
            raw = handle.read(max_bytes + 1)
        if len(raw) > max_bytes:
            raise InputError(f"{path}: more than the {max_bytes} bytes of JSON allowed")
        return parse_json(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON ({error})") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def user_cache() -> Path:
    """`$XDG_CACHE_HOME/msdc`, on every system; without that variable the system's place for caches.

    That is `~/.cache/msdc` on Linux, `~/Library/Caches/msdc` on macOS and `%LOCALAPPDATA%\\msdc\\Cache` on Windows.
    Versions up to 0.2 used `~/.cache/msdc` everywhere: where that folder exists, it is used.

    Raises:
        MsdcError: the user has no home folder.
    """
    base = os.environ.get("XDG_CACHE_HOME") or ""
    # The XDG specification requires that relative paths are ignored.
    if os.path.isabs(base):
        return Path(base) / "msdc"
    try:
        usual = Path.home() / ".cache" / "msdc"
        if sys.platform in ("darwin", "win32") and not usual.is_dir():
            import platformdirs

            return Path(platformdirs.user_cache_dir("msdc", appauthor=False))
        return usual
    except RuntimeError as error:
        raise MsdcError("this user has no home folder for the cache: set XDG_CACHE_HOME to a folder") from error


def refuse_existing(target: Path, force: bool) -> None:
    """Refuse to overwrite `target` without `force`.

    Raises:
        InputError: `target` exists and `force` is false.
    """
    if target.exists() and not force:
        raise InputError(f"{target} exists already: choose another path or pass --force")


def _umask() -> int:
    """The process's umask; read without changing it where the kernel tells it."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders by one rename; False where the system or the file system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):  # the last one on Windows, where a library needs a name
        return False
    at_cwd, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE of <linux/fs.h>
    sys.audit("msdc.files.exchange", str(one), str(other))
    if rename(at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), swap) == 0:
        return True
    code = ctypes.get_errno()
    if code == errno.ENOENT:
        raise FileNotFoundError(code, os.strerror(code), str(other))
    return False


def _put_in_place(stage: Path, target: Path, force: bool) -> None:
    """Rename `stage` to `target`; a folder there is swapped out first. Other writers may do the same meanwhile."""
    for _ in range(100):
        try:
            # A rename onto a folder succeeds only when that is empty.
            os.rename(stage, target)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        refuse_existing(target, force)
        try:
            if _exchange(stage, target):
                return  # the old folder is now at `stage`, which the caller removes
        except FileNotFoundError:
            continue  # another writer moved it away
        old = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".old", dir=target.parent))
        try:
            os.rename(target, old / "old")
            os.rename(stage, target)
            return
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        finally:
            if (old / "old").is_dir() and not target.exists():
                with contextlib.suppress(OSError):
                    os.rename(old / "old", target)
            shutil.rmtree(old, ignore_errors=True)
    raise MsdcError(f"{target}: other processes keep replacing it; run again")


def _clean_left_over(target: Path) -> None:
    """Remove what writers of `target` that were killed more than a day ago left beside it; put a hidden copy back."""
    now = time.time()
    for left in sorted(target.parent.glob(f".{glob.escape(target.name)}.*")):
        if left.suffix not in (".partial", ".old"):
            continue
        with contextlib.suppress(OSError):
            times = [path.stat().st_mtime for path in (left, *(left.iterdir() if left.is_dir() else ()))]
            if now - max(times) < LEFT_OVER_SECONDS:
                continue
            if left.suffix == ".old" and not target.exists() and (left / "old").is_dir():
                os.rename(left / "old", target)
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink()


@contextlib.contextmanager
def staged_folder(target: str | os.PathLike[str], force: bool = False) -> Iterator[Path]:
    """Yield an empty folder beside `target`; on success it becomes `target`, on failure it is removed.

    With `force` an existing folder is replaced only after the new one is complete, by one rename where the kernel can
    swap two folders; of several writers the last one wins.
    """
    target = Path(target)
    _clean_left_over(target)
    refuse_existing(target, force)
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        stage = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent))
        try:
            yield stage
            mask = _umask()
            for path in stage.rglob("*"):
                if path.is_file() and not path.is_symlink():
                    _fsync(path)
                    # Some writers (safetensors) create files that only their owner can read.
                    os.chmod(path, path.stat().st_mode | (0o444 & ~mask))
            os.chmod(stage, 0o777 & ~mask)
            sys.audit("msdc.files.complete", str(stage))
            _put_in_place(stage, target, force)
            _fsync(target.parent)
        finally:
            shutil.rmtree(stage, ignore_errors=True)


def sha256_file(path: str | os.PathLike[str]) -> str:
    """Hex sha256 of one file, read in blocks."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def sha256_files(paths: list[Path]) -> str:
    """One hex sha256 over several files, by name and content, independent of their folder."""
    digest = hashlib.sha256()
    for path in sorted(paths, key=lambda p: p.name):
        digest.update(f"{path.name}\0{sha256_file(path)}\n".encode())
    return digest.hexdigest()
