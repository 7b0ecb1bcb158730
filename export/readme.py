"""README files: the facts of a model's card that a bundle repeats, and the README.md inside a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import yaml

from msdc.export.manifest import GOLDEN_FILE, MANIFEST_FILE, Manifest
from msdc.export.runtimes import RUNTIMES

MAX_CARD_BYTES = 1024 * 1024
MAX_ENTRIES = 200


class CardFacts(NamedTuple):
    """Languages, licenses and data sources of a model; empty where its card states none."""

    languages: tuple[str, ...] = ()
    licenses: tuple[str, ...] = ()
    data_sources: tuple[str, ...] = ()


def read_card(folder: Path | None) -> CardFacts:
    """Facts of `folder`'s README.md: its metadata block, then the bullets of its sections Licenses and Data.

    A missing or unreadable card gives no facts; it never fails an export.
    """
    path = folder / "README.md" if folder is not None else None
    if path is None or not path.is_file() or path.stat().st_size > MAX_CARD_BYTES:
        return CardFacts()
    text = path.read_text(encoding="utf-8", errors="replace")
    head = text[4:].split("\n---", 1)[0] if text.startswith("---\n") and "\n---" in text[4:] else ""
    try:
        # An alias in a metadata block is a mistake or an expansion attack.
        block = {} if "&" in head or "*" in head else yaml.safe_load(head)
    except (yaml.YAMLError, ValueError):
        block = {}
    block = block if isinstance(block, dict) else {}

    def listed(key: str, title: str) -> tuple[str, ...]:
        section = text.partition(f"\n## {title}\n")[2].split("\n## ", 1)[0]
        bullets = [line[2:].strip() for line in section.splitlines() if line.startswith(("* ", "- "))]
        value: Any = bullets if title and bullets else block.get(key)
        values = value if isinstance(value, list) else [value] if value else []
        return tuple(str(item)[:500] for item in values if isinstance(item, (str, int)))[:MAX_ENTRIES]

    return CardFacts(listed("language", ""), listed("license", "Licenses"), listed("datasets", "Data"))


def _tokenizer(manifest: Manifest) -> list[str]:
    part = manifest.tokenizer
    if part.kind == "sentencepiece":
        first = f"`{part.file}` is a SentencePiece unigram model; its own ids are the rows of the token table."
    else:
        first = f"`{part.file}` is read by the `tokenizers` library; it adds the special ids itself."
        if part.compiled:
            first += f" `{part.compiled}` is the same tokenizer compiled for the native core."
    ids = [("first", part.bos_id), ("last", part.eos_id), ("padding", part.pad_id), ("unknown", part.unk_id)]
    named = ", ".join(f"{name} {value}" for name, value in ids if value is not None)
    return [
        first,
        f"Special ids: {named}. A row is the first id, the text's ids, the last id; at most {manifest.max_length} in",
        f"all: truncate the text's ids to {manifest.max_length - 2}, then add the two special ones.",
    ]


def bundle_readme(manifest: Manifest, folders: tuple[str, ...] = ()) -> str:
    """Markdown for `manifest`. `folders` are those of its native module and of the sample app, as far as written."""
    normal = "L2-normalised: a dot product is the cosine" if manifest.normalized else "compare by cosine"
    lines = [
        f"# {manifest.name}",
        "",
        f"A sentence encoder for **{manifest.target}**: text in, {manifest.width} float32 numbers out, {normal}.",
        f"Precision {manifest.precision}, longest input {manifest.max_length} tokens, vocabulary",
        f"{manifest.vocabulary:,}. Languages: {', '.join(manifest.languages) or 'not stated'}.",
        "",
        "| runtime | files | bytes | mean cosine to float | min |",
        "|---|---|---|---|---|",
    ]
    for name in manifest.runtimes:
        size, parity = manifest.program_bytes(name), manifest.parity[name]
        names = " + ".join(f"`{file}`" for file in manifest.program_files(name))
        lines.append(f"| {name} | {names} | {size:,} | {parity.mean_cosine:.5f} | {parity.min_cosine:.5f} |")
    lines += ["", "Pooling and normalisation are inside the programs.", ""]
    if folders:
        app = f"[`{folders[0]}/`]({folders[0]}/README.md) is the module for apps: how to add it, what an app grows by."
        for sample in folders[1:]:
            app += f" [`{sample}/`]({sample}/README.md) is a sample app that uses it."
        lines += ["## In an app", "", app, ""]
    lines += [
        "## Text to ids",
        "",
        *_tokenizer(manifest),
        "",
        *(line for name in manifest.runtimes for line in RUNTIMES[name].readme(manifest)),
        "## Check a device",
        "",
        f"`{GOLDEN_FILE}` holds texts in many scripts, their ids, and the vectors of the float model and of each",
        "program (base64, little-endian float32). Your ids must be equal; the cosines of your vectors to the program's",
        "own must have a mean of at least 0.999, none under 0.99 (rounding of activations differs between processors).",
        f"`{MANIFEST_FILE}` lists size and sha256 of every file; check them before you load.",
        "",
        "From Python:",
        "",
        "```python",
        "import msdc",
        "bundle = msdc.load_bundle('.')",
        "bundle.encode(['a sentence'])",
        "```",
        "",
    ]
    if manifest.gates == "skipped":
        lines += ["**Written with --no-gates: the quality gates were not applied.**", ""]
    for title, texts in (("Licenses", manifest.licenses), ("Data", manifest.data_sources)):
        if texts:
            lines += [f"## {title}", "", *[f"* {text}" for text in texts], ""]
    return "\n".join(lines)
