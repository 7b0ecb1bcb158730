"""What a code keeps of a dense token table, against SVD, 4 bits, product and residual quantization at equal bytes.

    python benchmarks/coded_table.py --write docs/results/coded_table.md

Each table is centred (its weighted mean moves into the positions, whichever way it is stored), approximated, and put
back; the rest of the model stays float. Pieces are weighted by the vocabulary's own frequencies, in every way.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from results_page import add_write_option, model_version, table, write_page
from torch import Tensor

from msdc.compress.quantization.weights import dequantize_rows, quantize_block, quantize_columns
from msdc.compress.student.code_fit import code_bytes, fit_code, kept_variance
from msdc.compress.student.cut import weighted_svd
from msdc.compress.student.from_transformers import to_student
from msdc.compress.texts import own_frequency, quickstart_texts
from msdc.encoders.encoder import Encoder, load_encoder
from msdc.scores import cosine_rows, spearman

SHARES = (1 / 8, 1 / 4, 1 / 2)
CENTROIDS = 256
LEGEND = (
    "Variance is that of the rows around their mean. Cosine and rank loss (100 minus Spearman x 100 of the "
    "similarities of all pairs) compare sentence vectors with the float model's on 256 sentences of the embedded "
    "corpus; nothing was trained after the table was replaced. Seconds are of one thread on a shared machine."
)
KMEANS_ROUNDS = 12


@dataclass(frozen=True)
class Way:
    """One way to store a table: its name, bytes, and the table as read back."""

    name: str
    bytes: int
    rows_VE: Tensor


def int8(rows: Tensor) -> Tensor:
    """A matrix through int8, one scale per row."""
    return dequantize_rows(*quantize_block(rows, rows.shape[1], "int8", "float32"))


def kmeans(rows_VE: Tensor, weight_V: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """(centroids [256, E], assignment [V]), weighted; starts from rows drawn by weight."""
    generator = torch.Generator().manual_seed(seed)
    centre_CE = rows_VE[torch.multinomial(weight_V, CENTROIDS, generator=generator)].clone()
    nearest_V = torch.zeros(len(rows_VE), dtype=torch.int64)
    for _ in range(KMEANS_ROUNDS):
        nearest_V = (rows_VE @ centre_CE.T - 0.5 * centre_CE.square().sum(1)).argmax(1)
        total_C1 = torch.zeros(CENTROIDS).index_add_(0, nearest_V, weight_V).unsqueeze(1)
        sum_CE = torch.zeros_like(centre_CE).index_add_(0, nearest_V, rows_VE * weight_V.unsqueeze(1))
        centre_CE = torch.where(total_C1 > 0, sum_CE / total_C1.clamp(min=1e-20), centre_CE)
    return centre_CE, (rows_VE @ centre_CE.T - 0.5 * centre_CE.square().sum(1)).argmax(1)


def product(rows_VE: Tensor, weight_V: Tensor, budget: int) -> Way | None:
    """Product quantization (Jegou et al. 2011): m parts of a row, 256 int8 centroids each."""
    V, E = rows_VE.shape
    # Parts divide a row, so there are few sizes: one that is 2 % above the budget is taken too.
    fitting = [m for m in range(1, E + 1) if E % m == 0 and V * m + CENTROIDS * (E + 4 * m) <= 1.02 * budget]
    if not fitting:
        return None
    m = max(fitting)
    parts = []
    for number, part in enumerate(rows_VE.split(E // m, 1)):
        centre, nearest = kmeans(part.contiguous(), weight_V, number)
        parts.append(int8(centre)[nearest])
    return Way(f"product quantization, {m} parts", V * m + CENTROIDS * (E + 4 * m), torch.cat(parts, 1))


def residual(rows_VE: Tensor, weight_V: Tensor, budget: int) -> Way | None:
    """k-means with residuals: m books of 256 int8 rows, each for what the ones before left."""
    V, E = rows_VE.shape
    m = budget // (V + CENTROIDS * (E + 4))
    if not m:
        return None
    found_VE = torch.zeros_like(rows_VE)
    for number in range(m):
        centre, nearest = kmeans(rows_VE - found_VE, weight_V, number)
        found_VE = found_VE + int8(centre)[nearest]
    return Way(f"k-means with residuals, {m} books", m * (V + CENTROIDS * (E + 4)), found_VE)


def svd(rows_VE: Tensor, weight_V: Tensor, budget: int, four_bits: bool) -> Way | None:
    """Narrower rows in int8 or 4 bits, and an int8 map back."""
    V, E = rows_VE.shape
    per_row = (lambda r: r // 2 + r // 16) if four_bits else (lambda r: r + 4)
    widths = [r for r in range(32 if four_bits else 1, E + 1) if not four_bits or r % 32 == 0]
    fitting = [r for r in widths if V * per_row(r) + E * (r + 4) <= budget]
    if not fitting:
        return None
    r = max(fitting)
    narrow, project = weighted_svd(rows_VE, weight_V, r)
    narrow = dequantize_rows(*quantize_block(narrow, 32, "int4", "float16")) if four_bits else int8(narrow)
    kind = "4 bits" if four_bits else "int8"
    return Way(f"SVD to {r}, {kind}", V * per_row(r) + E * (r + 4), narrow @ int8(project.T).T)


def coded(rows_VE: Tensor, weight_V: Tensor, budget: int, links: int) -> Way | None:
    """A code of as many base rows as the bytes allow."""
    V, E = rows_VE.shape
    base_rows = (budget - V * links * 3) // (E + 4)
    if base_rows < 64:
        return None
    code = fit_code(rows_VE, base_rows, links, weight_V)
    weight = dequantize_rows(*quantize_columns(code.weight_Vk))
    rows = torch.nn.functional.embedding_bag(
        code.index_Vk.long(), int8(code.base_RE), per_sample_weights=weight, mode="sum"
    )
    return Way(f"code, {links} of {base_rows:,} base rows", code_bytes(V, base_rows, links, E), rows)


def ways(rows_VE: Tensor, weight_V: Tensor, budget: int, links: tuple[int, ...]) -> Iterator[tuple[Way, float]]:
    """Every way that fits the budget, with the seconds it took."""
    makers = [lambda: svd(rows_VE, weight_V, budget, False), lambda: svd(rows_VE, weight_V, budget, True),
              lambda: product(rows_VE, weight_V, budget), lambda: residual(rows_VE, weight_V, budget)]  # fmt: skip
    makers += [lambda k=k: coded(rows_VE, weight_V, budget, k) for k in links]  # type: ignore[misc]
    for make in makers:
        began = time.monotonic()
        found = make()
        if found is not None:
            yield found, time.monotonic() - began


def similarity(vectors_ND: np.ndarray) -> np.ndarray:
    """Cosines of all pairs."""
    unit_ND = vectors_ND / np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    return (unit_ND @ unit_ND.T)[np.triu_indices(len(unit_ND), 1)]


def measure(name: str, shares: tuple[float, ...], links: tuple[int, ...], texts: list[str]) -> str:
    """The table of one model."""
    encoder = load_encoder(name)
    student = to_student(encoder)
    table_VE = student.embedding.table.weight.detach().float()
    V, E = table_VE.shape
    found = own_frequency(encoder.tokenizer, V)
    frequency_V = torch.ones(V) if found is None else found
    mean_E = (frequency_V / frequency_V.sum()) @ table_VE
    rows_VE = table_VE - mean_E
    whole = V * (E + 4)
    truth_ND = encoder.encode(texts)
    truth = similarity(truth_ND)
    lines = []

    def score(way: Way, seconds: float | None) -> None:
        trial = copy.deepcopy(student)
        trial.embedding.table.weight.data = way.rows_VE + mean_E
        vectors_ND = Encoder(trial, encoder.tokenizer, encoder.max_length, "trial").encode(texts)
        cosine = float(cosine_rows(vectors_ND, truth_ND).mean())
        loss = 100 - spearman(similarity(vectors_ND), truth)
        kept = [kept_variance(rows_VE, way.rows_VE, weight) for weight in (frequency_V, None)]
        lines.append((way.name, way.bytes, way.bytes / whole, *kept, cosine, loss, seconds))
        print(f"{name}: {way.name}, {way.bytes:,} bytes, kept {kept[0]:.4f} / {kept[1]:.4f}, cosine {cosine:.4f}, "
              f"loss {loss:.2f}, {seconds or 0:.0f} s", flush=True)  # fmt: skip

    score(Way("int8 rows", whole, int8(rows_VE)), None)
    four = dequantize_rows(*quantize_block(rows_VE, 32, "int4", "float16"))
    score(Way("4 bits", V * (E // 2 + E // 16), four), None)
    for share in shares:
        for way, seconds in ways(rows_VE, frequency_V, round(whole * share), links):
            score(way, seconds)
    weighted = (
        "weighted by the vocabulary's frequencies" if found is not None else "unweighted: it knows no frequencies"
    )
    header = ("stored as", "bytes", "of int8", "variance kept, %", "unweighted, %", "cosine", "rank loss", "fit, s")
    rows = [
        (way, f"{size:,}", f"{100 * share:.0f} %", f"{100 * kept:.1f}", f"{100 * plain:.1f}", f"{cosine:.4f}",
         f"{loss:.2f}", "-" if seconds is None else f"{seconds:.0f}")
        for way, size, share, kept, plain, cosine, loss, seconds in lines
    ]  # fmt: skip
    return f"## {encoder.name}\n\nTable {V:,} x {E}; {weighted}.\n\n{table(header, rows)}"


def main() -> None:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["msdc-mini", "all-MiniLM-L6-v2"])
    parser.add_argument("--shares", nargs="+", type=float, default=list(SHARES), help="bytes, as shares of int8 rows")
    parser.add_argument("--links", nargs="+", type=int, default=[2, 3, 4])
    add_write_option(parser, "coded_table")
    options = parser.parse_args()
    texts = quickstart_texts(limit=256)
    tables = [measure(name, tuple(options.shares), tuple(options.links), texts) for name in options.models]
    body = "\n\n".join([LEGEND, *tables])
    print(body)
    if options.write:
        measured = "; ".join(model_version(name) for name in options.models)
        write_page(options.write, "A coded token table against other ways at equal bytes", measured, body,
                   libraries=("torch", "scipy"))  # fmt: skip


if __name__ == "__main__":
    main()
