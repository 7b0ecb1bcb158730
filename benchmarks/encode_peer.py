"""Models of other libraries for benchmarks/encode.py, written by their own exporters in an environment of their own.

    PEER_PYTHON benchmarks/encode_peer.py WORK FOLDER...

Of each FOLDER (a model of sentence-transformers) WORK/NAME-onnx with the int8 program of the library's own export, and
of the first one WORK/model2vec. What exists is kept. Imports nothing of msdc.
"""

import json
import shutil
import sys
from pathlib import Path

from artifact_peer import configuration
from model2vec.distill import distill
from sentence_transformers import SentenceTransformer, export_dynamic_quantized_onnx_model  # type: ignore[attr-defined]


def main(work: Path, folders: list[Path]) -> None:
    for folder in folders:
        out = work / f"{folder.name}-onnx"
        if not out.is_dir():
            partial = work / f"{folder.name}-partial"
            shutil.rmtree(partial, ignore_errors=True)
            options = {"export": True, "provider": "CPUExecutionProvider"}
            model = SentenceTransformer(str(folder), backend="onnx", model_kwargs=options, device="cpu")
            model.save_pretrained(str(partial))
            export_dynamic_quantized_onnx_model(model, configuration(), str(partial))
            (partial / "onnx" / "model.onnx").unlink(missing_ok=True)
            partial.rename(out)
    static = work / "model2vec"
    if not static.is_dir():
        distill(str(folders[0]), pca_dims=256, quantize_to="float16").save_pretrained(str(static))
    print(json.dumps({"folders": [folder.name for folder in folders]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(folder) for folder in sys.argv[2:]])
