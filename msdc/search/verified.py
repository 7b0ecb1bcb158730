"""Which index files were checked and have not changed since: in the user's cache, by the file's number on its disk.

Only SQLite's writes by an index that was checked keep a file among them. Without the cache each opening checks.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

from msdc.errors import MsdcError
from msdc.files import file_state, user_cache, write_text

MOST = 1000  # files that are remembered
RECENT_NS = 10**9  # a file system may give a change within this time the same time stamp

State = list[int]


def index_state(path: Path) -> State | None:
    """The states of a file and of its write-ahead log; None without a file."""
    main, log = file_state(path), file_state(f"{path}-wal")
    # An empty log comes and goes with a connection.
    return None if main is None else [*main, *(log if log and log[1] else (0,) * len(main))]


def _key(path: Path) -> str:
    status = path.stat()
    return f"{status.st_dev}-{status.st_ino}"


def _verified() -> dict[str, State]:
    try:
        states = json.loads((user_cache() / "search" / "verified.json").read_text(encoding="utf-8"))
        return states if isinstance(states, dict) else {}
    except (OSError, ValueError, MsdcError):
        return {}


def is_verified(path: Path, state: State | None) -> bool:
    """Whether a file was checked when it had this state."""
    with suppress(OSError):
        return state is not None and _verified().get(_key(path)) == state
    return False


def record_verified(path: Path, state: State | None) -> None:
    """Keep that a file was checked while it had this state, unless it has another or changed a moment ago."""
    if state is None or state != index_state(path) or max(*state[2:4], *state[6:8]) > time.time_ns() - RECENT_NS:
        return
    _keep(path, state)


def record_written(path: Path) -> None:
    """Keep that a checked file has changed by its index alone, which has written and closed it."""
    with suppress(OSError):
        now = time.time_ns() // 1000 * 1000  # finer than the clock that a later change has its time from
        os.utime(path, ns=(now, now))
        if path.stat().st_mtime_ns == now:
            _keep(path, index_state(path))


def forget(path: Path) -> None:
    """Let the next opening check a file."""
    _keep(path, None)


def _keep(path: Path, state: State | None) -> None:
    with suppress(OSError, MsdcError):  # the next opening checks again
        target = user_cache() / "search" / "verified.json"
        states = {key: value for key, value in _verified().items() if key != _key(path)}
        if state is not None:
            states[_key(path)] = state
        write_text(target, json.dumps(dict([*states.items()][-MOST:])))
