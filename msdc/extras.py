"""The extras of the installation, their packages, and the error that names a missing extra.

The base install runs bundles and the shipped student through ONNX Runtime. All other packages are imported where they
are used; a missing one becomes a `MissingExtra`, on the command line and in the Python interface.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from collections.abc import Iterator
from contextvars import ContextVar

from msdc.errors import InputError

# Import name -> (name in messages, name on PyPI) of every package that only an extra installs.
PACKAGES = {
    "torch": ("PyTorch", "torch"),
    "torchao": ("torchao", "torchao"),
    "executorch": ("ExecuTorch", "executorch"),
    "transformers": ("transformers", "transformers"),
    "sentence_transformers": ("sentence-transformers", "sentence-transformers"),
    "onnxscript": ("onnxscript", "onnxscript"),
    "scipy": ("scipy", "scipy"),
    "sklearn": ("scikit-learn", "scikit-learn"),
    "pyarrow": ("pyarrow", "pyarrow"),
    "datasets": ("datasets", "datasets"),
    "defusedxml": ("defusedxml", "defusedxml"),
    "langcodes": ("langcodes", "langcodes"),
    "polib": ("polib", "polib"),
    "opencc": ("OpenCC", "opencc"),
    "cryptography": ("cryptography", "cryptography"),
    "segno": ("segno", "segno"),
    "mteb": ("mteb", "mteb"),
}
# Extra -> packages it adds, by name on PyPI. An error names the first extra with a package, or the verb's own if that
# has it too. pyproject.toml has the versions; a test compares the two.
EXTRAS = {
    "data": ("pyarrow", "datasets", "defusedxml", "langcodes", "polib"),
    "train": (
        "torch", "torchao", "transformers", "sentence-transformers", "scipy", "scikit-learn", "pyarrow",
        "datasets", "defusedxml", "langcodes", "polib", "opencc",
    ),
    "executorch": ("torch", "torchao", "executorch"),
    "export": ("torch", "torchao", "executorch", "transformers", "sentence-transformers", "onnxscript"),
    "link": ("segno",),
    "signature": ("cryptography",),
}  # fmt: skip
EXTRAS["mteb"] = (*EXTRAS["train"], "mteb")
# The extra with all packages of a verb.
VERBS = {
    "quickstart": "all",
    "distill": "train",
    "compress": "train",
    "evaluate": "train",
    "export": "export",
}
ALL = "all"
# Packages that `msdc quickstart` imports, by import name.
QUICKSTART_PACKAGES = ("torch", "torchao", "executorch", "transformers", "sentence_transformers", "scipy")
# The verb that the command line runs now.
_verb: ContextVar[str] = ContextVar("verb", default="")


class MissingExtra(InputError):
    """A package that is not installed is needed. Exit code 2."""


@functools.cache
def installed(package: str) -> bool:
    """Whether a package is installed, by import name; it is not imported."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def extra_of(package: str) -> str | None:
    """The extra that installs a package (by import name), for the verb that runs; None if no extra does."""
    verb = _verb.get()
    if package not in PACKAGES:
        return None
    if VERBS.get(verb) == ALL:
        return ALL
    name = PACKAGES[package][1]
    order = [VERBS[verb], *EXTRAS] if verb in VERBS else list(EXTRAS)
    return next((extra for extra in order if name in EXTRAS[extra]), None)


def install_command(extra: str) -> str:
    """How an extra is installed: from the checkout, since nobody has registered the name msdc on PyPI, and a command
    that names it would install whatever is registered there first.
    """
    return f"pip install '.[{extra}]' in the checkout of msdc"


def missing(package: str, what: str) -> MissingExtra:
    """`WHAT needs PyTorch: ` and `install_command`, to be raised; `package` is an import name of `PACKAGES`."""
    return MissingExtra(f"{what} needs {PACKAGES[package][0]}: {install_command(extra_of(package) or ALL)}")


def require(package: str, what: str) -> None:
    """Fail early if a package is not installed."""
    if not installed(package):
        raise missing(package, what)


@contextlib.contextmanager
def named_extras(what: str, verb: str = "") -> Iterator[None]:
    """Turn the missing import of a package of an extra into one line; any other error passes. Also a decorator.

    `what` is the subject of the line; the extra of `verb` is named if it has the package.
    """
    outer = _verb.set(verb or _verb.get())
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if extra_of(package) is None or installed(package):
            raise
        raise missing(package, what) from error
    finally:
        _verb.reset(outer)
