"""A disk that is full: a small tmpfs where this user may mount one, else a limit on the size of files."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from msdc.errors import MsdcError


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Callable[[], None]]:
    """Make `folder` a disk of `size` bytes; what is given sets the limit of a child where it is not one.

    What is in the folder moves to the disk, which must have room for it, and back.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder.with_name(folder.name + ".kept")
    shutil.copytree(folder, kept, symlinks=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        if mounted:
            shutil.copytree(kept, folder, symlinks=True, dirs_exist_ok=True)
        yield (lambda: None) if mounted else (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
    finally:
        shutil.rmtree(kept)
        if mounted:
            shutil.copytree(folder, kept, symlinks=True)
            subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)
            shutil.rmtree(folder)
            kept.rename(folder)


def said(work: Callable[[], object], limit: Callable[[], None] = lambda: None) -> str:
    """What `work` says in a forked child under a limit: "" (done), the text of an `MsdcError`, or a traceback."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        text = ""
        try:
            os.close(reading)
            # Captured output may be a file, which the limit would concern.
            null = os.open(os.devnull, os.O_WRONLY)
            for stream in (1, 2):
                os.dup2(null, stream)
            limit()
            work()
        except MsdcError as error:
            text = str(error)
        except BaseException:
            text = traceback.format_exc()
        finally:
            os.write(writing, text.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    status = os.waitpid(child, 0)[1]
    return text if status == 0 else f"status {status}: {text}"
