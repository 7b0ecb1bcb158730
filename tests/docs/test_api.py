"""docs/reference/api.md is made of the public docstrings."""

import enum
import inspect
import re
from types import ModuleType

from generated import check_generated
from places import ROOT

import msdc
from msdc import bench, compress, distill, export

PAGE = ROOT / "docs" / "reference" / "api.md"
PACKAGES = (msdc, distill, compress, export, bench)
INTRODUCTION = """# Python interface

<!-- Generated from docstrings by tests/docs/test_api.py; do not edit. -->

All functions raise `InputError` for invalid arguments and files, `MissingExtra` (an `InputError`) where an extra is not
installed, `GateError` for a failed gate, and `MsdcError` where a valid request fails. `help()` shows types, and when
which error is raised."""


def public(package: ModuleType) -> list[str]:
    """The names of `__all__`; of a package without one, the functions and classes that it defines itself."""
    defined = [name for name, thing in vars(package).items() if getattr(thing, "__module__", "") == package.__name__]
    return sorted(name for name in getattr(package, "__all__", defined) if not name.startswith("_"))


def text(thing: object) -> str:
    """The docstring in Markdown: arguments as a list, examples as they are, without Raises."""
    lines, section = [], ""
    for line in (inspect.getdoc(thing) or "").splitlines():
        if re.fullmatch(r"[A-Z][a-z]+:", line):
            section = line
            lines += [] if section == "Raises:" else [line, ""]
        elif section == "Raises:":
            continue
        elif section and section != "Example:":
            lines.append(re.sub(r"^    (\S+?):", r"* `\1`:", line) if not line.startswith("     ") else line[4:])
        else:
            lines.append(line.removeprefix("    ") if section else line)
    return "\n".join(lines).rstrip()


def signature(name: str, thing: object) -> str:
    """The call with names and defaults; types are in the source and in `help()`."""
    try:
        called = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    plain = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in called.parameters.values()
        if parameter.name != "self"
    ]
    return name + str(inspect.Signature(plain))


def members(kind: type) -> list[tuple[str, object]]:
    """Public methods and properties that the class itself defines, in the order of the source."""
    return [
        (name, thing)
        for name, thing in vars(kind).items()
        if not name.startswith("_") and (inspect.isfunction(thing) or isinstance(thing, property | classmethod))
        if inspect.getdoc(thing)
    ]


def without_repeats(name: str, page: str, shown: dict[str, str]) -> str:
    """A function's text without the arguments that another function of the package has in the same words."""
    arguments = re.findall(r"^\* (?:.*\n?)(?:    .*\n?)*", page, re.MULTILINE)
    repeated = [argument for argument in arguments if argument.strip() in shown]
    if len(repeated) > 10:
        for argument in repeated[1:]:
            page = page.replace(argument, "")
        page = page.replace(repeated[0], f"* the other arguments: those of `{shown[repeated[0].strip()]}`.\n").rstrip()
    shown |= {argument.strip(): name for argument in arguments}
    return page


def render() -> str:
    lines = [INTRODUCTION]
    for package in PACKAGES:
        lines += ["", f"## {package.__name__}"]
        printed: dict[str, str] = {}
        for name in public(package):
            thing = getattr(package, name)
            if not (inspect.isclass(thing) or inspect.isfunction(thing)):
                continue
            plain = inspect.isclass(thing) and issubclass(thing, Exception | enum.Enum)
            lines += ["", f"### {package.__name__}.{name}", ""]
            lines += [] if plain else ["```python", signature(name, thing), "```", ""]
            lines += [without_repeats(name, text(thing), printed)]
            for member, method in members(thing) if inspect.isclass(thing) and not plain else []:
                called = method.__func__ if isinstance(method, classmethod) else method
                shown = member if isinstance(method, property) else signature(member, called)
                lines += ["", f"**`{shown}`**", "", text(called)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def test_the_page_is_that_of_the_docstrings():
    check_generated(PAGE, render())
