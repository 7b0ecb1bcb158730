"""The list of sources: for each set of a recipe's data its origins, its license, its files and how each is read.

It is written in `sources/*.yaml`, one mapping of sets per file:

    ntrex:
      license: CC BY-SA 4.0
      origins:
        ntrex: {github: MicrosoftTranslator/NTREX, commit: 8561f6a..., sha256: ...}
      make:
        - file: ntrex/ntrex128.en-{language}.tsv.gz
          languages: {ar: arb, de: deu}
          read:
            - {form: aligned, source: NTREX-128/newstest2019-src.eng.txt, target: NTREX-128/newstest2019-ref.{code}.txt}

A path is that of a file in the origin, `KEY:path` where a set has several; `path!member` is a member of a zip or tar
archive. `{language}` is the key of a language, `{code}` what the source calls it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from msdc.distill.rebuild.forms import Reader
from msdc.distill.recipe import Strict
from msdc.errors import InputError, first_problem

FOLDER = Path(__file__).resolve().parent / "sources"
KINDS = ("github", "npm", "pypi", "debian", "url")
_READERS: TypeAdapter[list[Reader]] = TypeAdapter(list[Reader])


class Origin(Strict):
    """Where files come from: exactly one of `github`, `npm`, `pypi`, `debian` and `url`.

    Attributes:
        commit: of a repository, all 40 digits.
        version: of a package.
        sha256: of the list of the files that are read, as `sha256sum FILES | sha256sum` prints it; None where no copy
            of the source was at hand.
    """

    github: str | None = None
    npm: str | None = None
    pypi: str | None = None
    debian: str | None = None
    url: str | None = None
    commit: str | None = None
    version: str | None = None
    sha256: str | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Origin:
        if sum(getattr(self, kind) is not None for kind in KINDS) != 1:
            raise ValueError(f"an origin needs exactly one of {', '.join(KINDS)}")
        if self.github is not None and len(self.commit or "") != 40:
            raise ValueError("a repository needs its commit, all 40 digits")
        if (self.npm or self.pypi or self.debian) and not self.version:
            raise ValueError("a package needs its version")
        return self

    @property
    def kind(self) -> str:
        """The key that is set."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    def __str__(self) -> str:
        name = str(getattr(self, self.kind))
        version = (self.commit or "")[:10] or self.version
        return f"{self.kind} {name}" + (f" @ {version}" if version else "")


class Output(Strict):
    """Files of one name pattern, and how they are read."""

    file: str
    languages: dict[str, str] | tuple[str, ...] = ()
    clean: Literal["spaces", "marks", "interface", "names", "none"] = "spaces"
    read: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Target:
    """One file to make: its name below the data folder, its language ("" for English text), and its readers."""

    file: str
    language: str
    clean: str
    readers: tuple[Reader, ...]


def _filled(value: Any, language: str, code: str) -> Any:
    if isinstance(value, str):
        return value.replace("{language}", language).replace("{code}", code)
    if isinstance(value, Mapping):
        return {key: _filled(one, language, code) for key, one in value.items()}
    return [_filled(one, language, code) for one in value] if isinstance(value, (list, tuple)) else value


class SourceSet(Strict):
    """A set: where it is from, under which license, and the files that are made of it.

    Attributes:
        cannot: why the files cannot be made; then `make` needs nothing but their names.
    """

    license: str
    origins: dict[str, Origin] = Field(default_factory=dict)
    make: tuple[Output, ...]
    note: str = ""
    cannot: str = ""

    @functools.cached_property
    def targets(self) -> tuple[Target, ...]:
        """All files, with `{language}` and `{code}` filled in."""
        found = []
        for output in self.make:
            given = output.languages
            codes = given if isinstance(given, dict) else dict(zip(given, given, strict=True))
            for language, code in (codes or {"": ""}).items():
                readers = _READERS.validate_python(_filled(output.read, language, code))
                found.append(
                    Target(
                        _filled(output.file, language, code), language if codes else "", output.clean, tuple(readers)
                    )
                )
        return tuple(found)

    @model_validator(mode="after")
    def _is_whole(self) -> SourceSet:
        if self.cannot:
            return self
        for target in self.targets:
            for path in (path for reader in target.readers for path in reader.paths()):
                self.place(path)
        return self

    def place(self, path: str) -> tuple[str, str]:
        """The origin's key and the path in it, of `KEY:path`.

        Raises:
            ValueError: no such origin.
        """
        key, separator, rest = path.partition(":")
        if not separator and len(self.origins) == 1:
            return next(iter(self.origins)), path
        if not separator or key not in self.origins:
            raise ValueError(f"{path}: expected ORIGIN:path with one of {', '.join(self.origins)}")
        return key, rest


@functools.cache
def read_sources(folder: Path = FOLDER) -> dict[str, SourceSet]:
    """All sets by name.

    Raises:
        InputError: a file is wrong, or two sets make the same file.
    """
    sets: dict[str, SourceSet] = {}
    makers: dict[str, str] = {}
    for file in sorted(folder.glob("*.yaml")):
        tree = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        for name, entry in tree.items():
            try:
                sets[name] = SourceSet.model_validate(entry)
            except ValidationError as error:
                raise InputError(f"{file.name}: {name}: {first_problem(error)}") from error
            for target in sets[name].targets:
                if makers.setdefault(target.file, name) != name:
                    raise InputError(f"{file.name}: {name} and {makers[target.file]} both make {target.file}")
    return sets
