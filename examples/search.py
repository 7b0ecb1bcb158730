"""Semantic search across languages with the shipped student.

    python examples/search.py
    python examples/search.py "wo ist mein Auto?" --model bundle

Indexes a few notes, then ranks them by cosine similarity with the query. `--model` takes a shipped name, a folder of
sentence-transformers layout, a hub id, or an exported bundle.
"""

from __future__ import annotations

import argparse

import msdc

NOTES = [
    "The car is in the second row of the parking garage.",
    "La reunión del lunes empieza a las nueve.",
    "Grandma's apple pie: bake for fifty minutes.",
    "Le chat doit aller chez le vétérinaire mardi.",
    "Passwort des Routers: auf der Rückseite.",
]


def main() -> None:
    """Rank the notes for a query."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("query", nargs="?", default="Wo habe ich das Auto geparkt?")
    parser.add_argument("--model", default="msdc-mini")
    options = parser.parse_args()

    index = msdc.open_index(NOTES, options.model)
    print(f"msdc {msdc.__version__}, {index.model.name}: {options.query}")
    for hit in index.search(options.query, top=len(NOTES)).hits:
        print(f"{hit.cosine:.3f}  {hit.text}")


if __name__ == "__main__":
    main()
