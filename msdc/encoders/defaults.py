"""What a model applies to every text unless told otherwise: prompts, and the width that vectors are cut to.

sentence-transformers keeps these in `config_sentence_transformers.json`; `include_prompt` is a setting of its pooling.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msdc.errors import InputError
from msdc.files import read_json, write_json

DEFAULTS_FILE = "config_sentence_transformers.json"
MAX_PROMPT_CHARACTERS = 16_384


@dataclass(frozen=True)
class EncodeDefaults:
    """`prompts` by name, the name of the default one, whether its tokens are pooled, and the width of vectors."""

    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    include_prompt: bool = True
    truncate_dim: int | None = None

    def prompt(self, prompt: str | None = None, prompt_name: str | None = None) -> str:
        """The text to put before every text; "" for none.

        Args:
            prompt: the text itself; "" switches the default prompt off.
            prompt_name: name of one of the model's prompts.

        Raises:
            InputError: both are given, or the model has no prompt of that name.
        """
        if prompt is not None and prompt_name is not None:
            raise InputError("give either prompt or prompt_name, not both")
        if prompt is not None:
            return prompt
        name = self.default_prompt if prompt_name is None else prompt_name
        if name is None:
            return ""
        if name not in self.prompts:
            known = ", ".join(sorted(self.prompts)) or "none"
            raise InputError(f"the model has no prompt {name!r}; its prompts: {known}")
        return self.prompts[name]

    def width(self, width: int, truncate_dim: int | None = None) -> int:
        """Numbers of a vector, given the model's own `width` and what the caller asks for.

        Raises:
            InputError: `truncate_dim` is not 1 to `width`.
        """
        wanted = self.truncate_dim if truncate_dim is None else truncate_dim
        if wanted is None:
            return width
        if truncate_dim is not None and not 1 <= wanted <= width:
            raise InputError(f"truncate_dim {wanted}: the model's vectors have {width} numbers")
        return min(wanted, width)

    def write(self, folder: Path) -> None:
        """Write `config_sentence_transformers.json` where there is something to say."""
        if self.prompts or self.truncate_dim is not None:
            value = {"prompts": dict(self.prompts), "default_prompt_name": self.default_prompt}
            extra = {} if self.truncate_dim is None else {"truncate_dim": self.truncate_dim}
            write_json(folder / DEFAULTS_FILE, {**value, **extra})


def with_prompt(prompt: str, texts: Sequence[str]) -> list[str]:
    """`prompt` before every text."""
    return [prompt + text for text in texts] if prompt else list(texts)


def read_defaults(folder: Path, include_prompt: bool = True) -> EncodeDefaults:
    """The defaults of a model folder; a folder without the file has none.

    Raises:
        InputError: the file is damaged, or its default prompt is not among its prompts.
    """
    path = folder / DEFAULTS_FILE
    if not path.is_file():
        return EncodeDefaults(include_prompt=include_prompt)
    value: Any = read_json(path)
    prompts = value.get("prompts") or {} if isinstance(value, dict) else None
    if not isinstance(prompts, dict) or not all(isinstance(p, str | None) for p in prompts.values()):
        raise InputError(f"{path}: prompts are not texts by name")
    if any(len(text or "") > MAX_PROMPT_CHARACTERS for text in prompts.values()):
        raise InputError(f"{path}: a prompt of more than {MAX_PROMPT_CHARACTERS} characters")
    name, truncate = value.get("default_prompt_name"), value.get("truncate_dim")
    if name is not None and name not in prompts:
        raise InputError(f"{path}: default_prompt_name {name!r} is not among the prompts")
    if truncate is not None and (not isinstance(truncate, int) or truncate < 1):
        raise InputError(f"{path}: truncate_dim {truncate!r} is not a width")
    return EncodeDefaults({key: text or "" for key, text in prompts.items()}, name, include_prompt, truncate)


class Configured:
    """A model whose `encode` uses the given prompt and width; everything else is the model's own.

    Raises:
        InputError: the model has no such prompt, or no such width.
    """

    def __init__(
        self,
        model: Any,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate_dim: int | None = None,
    ) -> None:
        defaults: EncodeDefaults = model.defaults
        self._model = model
        self._prompt = defaults.prompt(prompt, prompt_name)
        manifest = getattr(model, "manifest", None)
        whole = int(manifest.width if manifest is not None else model.module.width)
        self.width = defaults.width(whole, truncate_dim)
        self.name: str = model.name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def encode(self, texts: Sequence[str]) -> Any:
        """Vectors of `texts`, float32 [N, D]."""
        return self._model.encode(texts, prompt=self._prompt, truncate_dim=self.width)

    def fingerprint(self) -> str:
        """Hash of the model and of the settings."""
        text = f"{self._model.fingerprint()}\0{self.width}\0{self._prompt}"
        return hashlib.sha256(text.encode()).hexdigest()


def configured(
    model: Any, prompt_name: str | None = None, prompt: str | None = None, truncate_dim: int | None = None
) -> Any:
    """`model` as it is where nothing is asked for, else `Configured`."""
    if prompt_name is None and prompt is None and truncate_dim is None:
        return model
    return Configured(model, prompt_name, prompt, truncate_dim)
