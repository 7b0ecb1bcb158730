"""sentence-transformers' own int8 ONNX export, run in an environment of its own by benchmarks/artifacts.py.

    PEER_PYTHON benchmarks/artifact_peer.py OUT minilm-l12|FOLDER TOKENIZER_FOLDER [CONFIGURATION]

`minilm-l12` is the shape of Multilingual-MiniLM-L12-H384 (V = 250,002) with random weights; a FOLDER is a
sentence-transformers model as it is. CONFIGURATION is one of the library's, by default that of this processor. Writes
OUT/model.onnx and prints one line of JSON: file, configuration, versions.
Imports nothing of this project: optimum's exporter wants transformers below 5.
"""

import json
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer, export_dynamic_quantized_onnx_model, models  # type: ignore[attr-defined]
from transformers import BertConfig, BertModel

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")


def minilm_l12(folder: Path, tokenizer: Path) -> SentenceTransformer:
    """The teacher's shape; speed and bytes depend neither on the weights nor on the tokenizer."""
    torch.manual_seed(0)
    body = BertModel(
        BertConfig(
            vocab_size=250_002, max_position_embeddings=512, pad_token_id=0, hidden_size=384, num_hidden_layers=12,
            num_attention_heads=12, intermediate_size=1536,
        )
    )  # fmt: skip
    body.save_pretrained(folder)
    for name in TOKENIZER_FILES:
        if (tokenizer / name).exists():
            shutil.copy(tokenizer / name, folder / name)
    return SentenceTransformer(modules=[models.Transformer(str(folder)), models.Pooling(384)], device="cpu")


def configuration() -> str:
    """The configuration that sentence-transformers recommends for this processor."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    if "avx512_vnni" in flags:
        return "avx512_vnni"
    return "avx2" if "avx2" in flags else "arm64"


def main(out: Path, model: str, tokenizer: Path, chosen: str) -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as work_folder:
        folder = Path(work_folder)
        if model == "minilm-l12":
            minilm_l12(folder / "body", tokenizer).save(str(folder / "st"))
        else:
            shutil.copytree(model, folder / "st")
        options = {"export": True, "provider": "CPUExecutionProvider"}
        exported = SentenceTransformer(str(folder / "st"), backend="onnx", model_kwargs=options, device="cpu")
        export_dynamic_quantized_onnx_model(exported, chosen, str(folder / "quantized"))
        (written,) = (folder / "quantized").rglob("*.onnx")
        out.mkdir(parents=True, exist_ok=True)
        shutil.move(written, out / "model.onnx")
        names = ("sentence-transformers", "transformers", "optimum", "onnxruntime", "torch")
        exported_facts = {"file": written.name, "configuration": chosen, "versions": {n: version(n) for n in names}}
        print(json.dumps(exported_facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else configuration())
