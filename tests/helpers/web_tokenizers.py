"""The web module's tokenizer in Node."""

import shutil
from pathlib import Path
from typing import Any

from programs import ask_node

from msdc.export.mobile.web.write import SOURCES, with_tokenizers

SCRIPT = Path(__file__).parents[1] / "export/mobile/web/tokenize.mjs"


def tokenizer_module(folder: Path) -> Path:
    """The module's sources as Node reads them: the path of the tokenizer's."""
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
    (folder / "package.json").write_text('{"type": "module"}')
    module = folder / "tokenizer.js"
    module.write_text(with_tokenizers(module.read_text(encoding="utf-8")), encoding="utf-8")
    return module


def manifest_of(kind: str, bos: int = 2, eos: int = 3) -> dict[str, Any]:
    """What the tokenizer reads of a bundle's manifest."""
    return {"name": "bundle", "max_length": 128, "vocabulary": 1 << 20,
            "tokenizer": {"kind": kind, "bos_id": bos, "eos_id": eos}}  # fmt: skip


def ids_in_node(module: Path, file: Path, manifest: dict[str, Any], texts: list[str]) -> list[list[int]]:
    return ask_node(
        SCRIPT, file.parent, {"module": str(module), "file": str(file), "manifest": manifest, "texts": texts}
    )
