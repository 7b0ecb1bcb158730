"""The picture of `msdc search` in the README: questions and a word, and the notes that answer them, as SVG.

python benchmarks/search_picture.py --write docs/images/search.svg
"""

import argparse
import contextlib
import io
import tempfile
from html import escape
from pathlib import Path

from msdc.cli import main as msdc
from msdc.files import write_text

NOTES = ["My car is parked on level 2.", "La reunión empieza a las nueve.", "Der Arzt hat am Dienstag angerufen.",
         "Elektrik faturası cuma günü ödenmeli.", "Le passeport est dans le tiroir bleu."]  # fmt: skip
QUESTIONS = ["Wo habe ich das Auto geparkt?", "when do we meet?", "¿cuándo pago la luz?", "passeport"]
WIDTH, LINE, LEFT = 560, 20, 14


def first_lines(questions: list[str]) -> list[str]:
    """What `msdc search` prints: of each question its text, the heads of the table, and the first hit."""
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder) / "notes.txt"
        notes.write_text("\n".join(NOTES) + "\n", encoding="utf-8")
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            msdc(["search", str(notes), *questions, "--top", "1", "-q"])
    return [line for line in out.getvalue().splitlines() if line.strip()]


def drawing(lines: list[str]) -> str:
    """Lines of a terminal: the notes, then each question with its hit."""
    shown = [("#7f8c8d", "notes.txt"), *(("#bdc3c7", f"  {number} {note}") for number, note in enumerate(NOTES, 1))]
    for question, heads, hit in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        shown += [("", ""), ("#f1c40f", f'$ msdc search notes.txt "{question}"'), ("#7f8c8d", heads), ("#2ecc71", hit)]
    height = LINE * len(shown) + 2 * LEFT
    rows = [
        f'<text x="{LEFT}" y="{LEFT + LINE * number + 12}" fill="{color}" xml:space="preserve">{escape(text)}</text>'
        for number, (color, text) in enumerate(shown)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="monospace" '
        f'font-size="14"><rect width="{WIDTH}" height="{height}" rx="8" fill="#22272e"/>\n'
        + "\n".join(rows)
        + "</svg>\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, default=Path("docs/images/search.svg"), metavar="FILE")
    options = parser.parse_args()
    write_text(options.write, drawing(first_lines(QUESTIONS)))


if __name__ == "__main__":
    main()
