"""The field by size, for benchmarks/models.py: STS2017 of the shipped models and of published ones, table and plot.

Scores of other models are those of the files in bench/accuracy/published, which name their sources. A size is a byte
per parameter and a tokenizer.
"""

import csv
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from results_page import ROOT

PUBLISHED = ROOT / "bench" / "accuracy" / "published"
TRACKS = ("en-en", "es-es", "ar-ar", "en-es", "en-ar", "en-tr")
TOKENIZER_MB = 5.1  # XLM-R's sentencepiece file


class FieldModel(NamedTuple):
    """Size and scores by track of a model; a track that no source has is absent."""

    name: str
    megabytes: float
    scores: Mapping[str, float]
    is_shipped: bool = False

    @property
    def mean(self) -> float | None:
        """The mean of all tracks, None where one is absent."""
        return float(np.mean([self.scores[track] for track in TRACKS])) if len(self.scores) == len(TRACKS) else None

    def cells(self) -> list[str]:
        """A row of the table."""
        values = [self.scores.get(track) for track in TRACKS]
        name, size = (f"**{self.name}**", ".1f") if self.is_shipped else (self.name, ".0f")
        return [name, f"{self.megabytes:{size}}", *("–" if x is None else f"{x:.1f}" for x in (*values, self.mean))]


def published_models() -> list[FieldModel]:
    """Students of Ding et al. 2022, and public models with scores of the same tracks."""
    models = []
    for file in ("msd_sts2017", "mteb_sts17"):
        for line in csv.DictReader((PUBLISHED / f"{file}.csv").read_text("utf-8").splitlines()[1:]):
            if file == "msd_sts2017" and not line["system"].startswith("MSD "):
                continue
            size = float(line.get("parameters_M") or float(line["embedding_M"]) + float(line["encoder_M"]))
            scores = {track: float(line[track]) for track in TRACKS if line[track]}
            models.append(FieldModel(line["system"].replace(", B ", ", bottleneck "), size + TOKENIZER_MB, scores))
    return models


# Readers' pages are light or dark, and an image follows what the system asks for.
STYLE = """<style>text{fill:#24292f}line{stroke:#d0d7de}.ground{fill:#fff}.shipped{fill:#c0392b}.peer{fill:#34495e}
@media (prefers-color-scheme:dark){text{fill:#c9d1d9}line{stroke:#30363d}.ground{fill:#0d1117}.shipped{fill:#ff7b72}
.peer{fill:#a5b4c3}}</style>
"""


def plot(models: Sequence[FieldModel]) -> str:
    """Mean Spearman of the tracks against megabytes (logarithmic), as SVG."""
    width, height, margin, bottom = 760, 400, 56, 46
    points = [(model, model.mean) for model in models if model.mean is not None]
    sizes, means = [model.megabytes for model, _ in points], [mean for _, mean in points]
    low, high = np.log10(min(sizes) * 0.85), np.log10(max(sizes) * 1.6)
    floor, top = min(means) - 2, max(means) + 2

    def position(size: float, value: float) -> tuple[float, float]:
        across = margin + (np.log10(size) - low) / (high - low) * (width - margin - 10)
        return float(across), float(height - bottom - (value - floor) / (top - floor) * (height - bottom - 14))

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
             f'font-size="13">{STYLE}<rect class="ground" width="{width}" height="{height}"/>']  # fmt: skip
    for tick in (10, 20, 50, 100, 200):
        column, line = position(tick, floor)
        parts.append(f'<line x1="{column:.0f}" y1="14" x2="{column:.0f}" y2="{line:.0f}"/>'
                     f'<text x="{column:.0f}" y="{line + 16:.0f}" text-anchor="middle">{tick} MB</text>')  # fmt: skip
    for tick in range(int(floor) // 5 * 5 + 5, int(top) + 1, 5):
        _, line = position(min(sizes), tick)
        parts.append(f'<line x1="{margin}" y1="{line:.0f}" x2="{width - 10}" y2="{line:.0f}"/>'
                     f'<text x="{margin - 6}" y="{line + 4:.0f}" text-anchor="end">{tick}</text>')  # fmt: skip
    for model, mean in points:
        column, line = position(model.megabytes, mean)
        kind = "shipped" if model.is_shipped else "peer"
        radius = 6 if model.is_shipped else 4
        parts.append(f'<circle cx="{column:.0f}" cy="{line:.0f}" r="{radius}" class="{kind}"/>')
        if not model.name.startswith("MSD "):
            end = column > 0.72 * width
            parts.append(f'<text x="{column - 9 if end else column + 9:.0f}" y="{line + 4:.0f}" class="{kind}" '
                         f'text-anchor="{"end" if end else "start"}">{model.name}</text>')  # fmt: skip
    parts.append(f'<text x="{width / 2:.0f}" y="{height - 6}" text-anchor="middle">Weights and tokenizer, int8; '
                 "mean Spearman x 100, six tracks of STS2017; no name: MSD's students</text></svg>")  # fmt: skip
    return "\n".join(parts) + "\n"
