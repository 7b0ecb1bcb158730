"""Invented results for tests of reading, comparing and drawing; none of them was measured."""

import numpy as np

from msdc.bench.result import Accuracy, BenchFile, DeviceRun, ModelScores, Timing


def phase(scale: float) -> dict:
    return {"vmhwm_mib": 30 * scale, "pss_mib": 22 * scale, "anon_mib": 12 * scale, "file_mib": 14 * scale}


def make_run(runtime="executorch", *, scale=1.0, seed=0, clock="wall", runs=120, **changes) -> DeviceRun:
    generator = np.random.default_rng(seed)
    latency = []
    for length, base in ((8, 1.5), (32, 4.0), (128, 16.0)):
        if clock == "wall":
            samples = base * scale * (1 + 0.05 * np.abs(generator.standard_normal(runs)))
            latency.append(Timing(samples=samples.tolist(), warmup=5, length=length))
        else:
            latency.append(Timing(samples=[base * 2_000_000 * scale] * 5, warmup=1, length=length, unit=clock))
    spearman = {"executorch": 78.4, "onnx": 78.1}[runtime]
    raw = {
        "created": "2026-01-02T03:04:05+00:00",
        "harness": "native" if clock == "instructions" else "python",
        "artifact": {
            "bundle": "tiny", "runtime": runtime, "precision": "int8", "file": "model.pte", "bytes": 9_400_000,
            "sha256": ("a" if runtime == "executorch" else "b") * 64, "parameters": 9_100_000,
            "bundle_bytes": 9_900_000,
        },
        "device": {
            "name": "cortex-a53" if clock == "instructions" else "bench machine",
            "kind": "emulator" if clock == "instructions" else "host",
            "cpu": "some processor", "isa": ["avx2"], "cores": 2, "memory_mib": 4096, "os": "Debian",
            "emulated": clock == "instructions",
        },
        "versions": {"executorch": "1.5.1"},
        "threads": 1,
        "clock": clock,
        "load": 14.0 * scale if clock == "wall" else 41_234_567,
        "first": 6.0 * scale if clock == "wall" else None,
        "latency": latency,
        "tokenize": Timing(samples=[0.03, 0.04, 0.05], warmup=1) if clock == "wall" else None,
        "pipeline": Timing(samples=[4.1, 4.3, 4.2], warmup=1) if clock == "wall" else None,
        "memory": {"start": phase(0.5), "loaded": phase(0.8), "warm": phase(1.0)},
        "parity": {"texts": 90, "mean_cosine": 0.99999, "min_cosine": 0.9998, "ids_equal": True},
        "accuracy": [
            Accuracy(task="sts", name="graded-pairs", spearman=spearman, pairs=112, interval=[70.0, 84.0]),
            Accuracy(task="sts", name="sts17/en-es", spearman=spearman - 5, pairs=250),
        ],
        "notes": ["a note on the run"],
    }  # fmt: skip
    return DeviceRun.model_validate(raw | changes)


def make_models() -> tuple[ModelScores, ...]:
    rows = (("teacher", 22_700_000, 90_900_000, 70.0), ("assistant", 23_000_000, 92_000_000, 80.0),
            ("student", 9_100_000, 36_400_000, 78.6))  # fmt: skip
    return tuple(
        ModelScores(
            role=role, name=f"some {role}", parameters=count, embedding_parameters=count // 2,
            encoder_parameters=count // 3, bytes=size,
            accuracy=(Accuracy(task="sts", name="graded-pairs", spearman=score, pairs=112),
                      Accuracy(task="sts", name="sts17/en-es", spearman=score - 4, pairs=250)),
        )
        for role, count, size, score in rows
    )  # fmt: skip


def make_file(emulated: bool = True) -> BenchFile:
    runs = [make_run("executorch"), make_run("onnx", scale=1.2, seed=1)]
    if emulated:
        runs.append(make_run("executorch", clock="instructions"))
    return BenchFile(runs=tuple(runs), models=make_models())
