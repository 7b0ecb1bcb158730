"""The model card of a student: what it is, its training data, how to load it."""

from __future__ import annotations

from typing import Any

from msdc.distill.recipe import Recipe, model_name
from msdc.encoders.encoder import Encoder


def languages_of(recipe: Recipe) -> list[str]:
    """Languages a recipe names, source first."""
    found = [corpus.source for corpus in recipe.corpora] + [
        code for corpus in recipe.corpora for code in corpus.languages
    ]
    return list(dict.fromkeys(found))


def model_card(recipe: Recipe, encoder: Encoder, results: dict[str, dict[str, float]], seconds: float) -> str:
    """Markdown with the metadata block that model hubs read."""
    config: Any = getattr(encoder.module, "config", None)
    parameters = sum(p.numel() for p in encoder.module.parameters())
    lines = [
        "---",
        "library_name: sentence-transformers",
        "pipeline_tag: sentence-similarity",
        f"base_model: {model_name(recipe.teacher)}",
        "language:",
        *[f"- {code}" for code in languages_of(recipe)],
        "---",
        "",
        f"# {recipe.name}",
        "",
        recipe.about or "A multilingual sentence encoder trained with msdc.",
        "",
        f"* teacher: `{model_name(recipe.teacher)}`",
        f"* parameters: {parameters:,}; sentence width {encoder.width}; longest input {encoder.max_length} tokens",
    ]
    if config is not None and hasattr(config, "unit"):
        table = f"table {config.vocabulary} x {config.table_width}"
        lines.append(f"* {config.unit} stored layers applied {config.repeats} times, {table}")
    lines.append(f"* trained in {seconds / 60:.0f} minutes")
    if recipe.data_sources:
        lines += ["", "## Data", "", *[f"* {source}" for source in recipe.data_sources]]
    if recipe.licenses:
        lines += ["", "## Licenses", "", *[f"* {text}" for text in recipe.licenses]]
    lines += ["", "## Stages", "", "| stage | step chosen | held-out MSE | seconds |", "|---|---|---|---|"]
    for name, numbers in results.items():
        error = numbers.get("heldout_mse")
        shown = "" if error is None else f"{error:.6f}"
        lines.append(f"| {name} | {numbers.get('step', 0):.0f} | {shown} | {numbers.get('seconds', 0):.0f} |")
    lines += ["", "## Use", "", "```python", "import msdc", f'encoder = msdc.load_encoder("{recipe.name}")', "```", ""]
    return "\n".join(lines)
