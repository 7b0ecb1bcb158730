"""Search at the papers' sizes: XSR among 200,000 candidates, mining 150,000 x 150,000 sentences.

    python benchmarks/accuracy.py --threads 2 --write docs/results/search.md

Each method runs in its own process on the same synthetic vectors (clusters of near neighbours, so that mining can make
mistakes), which gives its time and peak memory; the answers are then compared.

* ours:    one matrix product for both directions (`msdc.bench.accuracy.neighbours`)
* laser:   the procedure of LASER's miner: a flat faiss index per direction, margins one candidate at a time
* brute:   all similarities in blocks of rows, once per direction, largest K by partial sort
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from results_page import add_write_option, table, write_page

K, WIDTH, CLUSTER = 4, 384, 8
# Neighbours in a cluster have cosine 0.89, a sentence and its translation about 0.5: hard enough for mistakes.
OWN, NOISE = 0.35, 0.085


def unit(rows: np.ndarray) -> np.ndarray:
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def sentences(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(source, target, permutation): target row p holds the translation of source row permutation[p].

    Every second source row has no translation: its target is unrelated.
    """
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((-(-count // CLUSTER), WIDTH), dtype=np.float32)
    source = unit(
        centres[np.arange(count) // CLUSTER] + OWN * generator.standard_normal((count, WIDTH), dtype=np.float32)
    )
    order = generator.permutation(count)
    target = source[order] + NOISE * generator.standard_normal((count, WIDTH), dtype=np.float32)
    lonely = np.flatnonzero(order % 2)
    target[lonely] = generator.standard_normal((len(lonely), WIDTH), dtype=np.float32)
    return source, unit(target), order


def pool(candidates: int, queries: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(queries, candidates, position of each query's answer)."""
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((-(-candidates // CLUSTER), WIDTH), dtype=np.float32)
    table = centres[np.arange(candidates) // CLUSTER]
    table = unit(table + OWN * generator.standard_normal((candidates, WIDTH), dtype=np.float32))
    gold = generator.choice(candidates, size=queries, replace=False)
    return unit(table[gold] + NOISE * generator.standard_normal((queries, WIDTH), dtype=np.float32)), table, gold


def greedy(scored: list[tuple[float, int, int]]) -> list[tuple[int, int, float]]:
    """Best score first, each side once."""
    scored.sort(key=lambda item: -item[0])
    used_source: set[int] = set()
    used_target: set[int] = set()
    out = []
    for score, s, t in scored:
        if s not in used_source and t not in used_target:
            used_source.add(s)
            used_target.add(t)
            out.append((s, t, score))
    return out


def mine_ours(x: np.ndarray, y: np.ndarray, threads: int) -> list[tuple[int, int, float]]:
    from msdc.bench.accuracy.neighbours import mine

    found = mine(x, y, k=K, threads=threads)
    return list(zip(found.source_C.tolist(), found.target_C.tolist(), found.score_C.tolist(), strict=True))


def mine_laser(x: np.ndarray, y: np.ndarray, threads: int) -> list[tuple[int, int, float]]:
    import faiss

    faiss.omp_set_num_threads(threads)

    def search(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        index = faiss.IndexFlatIP(a.shape[1])
        index.add(b)
        return index.search(a, K)

    (forward, forward_index), (back, back_index) = search(x, y), search(y, x)
    forward_mean, back_mean = forward.mean(1), back.mean(1)
    scored = []
    for i in range(len(x)):
        best = max(
            (float(x[i].dot(y[j]) / ((forward_mean[i] + back_mean[j]) / 2)), int(j)) for j in forward_index[i].tolist()
        )
        scored.append((best[0], i, best[1]))
    for j in range(len(y)):
        best = max(
            (float(y[j].dot(x[i]) / ((back_mean[j] + forward_mean[i]) / 2)), int(i)) for i in back_index[j].tolist()
        )
        scored.append((best[0], best[1], j))
    return greedy(scored)


def mine_brute(x: np.ndarray, y: np.ndarray, threads: int) -> list[tuple[int, int, float]]:
    del threads  # numpy's own, from the environment of this process

    def search(a: np.ndarray, b: np.ndarray, rows: int = 512) -> tuple[np.ndarray, np.ndarray]:
        values = np.empty((len(a), K), dtype=np.float32)
        index = np.empty((len(a), K), dtype=np.int64)
        for start in range(0, len(a), rows):
            similarity = a[start : start + rows] @ b.T
            top = np.argpartition(-similarity, K, axis=1)[:, :K]
            values[start : start + rows] = np.take_along_axis(similarity, top, 1)
            index[start : start + rows] = top
        return values, index

    (forward, forward_index), (back, back_index) = search(x, y), search(y, x)
    forward_mean, back_mean = forward.mean(1), back.mean(1)
    forward_score = forward / ((forward_mean[:, None] + back_mean[forward_index]) / 2)
    back_score = back / ((back_mean[:, None] + forward_mean[back_index]) / 2)
    scored = [
        (float(s[p]), i, int(n[p]))
        for i, (s, n) in enumerate(zip(forward_score, forward_index, strict=True))
        if (p := s.argmax()) >= 0
    ]
    scored += [
        (float(s[p]), int(n[p]), j)
        for j, (s, n) in enumerate(zip(back_score, back_index, strict=True))
        if (p := s.argmax()) >= 0
    ]
    return greedy(scored)


def search_ours(queries: np.ndarray, table: np.ndarray, gold: np.ndarray, threads: int) -> np.ndarray:
    from msdc.bench.accuracy.neighbours import gold_ranks

    above, _ = gold_ranks(queries, table, gold, threads=threads)
    return above


def search_laser(queries: np.ndarray, table: np.ndarray, gold: np.ndarray, threads: int) -> np.ndarray:
    """LASER searches for the nearest only: 0 where it is the answer, else 1."""
    import faiss

    faiss.omp_set_num_threads(threads)
    index = faiss.IndexFlatIP(table.shape[1])
    index.add(table)
    return (index.search(queries, 1)[1][:, 0] != gold).astype(np.int64)


def search_brute(queries: np.ndarray, table: np.ndarray, gold: np.ndarray, threads: int) -> np.ndarray:
    del threads
    ranks = []
    for start in range(0, len(queries), 256):
        order = np.argsort(-(queries[start : start + 256] @ table.T), axis=1)
        ranks.append((order == gold[start : start + 256, None]).argmax(1))
    return np.concatenate(ranks)


MINERS = {"ours": mine_ours, "laser": mine_laser, "brute": mine_brute}
SEARCHES = {"ours": search_ours, "laser": search_laser, "brute": search_brute}


def f1(pairs: list[tuple[int, int]], order: np.ndarray) -> float:
    """F1 x 100 of the best threshold; pairs are sorted best first, half of the rows have a translation."""
    gold = int((order % 2 == 0).sum())
    right = np.array([order[t] == s and s % 2 == 0 for s, t in pairs])
    return float(100 * (2 * right.cumsum() / (np.arange(1, len(right) + 1) + gold)).max())


def peak_mib() -> float:
    """Peak memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


def child(arguments: argparse.Namespace) -> None:
    """Run one method on one problem: write its result, print seconds and peak memory."""
    # libraries are loaded before the clock starts
    few = np.eye(16, WIDTH, dtype=np.float32)
    MINERS[arguments.method](few, few, arguments.threads)
    SEARCHES[arguments.method](few, few, np.arange(16), arguments.threads)
    if arguments.problem == "mining":
        x, y, order = sentences(arguments.sentences, arguments.seed)
        started, cpu = time.perf_counter(), time.process_time()
        found = MINERS[arguments.method](x, y, arguments.threads)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
        np.savez(arguments.answer, pairs=np.array([f[:2] for f in found]), scores=np.array([f[2] for f in found]))
        score = f1([f[:2] for f in found], order)
    else:
        queries, table, gold = pool(arguments.candidates, arguments.queries, arguments.seed)
        started, cpu = time.perf_counter(), time.process_time()
        above = SEARCHES[arguments.method](queries, table, gold, arguments.threads)
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
        np.savez(arguments.answer, above=above)
        score = float(100 * (above == 0).mean())
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_mib": peak_mib(), "score": score}))


def measure(arguments: argparse.Namespace, problem: str, method: str, answer: Path) -> dict[str, float]:
    """Run `child` in a fresh process limited to the given threads."""
    environment = dict(os.environ)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        environment[name] = str(arguments.threads)
    command = [sys.executable, __file__, "--problem", problem, "--method", method, "--answer", str(answer)]
    for name in ("sentences", "candidates", "queries", "threads", "seed"):
        command += [f"--{name}", str(getattr(arguments, name))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{problem} {method} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def agreement(problem: str, ours: Path, other: Path) -> dict[str, float]:
    """Agreement of the results of two methods."""
    a, b = np.load(ours), np.load(other)
    if problem == "xsr":
        return {"same_first": float(((a["above"] == 0) == (b["above"] == 0)).mean())}
    mine, theirs = (
        {tuple(p): s for p, s in zip(z["pairs"].tolist(), z["scores"].tolist(), strict=True)} for z in (a, b)
    )
    shared = mine.keys() & theirs.keys()
    gap = max(abs(mine[pair] - theirs[pair]) for pair in shared)
    return {"same_pairs": len(shared) / max(len(mine), len(theirs)), "largest_score_gap": gap}


NAMES = {"ours": "msdc", "laser": "LASER's procedure", "brute": "brute force"}


def page_body(results: list[dict[str, float | str]], arguments: argparse.Namespace) -> str:
    """What was run and the table of the results page."""
    rows = []
    for one in results:
        if one["method"] == "ours":
            same = ""
        elif "same_first" in one:
            same = f"{100 * float(one['same_first']):.4f} % of queries"
        else:
            same = f"{100 * float(one['same_pairs']):.4f} % of pairs, scores to {float(one['largest_score_gap']):.0e}"
        rows.append([one["problem"], NAMES[str(one["method"])], f"{one['seconds']:.2f}", f"{one['cpu_seconds']:.2f}",
                     f"{one['peak_mib']:,.0f}", f"{one['score']:.3f}", same])  # fmt: skip
    header = ("problem", "method", "wall s", "CPU s", "peak MiB", "score x 100", "same answers as msdc")
    return (
        f"Cross-lingual sentence retrieval (xsr): {arguments.queries:,} queries among {arguments.candidates:,} "
        f"candidates, P@1. Margin mining (k = {K}, both directions): {arguments.sentences:,} x "
        f"{arguments.sentences:,} sentences, F1 at the best threshold. Width {WIDTH}, {arguments.threads} threads, "
        "synthetic vectors, one process per method. CPU seconds are the sum over all cores.\n\n" + table(header, rows)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sentences", type=int, default=150_000)
    parser.add_argument("--candidates", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path)
    add_write_option(parser, "search")
    parser.add_argument("--keep", type=Path, help="keep results here; a method with a result is not run again")
    parser.add_argument("--problems", nargs="+", choices=("xsr", "mining"), default=("xsr", "mining"))
    for name in ("problem", "method", "answer"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.method:
        child(arguments)
        return
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for problem in arguments.problems:
            for method in MINERS:
                answer, record = (folder / f"{problem}-{method}{end}" for end in (".npz", ".json"))
                if not record.is_file():
                    record.write_text(json.dumps(measure(arguments, problem, method, answer)))
                one = {"problem": problem, "method": method, **json.loads(record.read_text())}
                if method != "ours":
                    one |= agreement(problem, folder / f"{problem}-ours.npz", answer)
                results.append(one)
                print(json.dumps(one), flush=True)
    if arguments.output:
        settings = {n: getattr(arguments, n) for n in ("sentences", "candidates", "queries", "threads", "seed")}
        arguments.output.write_text(json.dumps({"settings": settings, "results": results}, indent=2) + "\n")
    if arguments.write:
        write_page(arguments.write, "Search at the papers' sizes", "none; synthetic vectors",
                   page_body(results, arguments), libraries=("numpy", "faiss-cpu"))  # fmt: skip


if __name__ == "__main__":
    main()
