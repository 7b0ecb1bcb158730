"""Open a model folder for the generic way: the modules of sentence-transformers, a tokenizer, the longest input."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from msdc.encoders.locate import locate_model
from msdc.errors import InputError
from msdc.files import read_json, sha256_files
from msdc.text.tokenizer import Tokenizer, load_tokenizer

# Longest input where the model allows more: memory of a program is planned for its longest input.
LONGEST = 512


@dataclass(frozen=True)
class GenericSource:
    """A model as sentence-transformers loads it."""

    name: str
    folder: Path
    modules: list[nn.Module]
    tokenizer: Tokenizer
    max_length: int

    def fingerprint(self) -> str:
        """sha256 over weights, settings and tokenizer."""
        files = [p for p in self.folder.rglob("*") if p.suffix in (".safetensors", ".json", ".model", ".txt")]
        return sha256_files(files)


def open_source(path_or_name: str | Path) -> GenericSource:
    """Load a folder with sentence-transformers: stock modules and safetensors only.

    Raises:
        InputError: no such model, or one that cannot be loaded.
    """
    folder = locate_model(path_or_name)
    listed = read_json(folder / "modules.json") if (folder / "modules.json").is_file() else [{"path": "", "type": ""}]
    for entry in listed:
        kind = str(entry.get("type", ""))
        if kind and not kind.startswith("sentence_transformers."):
            raise InputError(f"{folder}: module {kind!r} is not a stock class; it is not loaded")
    body = folder / str(listed[0].get("path", ""))
    if not list(body.glob("*.safetensors")):
        raise InputError(f"{body}: no .safetensors weights; other weight files are not read")
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise InputError("the generic way needs sentence-transformers: pip install sentence-transformers") from error
    try:
        model = SentenceTransformer(
            str(folder), device="cpu", local_files_only=True, model_kwargs={"use_safetensors": True}
        ).eval()
    except Exception as error:
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise InputError(f"{folder}: sentence-transformers cannot load it: {reason}") from error
    modules: list[nn.Module] = list(model)
    config = getattr(getattr(modules[0], "model", None), "config", None)
    longest = model.max_seq_length
    most = LONGEST if longest is None or longest > LONGEST else int(longest)
    pad_id = getattr(config, "pad_token_id", None) or 0
    return GenericSource(Path(str(path_or_name)).name, folder, modules, load_tokenizer(body, int(pad_id)), most)
