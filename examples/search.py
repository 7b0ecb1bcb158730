"""Semantic search across languages with the shipped student.

    python examples/search.py
    python examples/search.py "wo ist mein Auto?" --model bundle

Encodes a few notes, then ranks them by cosine similarity with the query. `--model` takes a shipped name, a folder of
sentence-transformers layout, a hub id, or an exported bundle.
"""

from __future__ import annotations

import argparse

import msdc
from msdc.encoders.encoder import open_model

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

    # For a float model or a student alone, `msdc.load_encoder`; for a bundle alone, `msdc.load_bundle`.
    model = open_model(options.model)
    notes_ND = model.encode(NOTES)
    query_1D = model.encode([options.query])
    # Vectors have length 1, so the product is the cosine.
    scores_N = (notes_ND @ query_1D.T)[:, 0]
    print(f"msdc {msdc.__version__}, {model.name}: {options.query}")
    for place in scores_N.argsort()[::-1]:
        print(f"{scores_N[place]:.3f}  {NOTES[place]}")


if __name__ == "__main__":
    main()
