"""A model's folder while it is loaded: the files of its weights, and its identity, the hash of all bytes read.

A folder may be replaced at any time, by a run that trains it again or by a copy. Weights are therefore read once,
hashed as they are read, and used from memory; all other files are hashed before and after, and a change is refused.
Everything that is cached or written under a model's identity comes from these bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import shorten

from msdc.encoders.folder import OWN_TYPE, read_layout
from msdc.errors import InputError, printable
from msdc.files import file_state, read_json, regular_size, sha256_file, sha256_named, without_system_files
from msdc.machine import memory_mib

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = f"{WEIGHTS_FILE}.index.json"
WEIGHTS_SUFFIX = ".safetensors"
# Read where a folder has no safetensors: tensors of a pickle, and nothing else of it.
PICKLE_FILE, PICKLE_SUFFIX = "pytorch_model.bin", ".bin"
# Files that affect a vector.
SUFFIXES = (WEIGHTS_SUFFIX, ".json", ".model", ".txt", ".py")
SHOWN = 3  # names of tensors in an error

Shape = Sequence[int]


class ModelSource:
    """A model folder while its model is loaded: `read` all weights, then get its `identity`.

    `name` is how messages call the model; None: the name of its folder.

    Raises:
        InputError: not a model folder; see `read_layout`.
    """

    def __init__(self, folder: Path, name: str | None = None) -> None:
        self.folder, self.layout, self.name = folder, read_layout(folder), name or folder.name
        self._weights: dict[Path, str] = {}
        self._unread: dict[Path, str] = {}  # hashes of weights files that no model has read
        self._settings, self._states = self._settings_now()

    @property
    def places(self) -> list[Path]:
        """The folders of the model's modules, in their order, as paths below `folder`."""
        root = self.folder.resolve()
        return [self.folder / path.resolve().relative_to(root) for path in self.layout.paths]

    def _files(self) -> list[Path]:
        """The folder's own files and those of its modules: weights, settings and tokenizer, in a fixed order."""
        places = dict.fromkeys([self.folder, *self.places])
        paths = [path for parent in places if parent.is_dir() for path in without_system_files(parent.iterdir())]
        # The modules.json of our students is for other libraries; it may name the equal model of stock classes.
        ignored = "modules.json" if self.layout.model_type == OWN_TYPE else ""
        return sorted(p for p in paths if p.suffix in SUFFIXES and p.name != ignored and not p.is_dir())

    def _settings_now(self) -> tuple[dict[Path, str], dict[Path, object]]:
        """Hashes of the settings, and the states of the weights, to detect a mixture of two models."""
        files = self._files()
        settings = {path: _hash(path) for path in files if path.suffix != WEIGHTS_SUFFIX}
        return settings, {path: file_state(path) for path in files if path.suffix == WEIGHTS_SUFFIX}

    @property
    def has_weights(self) -> bool:
        """Whether any weights were read."""
        return bool(self._weights)

    def read(self, path: Path) -> bytes:
        """The bytes of a weights file; their hash is recorded."""
        if (size := regular_size(path)) > memory_mib() * 2**20:
            raise InputError(f"{path}: {size} bytes, larger than the memory that this process may use")
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from error
        digest = hashlib.sha256(raw).hexdigest()
        if self._weights.setdefault(path, digest) != digest:
            raise self._changed()
        return raw

    def _changed(self) -> InputError:
        return InputError(f"{self.folder}: changed while it was loaded; load it again")

    def identity(self) -> str:
        """Hex sha256 over the names and bytes of all files that affect a vector, as they were read.

        Raises:
            InputError: the folder has changed since this object was created.
        """
        try:
            for path in self._states.keys() - self._weights.keys() - self._unread.keys():
                self._unread[path] = _hash(path)
            same = self._settings_now() == (self._settings, self._states) and read_layout(self.folder) == self.layout
        except (InputError, OSError):
            same = False
        if not same:
            raise self._changed()
        hashes = {**self._settings, **self._unread, **self._weights}
        # Sorted: files of one name (config.json of two modules) keep their order in a copied folder.
        return sha256_named(sorted(hashes.items()))


def _hash(path: Path) -> str:
    regular_size(path)
    try:
        return sha256_file(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


# How weights of other formats become safetensors, by the end of their files' names.
OTHER_WEIGHTS = {
    ".safetensors": "rename or copy it to " + WEIGHTS_FILE,
    ".bin": "load the model with transformers where it comes from and save it with `save_pretrained`",
    ".pt": "load its state in PyTorch and save the model with `save_pretrained`",
    ".pth": "load its state in PyTorch and save the model with `save_pretrained`",
    ".ckpt": "load its state in PyTorch and save the model with `save_pretrained`",
    ".h5": "load it with `from_pretrained(..., from_tf=True)` in transformers 4 and save it with `save_pretrained`",
    ".msgpack": "load it with `from_pretrained(..., from_flax=True)` in transformers 4, save it with `save_pretrained`",
    ".gguf": "a quantized export: use the checkpoint that it was converted from",
    ".onnx": "an export: use the checkpoint that it was made from",
    ".tflite": "an export: use the checkpoint that it was made from",
}  # fmt: skip


def _other_weights(folder: Path) -> str:
    """What to do about the weights of another format in a folder, in words; the most useful of several."""
    paths = [path for path in sorted(folder.rglob("*"))
             if path.suffix in OTHER_WEIGHTS and path.name != WEIGHTS_FILE and path.is_file()]  # fmt: skip
    if parts := [path for path in paths if "-of-" in path.name]:
        index = f"{PICKLE_FILE}.index.json" if parts[0].suffix == PICKLE_SUFFIX else INDEX_FILE
        return f"it has parts of the weights: download {index} too"
    if not paths:
        return "it has no weights"
    path = min(paths, key=lambda path: list(OTHER_WEIGHTS).index(path.suffix))
    return f"{shorten(printable(str(path.relative_to(folder))), 80)} is not read: {OTHER_WEIGHTS[path.suffix]}"


def weight_files(folder: Path) -> tuple[list[Path], set[str] | None]:
    """The weights files of a folder, and the tensors that their index lists; None without an index.

    They are `model.safetensors` or the parts in its index; only where both are absent `pytorch_model.bin` or its parts.
    """
    for name, suffix in ((WEIGHTS_FILE, WEIGHTS_SUFFIX), (PICKLE_FILE, PICKLE_SUFFIX)):
        if (folder / name).exists():
            return [folder / name], None
        if (index := folder / f"{name}.index.json").exists():
            return _parts(folder, index, suffix)
    raise InputError(f"{folder}: no {WEIGHTS_FILE} and no {INDEX_FILE}; {_other_weights(folder)}")


def _parts(folder: Path, index: Path, suffix: str) -> tuple[list[Path], set[str]]:
    value = read_json(index)
    listed = value.get("weight_map") if isinstance(value, dict) else None
    if not isinstance(listed, dict) or not listed:
        raise InputError(f"{index}: no weight_map")
    for name in listed.values():
        plain = isinstance(name, str) and Path(name).name == name and name.endswith(suffix)
        if not plain or "\\" in name:
            shown = shorten(printable(repr(name)), 80)
            raise InputError(f"{index}: {shown} is not a *{suffix} file next to it")
    return [folder / name for name in sorted(set(listed.values()))], set(listed)


def refuse_misfit(
    where: Path, missing: Iterable[str], unexpected: Iterable[str], shapes: Mapping[str, tuple[Shape, Shape]]
) -> None:
    """Refuse weights that do not fit their model: a missing tensor would be random.

    Args:
        where: folder of the weights, for the message.
        missing: tensors that the model has and the file lacks.
        unexpected: tensors that the file has and the model lacks.
        shapes: of tensors with another shape: (in the file, in the model).
    """

    def listed_names(kind: str, names: Iterable[str]) -> list[str]:
        names = sorted(names)
        first = ", ".join(shorten(printable(name), 100, placeholder="...") for name in names[:SHOWN])
        return [f"{kind}: {len(names)} ({first}{', ...' if len(names) > SHOWN else ''})"] if names else []

    wrong = {f"{name} {list(has)}, expected {list(shape)}" for name, (has, shape) in shapes.items()}
    problems = listed_names("missing tensors", missing) + listed_names("unexpected tensors", unexpected)
    if problems := problems + listed_names("tensors of another shape", wrong):
        raise InputError(f"{where}: weights do not fit config.json; {'; '.join(problems)}")


def refuse_other_tensors(where: Path, stored: Mapping[str, Shape], expected: Mapping[str, Shape]) -> None:
    """`refuse_misfit` for shapes by tensor name."""
    both = stored.keys() & expected.keys()
    shapes = {name: (stored[name], expected[name]) for name in both if list(stored[name]) != list(expected[name])}
    refuse_misfit(where, expected.keys() - stored.keys(), stored.keys() - expected.keys(), shapes)
