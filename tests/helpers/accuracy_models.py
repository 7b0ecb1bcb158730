"""Simple encoders with known vectors, and a writer of scored pairs."""

import json
import zlib
from pathlib import Path

import numpy as np

from msdc.bench import evaluate_all
from msdc.bench.accuracy.document import read_document
from msdc.bench.report.page import evaluation_report, to_markdown
from msdc.text import quickstart

QUICKSTART = quickstart.FOLDER


class WordBag:
    """Sum of a fixed random vector per word and per letter trigram."""

    def __init__(self, width: int = 48, seed: int = 0, name: str = "bag"):
        self.width, self.seed, self.name, self.calls = width, seed, name, 0

    def _vector(self, feature: str) -> np.ndarray:
        generator = np.random.default_rng(zlib.crc32(f"{self.seed} {feature}".encode()))
        return generator.standard_normal(self.width)

    def encode(self, texts):
        self.calls += len(texts)
        out = np.zeros((len(texts), self.width), dtype=np.float32)
        for row, text in enumerate(texts):
            padded = f" {text.lower()} "
            features = padded.split() + [padded[i : i + 3] for i in range(len(padded) - 2)]
            out[row] = sum(self._vector(feature) for feature in features) / len(features)
        return out

    def fingerprint(self) -> str:
        return f"{self.seed:064d}"


class LookupEncoder:
    """Vectors given by the test."""

    def __init__(self, vectors: dict[str, np.ndarray], name: str = "table"):
        self.vectors, self.name = vectors, name
        self.width = len(next(iter(vectors.values())))

    def encode(self, texts):
        return np.array([self.vectors[text] for text in texts], dtype=np.float32)

    def fingerprint(self) -> str:
        return "0" * 64


class Constant:
    """The same vector for every text."""

    width, name = 8, "constant"

    def encode(self, texts):
        return np.full((len(texts), 8), 0.25, dtype=np.float32)


def write_pairs(path: Path, rows) -> Path:
    path.write_text("".join(f"{score}\t{first}\t{second}\n" for score, first, second in rows), encoding="utf-8")
    return path


def evaluated(model, tasks, **options) -> dict:
    """What `msdc evaluate --json` writes, read again."""
    return json.loads(json.dumps(evaluate_all(model, tasks, **options).as_json()))


def markdown(document: dict) -> str:
    """The Markdown report of a document."""
    return to_markdown(evaluation_report(read_document(document)))
