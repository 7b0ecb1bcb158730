"""Results as Markdown, and as a section of the HTML report."""

from __future__ import annotations

from html import escape
from typing import Any

from msdc.bench.accuracy.blocks import Bars, Block, Points, Table, Text, blocks_of

COLOURS = ("#0b6e99", "#c2410c")
WIDTH, HEIGHT, MARGIN = 640, 420, 24


def as_documents(results: Any) -> list[dict[str, Any]]:
    """One document, several, or bare results of `evaluate`, as a list of documents."""
    if isinstance(results, dict):
        return [results] if "results" in results else [{"results": [results]}]
    items = list(results)
    if items and all("results" in item for item in items):
        return items
    return [{"results": items}] if items else []


def markdown(document: dict[str, Any]) -> str:
    """Every table of a document; pictures are left to the HTML."""
    parts = ["# Accuracy", ", ".join(model["label"] for model in document.get("models", []))]
    for block in blocks_of(document):
        if isinstance(block, Table):
            parts.append(
                f"## {block.title}\n\n{_markdown_table(block)}" + (f"\n\n{block.caption}" if block.caption else "")
            )
        elif isinstance(block, Text):
            parts.append(f"## {block.title}\n\n" + "\n".join(f"* {_cell(line)}" for line in block.lines))
    return "\n\n".join(part for part in parts if part) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _markdown_table(table: Table) -> str:
    lines = ["| " + " | ".join(map(_cell, table.columns)) + " |", "|" + "---|" * len(table.columns)]
    lines += ["| " + " | ".join(map(_cell, row)) + " |" for row in table.rows]
    return "\n".join(lines)


def report_section(results: Any) -> str:
    """A `<section>` of the report: tables and inline SVG, no outside links, every text escaped.

    `results` is a document of `msdc evaluate --json`, a list of them, or results of `evaluate`.
    """
    parts = ['<section class="accuracy">', "<h2>Accuracy</h2>"]
    for document in as_documents(results):
        names = ", ".join(model["label"] for model in document.get("models", []))
        if names:
            parts.append(f"<p>{escape(names)}</p>")
        parts += [_html(block) for block in blocks_of(document)]
    return "\n".join([*parts, "</section>"])


def page(document: dict[str, Any]) -> str:
    """The section as a page of its own."""
    style = (
        "body{font:16px/1.5 system-ui,sans-serif;margin:1rem auto;max-width:60rem;padding:0 1rem}"
        "table{border-collapse:collapse;display:block;overflow-x:auto}"
        "th,td{border:1px solid #ccc;padding:.25rem .5rem;text-align:left}"
        "svg{max-width:100%;height:auto}figcaption,.caption{color:#444;font-size:.9rem}"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Accuracy</title><style>{style}</style></head><body>\n{report_section(document)}\n</body></html>\n"
    )


def _html(block: Block) -> str:
    head = f"<h3>{escape(block.title)}</h3>"
    if isinstance(block, Table):
        columns = "".join(f'<th scope="col">{escape(column)}</th>' for column in block.columns)
        rows = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in block.rows)
        caption = f'<p class="caption">{escape(block.caption)}</p>' if block.caption else ""
        return f"{head}<table><thead><tr>{columns}</tr></thead><tbody>{rows}</tbody></table>{caption}"
    if isinstance(block, Text):
        return head + "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in block.lines) + "</ul>"
    drawing = scatter(block) if isinstance(block, Points) else bars(block)
    caption = f"<figcaption>{escape(block.caption)}</figcaption>" if block.caption else ""
    return f"{head}<figure>{drawing}{caption}</figure>"


def scatter(block: Points) -> str:
    """Inline SVG of the points of two languages, one shape and colour each."""
    everything = [point for side in block.points.values() for point in side]
    if not everything:
        return ""
    (left, right), (low, high) = ((min(axis), max(axis)) for axis in zip(*everything, strict=True))
    scale = min((WIDTH - 2 * MARGIN) / ((right - left) or 1.0), (HEIGHT - 3 * MARGIN) / ((high - low) or 1.0))
    shapes = []
    for order, (language, side) in enumerate(block.points.items()):
        colour = COLOURS[order % len(COLOURS)]
        for x, y in side:
            px, py = MARGIN + (x - left) * scale, HEIGHT - MARGIN - (y - low) * scale
            if order:
                shapes.append(f'<rect x="{px - 2:.1f}" y="{py - 2:.1f}" width="4" height="4" fill="{colour}"/>')
            else:
                shapes.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="2.4" fill="{colour}"/>')
        shapes.append(
            f'<text x="{MARGIN + 90 * order}" y="16" font-size="14" fill="{colour}">{escape(language)}</text>'
        )
    return _svg(block.title, HEIGHT, shapes)


def bars(block: Bars) -> str:
    """Inline SVG of a histogram, one row a bin."""
    top, total, step = max([*block.counts, 1]), sum(block.counts) or 1, 22
    shapes = []
    for row, (label, count) in enumerate(zip(block.labels, block.counts, strict=True)):
        y = 4 + row * step
        length = (WIDTH - 300) * count / top
        shapes.append(f'<text x="0" y="{y + 14}" font-size="13">{escape(label)}</text>')
        shapes.append(f'<rect x="130" y="{y + 2}" width="{length:.1f}" height="15" fill="{COLOURS[0]}"/>')
        text = f"{count} ({100 * count / total:.1f} %)"
        shapes.append(f'<text x="{136 + length:.1f}" y="{y + 14}" font-size="13">{text}</text>')
    return _svg(block.title, 8 + step * len(block.labels), shapes)


def _svg(title: str, height: int, shapes: list[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" xmlns="http://www.w3.org/2000/svg" font-family="sans-serif">'
        f"<title>{escape(title)}</title>{''.join(shapes)}</svg>"
    )
