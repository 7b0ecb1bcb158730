"""Take away from msdc what another system does not have. First on PYTHONPATH; `MSDC_TEST_PLATFORM`: macos or windows.

The libraries below msdc are the ones built for this system and keep what they were built for: names are hidden and
files behave differently only where the nearest caller outside the standard library's file modules is msdc itself.
`fcntl` and `resource` are gone for all. It shows what our code asks for, not how another system answers.

* both: no /proc, no /sys, no `os.sched_*`, no memory by pages, `sys.platform`; psutil knows no affinity on macOS
* windows: `os.name`, no POSIX-only names of `os` and `signal`; text files get CRLF and need an encoding; a file that is
  open cannot be replaced or removed; folders cannot be opened; links need a right that the user lacks
"""

import builtins
import errno
import io
import os
import signal
import sys
import types

PLATFORM = os.environ.get("MSDC_TEST_PLATFORM", "")
HIDDEN_FOLDERS = ("/proc", "/sys", "/etc/os-release")
# Modules that pass a call on: who asked them counts.
PASSING = {"pathlib", "io", "tempfile", "contextlib", "shutil", "glob", "os", "codecs", __name__}
GONE = {"sched_getaffinity", "sched_setaffinity", "sched_getparam", "posix_fadvise", "memfd_create"}
POSIX_ONLY = {
    "killpg", "getpgid", "getpgrp", "setpgid", "setsid", "getsid", "getuid", "geteuid", "getgid", "getegid", "setuid",
    "setgid", "getgroups", "fork", "forkpty", "openpty", "wait", "wait3", "wait4", "WNOHANG", "chown", "lchown",
    "fchmod", "fchown", "mkfifo", "mknod", "statvfs", "fstatvfs", "uname", "getloadavg", "sysconf", "nice", "pread",
    "pwrite", "sendfile", "sync", "O_NOFOLLOW", "O_CLOEXEC", "O_DIRECTORY", "O_NONBLOCK", "setxattr", "getxattr",
    "posix_spawn",
}  # fmt: skip
SIGNALS = {"SIGKILL", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGCHLD", "alarm", "setitimer",
           "pthread_kill", "pthread_sigmask"}  # fmt: skip


# As this system has them.
listdir, plain_open = os.listdir, open


def name_of(frame):
    """The name of a frame's module, of the one that `python -m` runs too."""
    name = str(frame.f_globals.get("__name__"))
    return getattr(frame.f_globals.get("__spec__"), "name", name) if name == "__main__" else name


def ours():
    """Whether msdc asks, directly or through the standard library's file modules."""
    frame = sys._getframe(2)
    while frame is not None and name_of(frame) in PASSING:
        frame = frame.f_back
    return frame is not None and name_of(frame).split(".")[0] == "msdc"


def direct():
    """Whether the code that reads an attribute is msdc's."""
    return name_of(sys._getframe(2)).split(".")[0] == "msdc"


def hide(module, names, others=()):
    """The module without some names, and with other values of others, for code of msdc itself."""
    values = dict(others)

    class Without(types.ModuleType):
        def __getattribute__(self, name):
            if (name in names or name in values) and direct():
                if name in values:
                    return values[name]
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            return super().__getattribute__(name)

    module.__class__ = Without


def wrap(module, name, check):
    """`module.name`, which asks `check` about its arguments first; what that returns replaces them."""
    plain = getattr(module, name)

    def wrapped(*arguments, **options):
        if ours():
            arguments, options = check(arguments, options)
        return plain(*arguments, **options)

    wrapped.__name__ = name
    setattr(module, name, wrapped)


def text_of(path):
    return os.fspath(path) if isinstance(path, (str, os.PathLike)) else ""


def visible(arguments, options):
    if text_of(arguments[0]).startswith(HIDDEN_FOLDERS):
        raise FileNotFoundError(errno.ENOENT, "no such file", text_of(arguments[0]))
    return arguments, options


def opened(arguments, options):
    """Arguments of `open`, as Windows would take them."""
    arguments, options = visible(arguments, options)
    mode = arguments[1] if len(arguments) > 1 else options.get("mode", "r")
    if PLATFORM == "windows" and "b" not in mode:
        buffering, encoding, errors, newline = (*arguments[2:], *(None,) * 4)[:4]
        encoding = options.get("encoding", encoding)
        if encoding in (None, "locale"):
            raise AssertionError(f"{arguments[0]}: a text file without an encoding")
        newline = options.get("newline", newline)
        if newline is None and set(mode) & set("wax+"):
            newline = "\r\n"
        buffering = options.get("buffering", -1 if buffering is None else buffering)
        return (arguments[0], mode, buffering, encoding, options.get("errors", errors), newline), {}
    return arguments, options


def in_use(path):
    """Whether this process has a file open, or one below a folder."""
    resolved = os.path.realpath(path)
    links = []
    for descriptor in listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:
            continue
    with plain_open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        links += [line.split(maxsplit=5)[5].strip() for line in maps if line.count("/")]
    return any(link == resolved or link.startswith(resolved + "/") for link in links)


def not_in_use(arguments, options):
    if sys._getframe(2).f_globals.get("__name__") == "tempfile" and len(arguments) == 1:
        return arguments, options  # Windows has another, whose file has a name until it is closed
    for path in arguments[:2]:
        if text_of(path) and in_use(path):
            raise PermissionError(errno.EACCES, "the file is open in a process", text_of(path))
    return arguments, options


def no_folder(arguments, options):
    if os.path.isdir(arguments[0]):
        raise PermissionError(errno.EACCES, "a folder", text_of(arguments[0]))
    return visible(arguments, options)


def fsync(arguments, options):
    import fcntl_of_this_system

    if isinstance(arguments[0], int) and not fcntl_of_this_system.fcntl(arguments[0], 3) & (os.O_WRONLY | os.O_RDWR):
        raise OSError(errno.EBADF, "not open for writing")
    return arguments, options


def no_right(arguments, options):
    raise OSError(errno.EPERM, "a required privilege is not held by the client")


def without_pages(psutil, names):
    """psutil as on a system that counts no shared pages."""
    full = psutil.Process.memory_full_info

    def memory_full_info(self):
        return types.SimpleNamespace(**{name: getattr(full(self), name) for name in names})

    psutil.Process.memory_full_info = memory_full_info
    if PLATFORM == "macos":
        del psutil.Process.cpu_affinity


def take_away():
    for module in (builtins, io):
        wrap(module, "open", opened)
    wrap(os, "listdir", lambda a, o: visible(a, o) if a else (a, o))
    wrap(os, "stat", visible)
    import fcntl

    import psutil  # the one of this system needs what is taken away here

    sys.modules["fcntl_of_this_system"] = fcntl
    for name in ("fcntl", "resource"):
        sys.modules[name] = None
    without_pages(psutil, ("rss", "uss"))
    names = set(GONE)
    if PLATFORM == "windows":
        names |= POSIX_ONLY
        hide(signal, SIGNALS)
        for name in ("replace", "rename", "unlink", "remove", "rmdir"):
            wrap(os, name, not_in_use)
        wrap(os, "open", no_folder)
        wrap(os, "fsync", fsync)
        wrap(os, "symlink", no_right)
    hide(os, names, {"name": "nt"} if PLATFORM == "windows" else {})
    hide(sys, (), {"platform": "win32" if PLATFORM == "windows" else "darwin"})


if PLATFORM:
    take_away()
