"""The README.md inside a bundle: how to use it, with its own numbers."""

from __future__ import annotations

from msdc.export.manifest import GOLDEN_FILE, MANIFEST_FILE, Manifest
from msdc.export.runtimes import RUNTIMES


def _programs(manifest: Manifest) -> list[str]:
    lines = ["| runtime | files | bytes | mean cosine to float | min |", "|---|---|---|---|---|"]
    for name in manifest.runtimes:
        size, parity = manifest.program_bytes(name), manifest.parity[name]
        names = " + ".join(f"`{file}`" for file in manifest.program_files(name))
        lines.append(f"| {name} | {names} | {size:,} | {parity.mean_cosine:.5f} | {parity.min_cosine:.5f} |")
    return lines


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


def _module(folders: tuple[str, ...]) -> list[str]:
    if not folders:
        return []
    named = f"[`{folders[0]}/`]({folders[0]}/README.md) is the module for apps: how to add it, what an app grows by."
    if len(folders) > 1:
        named += f" [`{folders[1]}/`]({folders[1]}/README.md) is a sample app that uses it."
    return ["## In an app", "", named, ""]


def bundle_readme(manifest: Manifest, folders: tuple[str, ...] = ()) -> str:
    """Markdown for `manifest`. `folders` are those of its native module and of the sample app, as far as written."""
    normal = "L2-normalised: a dot product is the cosine" if manifest.normalized else "compare by cosine"
    languages = ", ".join(manifest.languages) or "not stated"
    lines = [
        f"# {manifest.name}",
        "",
        f"A sentence encoder for **{manifest.target}**: text in, {manifest.width} float32 numbers out, {normal}.",
        f"Precision {manifest.precision}, longest input {manifest.max_length} tokens, vocabulary",
        f"{manifest.vocabulary:,}. Languages: {languages}.",
        "",
        *_programs(manifest),
        "",
        "Pooling and normalisation are inside the programs.",
        "",
        *_module(folders),
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
        lines += ["**Written with --no-gates: this bundle was not held to the quality gates.**", ""]
    if manifest.licenses:
        lines += ["## Licenses", "", *[f"* {text}" for text in manifest.licenses], ""]
    if manifest.data_sources:
        lines += ["## Data", "", *[f"* {text}" for text in manifest.data_sources], ""]
    return "\n".join(lines)
