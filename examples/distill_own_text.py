"""Train a student on your own parallel text.

    python examples/distill_own_text.py OUT
    python examples/distill_own_text.py OUT --corpus mine.en-de.tsv --languages de --steps 2000

A corpus is a tab-separated file of English and translation with a name ending in .en-de.tsv, or a table with language
codes in its header, such as the embedded corpus (the default). The default number of steps shows the workflow in about
a minute; it does not train a good model.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msdc
from msdc.distill import distill

EMBEDDED = Path(msdc.__file__).parent / "data" / "quickstart" / "parallel.tsv"


def main() -> None:
    """Train a student on a corpus and try it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="run folder")
    parser.add_argument("--corpus", default=str(EMBEDDED))
    parser.add_argument("--languages", default="de,es", help="target languages")
    parser.add_argument("--teacher", default="all-MiniLM-L6-v2", help="any English sentence encoder")
    parser.add_argument("--layers", default="0,4,5", help="layers of the teacher that the student keeps")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    layers = [int(number) for number in options.layers.split(",")]

    # The same mapping in a YAML file is a recipe for `msdc distill FILE`.
    result = distill(
        {
            "name": "own-text",
            "teacher": options.teacher,
            # The teacher's layers with a SentencePiece vocabulary trained on the corpus; rows by word alignment.
            "assistant": {"vocabulary": {"train": 2000}, "rows": "alignment", "max_length": 64},
            "student": {"bottleneck": 64, "layers": layers, "repeats": 1, "max_length": 64},
            "corpora": [{"path": options.corpus, "languages": options.languages.split(",")}],
            "heldout": {"pairs": 20, "share": 0.05},
            "stages": [
                {"name": "train", "teacher": "teacher", "objective": "multilingual_mse", "steps": options.steps,
                 "batch": 32, "max_length": 64, "learning_rate": 2e-4, "table_learning_rate": 2e-3},
            ],
        },
        options.out,
    )  # fmt: skip
    student = msdc.load_encoder(result.student)
    one, two = student.encode(["Where is the station?", "Wo ist der Bahnhof?"])
    print(f"student: {result.student}, width {student.width}, cosine of a translation {float(one @ two):.3f}")


if __name__ == "__main__":
    main()
