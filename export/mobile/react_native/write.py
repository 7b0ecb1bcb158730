"""Write a bundle's `react-native/`: a `tokenizer.json` for packages that run any sentence encoder, and a README.

react-native-executorch and executorch_flutter bring ExecuTorch and its tokenizer library; their program takes ids and
attention mask (the style "masked"). What that library makes of the tokenizer is tried here, on the golden texts, and
stated in the README.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msdc.export.executorch.program import read_pte
from msdc.export.golden import read_golden
from msdc.export.manifest import GOLDEN_FILE, Manifest
from msdc.export.options import ExportSettings
from msdc.export.readme import render
from msdc.files import write_text
from msdc.machine import versions
from msdc.processes import quiet
from msdc.text.tokenizer import JSON_FILE, write_fast_copy

HERE = Path(__file__).resolve().parent
FOLDER = "react-native"
LIBRARY = "pytorch_tokenizers"  # ExecuTorch's own, as its wheel brings it


def equal_ids(tokenizer: Any, texts: Sequence[str], rows: Sequence[Sequence[int]], ends: tuple[int, int]) -> int:
    """For how many texts an opened tokenizer of ExecuTorch's library gives the ids of `rows`.

    `ends` are the numbers of special ids that it is asked to add at both ends.
    """

    def ids(text: str) -> list[int] | None:
        try:
            return [int(number) for number in tokenizer.encode(text, *ends)]
        except (RuntimeError, UnicodeError):
            return None

    return sum(ids(text) == list(row) for text, row in zip(texts, rows, strict=True))


def _tried(kind: str, file: Path, texts: Sequence[str], rows: Sequence[Sequence[int]], ends: tuple[int, int]) -> str:
    """What ExecuTorch's tokenizer library makes of a file, in words."""
    output = None
    try:
        with quiet() as output:
            import pytorch_tokenizers as library

            opened = getattr(library, kind)()
            opened.load(str(file))
            equal = equal_ids(opened, texts, rows, ends)
    except ImportError:
        return "was not there to try it"
    except RuntimeError:
        reason = output.last_line().partition("] ")[2] if output is not None else ""
        return f"refuses it ({reason})" if reason else "refuses it"
    return f"gives the ids of the export for {equal} of {len(texts)} golden texts"


def write_react_native(stage: Path, manifest: Manifest, options: ExportSettings, model: Path | None) -> None:
    """Write `stage`/react-native for the bundle in `stage`, whose tokenizer, program and golden vectors are written.

    Raises:
        InputError: a SentencePiece model that is not a unigram one.
    """
    out = stage / FOLDER
    out.mkdir()
    part = manifest.tokenizer
    if part.kind == "sentencepiece":
        write_fast_copy(stage / part.file, out / JSON_FILE)
    else:
        shutil.copyfile(stage / part.file, out / JSON_FILE)
    golden = read_golden(stage)
    # The packages cut the last ids off, the export those before the last special id.
    uncut = [i for i, row in enumerate(golden["ids"]) if len(row) < manifest.max_length]
    texts, rows = ([golden[name][i] for i in uncut] for name in ("texts", "ids"))
    files = [("HFTokenizer", "CppHFTokenizer", out / JSON_FILE, f"`{JSON_FILE}`", (0, 0))]
    if part.kind == "sentencepiece":
        files.append(("SPTokenizer", "CppSPTokenizer", stage / part.file, f"`../{part.file}`", (1, 1)))
    kernels = sorted({name for method in read_pte(stage / manifest.program_files("executorch")[0]).methods
                      for name in method["outside"]})  # fmt: skip
    prompt = manifest.prompts.get(manifest.default_prompt or "", "")
    values = {
        "name": manifest.name,
        "program": manifest.program_files("executorch")[0],
        "width": str(manifest.width),
        "max_length": str(manifest.max_length),
        "executorch": manifest.versions["executorch"].split("+")[0],
        "library": f"{LIBRARY} {versions((LIBRARY,)).get(LIBRARY, '(not installed)')}",
        "tried": "\n".join(
            f"* {name}, {shown}: {_tried(kind, file, texts, rows, ends)}." for name, kind, file, shown, ends in files
        ),
        "pieces": f"`../{part.file}`" if part.kind == "sentencepiece" else "",
        "first": str(part.bos_id),
        "last": str(part.eos_id),
        "prompt": json.dumps(prompt, ensure_ascii=False) if prompt else "",
        "kernels": ", ".join(f"`{kernel}`" for kernel in kernels),
        "golden": GOLDEN_FILE,
    }
    write_text(out / "README.md", render((HERE / "README.md").read_text(encoding="utf-8"), values))
