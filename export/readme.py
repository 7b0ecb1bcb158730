"""The README.md inside a bundle: what an engineer needs to use it, with this bundle's own numbers."""

from __future__ import annotations

from msdc.export.manifest import GOLDEN_FILE, MANIFEST_FILE, Manifest


def _programs(manifest: Manifest) -> list[str]:
    lines = ["| runtime | files | bytes | mean cosine to float | min |", "|---|---|---|---|---|"]
    for name in manifest.runtimes:
        part = getattr(manifest.programs, name)
        files = [part.file] + ([part.data] if getattr(part, "data", None) else [])
        size = sum(manifest.files[file].bytes for file in files)
        parity = manifest.parity[name]  # type: ignore[index]
        names = " + ".join(f"`{file}`" for file in files)
        lines.append(f"| {name} | {names} | {size:,} | {parity.mean_cosine:.5f} | {parity.min_cosine:.5f} |")
    return lines


def _tokenizer(manifest: Manifest) -> list[str]:
    part = manifest.tokenizer
    if part.kind == "sentencepiece":
        first = f"`{part.file}` is a SentencePiece unigram model; its own ids are the rows of the token table."
    else:
        first = f"`{part.file}` is read by the `tokenizers` library; it adds the special ids itself."
    ids = [("first", part.bos_id), ("last", part.eos_id), ("padding", part.pad_id), ("unknown", part.unk_id)]
    named = ", ".join(f"{name} {value}" for name, value in ids if value is not None)
    return [
        first,
        f"Special ids: {named}. A row is the first id, the text's ids, the last id; at most {manifest.max_length} in",
        f"all: cut the text's ids to {manifest.max_length - 2}, then add the two special ones.",
    ]


def _executorch(manifest: Manifest) -> list[str]:
    part = manifest.programs.executorch
    if part is None:
        return []
    if part.style == "forward":
        steps = ["`forward(ids int64 [1, T]) -> float32 [1, D]`."]
    else:
        steps = [
            "`embed(ids int64 [1, T]) -> hidden [1, T, H]`, then `unit(hidden) -> hidden` called "
            f"**{part.repeats}** time{'s' if part.repeats > 1 else ''}, then `pool(hidden) -> float32 [1, D]`.",
            "The unit's weights are stored and packed once, however often it is called.",
        ]
    return [
        "## ExecuTorch",
        "",
        *steps,
        f"T is 1 to {manifest.max_length}, without padding; D is {manifest.width}.",
        "Constant methods `repeats`, `width`, `max_length` and `vocabulary` give the same numbers as the manifest.",
        "Link the XNNPACK backend and the optimized and quantized kernels. Load the program memory-mapped: the token",
        "table is then paged in row by row instead of being read whole.",
        "",
    ]


def _onnx(manifest: Manifest) -> list[str]:
    part = manifest.programs.onnx
    if part is None:
        return []
    return [
        "## ONNX Runtime",
        "",
        "Inputs `input_ids` and `attention_mask`, int64 [B, T], mask 1 on real tokens and 0 on padding; output",
        f"`sentence_embedding`, float32 [B, {manifest.width}]. Opset {part.opset}. `{part.data}` must lie beside",
        f"`{part.file}`: it holds the weights and is memory-mapped. On a busy machine set the session option",
        "`session.intra_op.allow_spinning` to 0.",
        "",
    ]


def bundle_readme(manifest: Manifest) -> str:
    """Markdown for `manifest`."""
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
        "## Text to ids",
        "",
        *_tokenizer(manifest),
        "",
        *_executorch(manifest),
        *_onnx(manifest),
        "## Is it right on my device?",
        "",
        f"`{GOLDEN_FILE}` holds texts in many scripts, their ids, and the vectors of the float model and of each",
        "program (base64, little-endian float32). Your ids must be equal; the cosines of your vectors to the program's",
        "own must have a mean of at least 0.999, none under 0.99 (processors round activations in their own way).",
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
        lines += ["**Written with --no-gates: nobody checked that this bundle is good enough.**", ""]
    if manifest.licenses:
        lines += ["## Licenses", "", *[f"* {text}" for text in manifest.licenses], ""]
    if manifest.data_sources:
        lines += ["## Data", "", *[f"* {text}" for text in manifest.data_sources], ""]
    return "\n".join(lines)
