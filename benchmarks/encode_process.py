"""One process of benchmarks/encode.py: opens a model in one way, encodes texts, prints its processor time and memory.

    PYTHON benchmarks/encode_process.py WAY MODEL TEXTS.json TASK

WAY is a key of WAYS. TASK is `first` (one line), `lines` (all lines), or `each` (milliseconds per text: short, typical
and long ones one by one, and the lines as one list). Imports nothing of msdc for the ways of other libraries.
"""

import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any


def _ours(model: str, **options: Any) -> Any:
    import msdc

    return msdc.load_encoder(model, **options).encode


def _float_torch(model: str) -> Any:
    import msdc

    encoder = msdc.load_encoder(model, precision="float")
    encoder.module.eval()  # PyTorch computes from now on
    return encoder.encode


def _bundle(model: str, runtime: str) -> Any:
    import msdc

    return msdc.load_bundle(model, runtime, 1).encode


def _sentence_transformer(model: str, **options: Any) -> Any:
    from sentence_transformers import SentenceTransformer

    opened = SentenceTransformer(model, device="cpu", **options)
    return lambda texts: opened.encode(texts, show_progress_bar=False)


def _onnx_peer(model: str) -> Any:
    file = next(path for path in Path(model, "onnx").glob("*.onnx") if "q" in path.stem)
    return _sentence_transformer(model, backend="onnx", model_kwargs={"file_name": f"onnx/{file.name}",
                                                                      "provider": "CPUExecutionProvider"})  # fmt: skip


def _model2vec(model: str) -> Any:
    from model2vec import StaticModel

    opened = StaticModel.from_pretrained(model)
    return lambda texts: opened.encode(texts, use_multiprocessing=False)


WAYS: dict[str, Callable[[str], Any]] = {
    "default": _ours,
    "float": lambda model: _ours(model, precision="float"),
    "float-torch": _float_torch,
    "onnx": lambda model: _bundle(model, "onnx"),
    "executorch": lambda model: _bundle(model, "executorch"),
    "st-torch": _sentence_transformer,
    "st-onnx": _onnx_peer,
    "model2vec": _model2vec,
}


def peak_mib() -> float:
    """Highest memory of this process; getrusage counts that of the process that started it too."""
    status = Path("/proc/self/status").read_text("ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def milliseconds(encode: Any, groups: list[list[str]]) -> float:
    """Processor time per text of several calls."""
    began = process_time()
    for group in groups:
        encode(group)
    return 1000 * (process_time() - began) / sum(map(len, groups))


def main(way: str, model: str, texts: dict[str, list[str]], task: str) -> dict[str, float]:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    encode = WAYS[way](model)
    loaded = process_time()
    figures: dict[str, float] = {}
    if task == "each":
        for name in ("short", "typical", "long"):
            encode(texts[name][:1])
            figures[name] = milliseconds(encode, [[text] for text in texts[name]])
        figures["list"] = milliseconds(encode, [texts["lines"]])
    else:
        encode(texts["lines"] if task == "lines" else texts["lines"][:1])
    used = resource.getrusage(resource.RUSAGE_SELF)
    return figures | {"load_s": loaded, "cpu_s": used.ru_utime + used.ru_stime, "mib": peak_mib()}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], json.loads(Path(sys.argv[3]).read_text("utf-8")), sys.argv[4])))
