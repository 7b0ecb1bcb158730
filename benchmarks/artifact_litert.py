"""LiteRT's int8 program of a sentence encoder, exported in its own environment by benchmarks/artifact_models.py.

    LITERT_PYTHON benchmarks/artifact_litert.py OUT FOLDER LENGTH...

FOLDER is a BERT checkpoint of transformers; mean pooling and normalisation are in the program. OUT becomes one .tflite
with a signature per LENGTH ("n8", "n32", ...), exact shapes: int32 ids and float32 mask [1, LENGTH] -> float32 [1, D].
All signatures share the stored weights. Prints one line of JSON: recipe, versions, bytes.

    python -m venv LITERT && LITERT/bin/pip install litert-torch==0.10.0 ai-edge-quantizer==0.10.0 ai-edge-litert==2.3.0

Imports nothing of this project.
"""

import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import litert_torch
import torch
from ai_edge_quantizer import quantizer, recipe
from transformers import AutoModel

RECIPE = "dynamic_wi8_afp32"


class Sentence(torch.nn.Module):
    """ids [1, T], mask [1, T] -> the normalised mean of the last states, [1, D]."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        # Attention written out: the fused operator becomes more operators.
        self.body = AutoModel.from_pretrained(folder, attn_implementation="eager")

    def forward(self, ids_1T: torch.Tensor, mask_1T: torch.Tensor) -> torch.Tensor:
        states_1TD = self.body(input_ids=ids_1T, attention_mask=mask_1T).last_hidden_state
        mean_1D = (states_1TD * mask_1T.unsqueeze(-1)).sum(1) / mask_1T.sum(1, keepdim=True)
        return torch.nn.functional.normalize(mean_1D, dim=-1)


def main(out: Path, folder: str, lengths: list[int]) -> None:
    model, converter = Sentence(folder).eval(), litert_torch.Converter()
    for length in lengths:
        converter.signature(f"n{length}", model, (torch.ones(1, length, dtype=torch.int32), torch.ones(1, length)))
    with tempfile.TemporaryDirectory() as work_folder:
        raw = str(Path(work_folder) / "float.tflite")
        converter.convert().export(raw)
        work = quantizer.Quantizer(raw)
        work.load_quantization_recipe(getattr(recipe, RECIPE)())
        work.quantize().export_model(str(out))
    names = ("litert-torch", "ai-edge-quantizer", "ai-edge-litert", "torch", "transformers")
    print(json.dumps({"recipe": RECIPE, "bytes": out.stat().st_size, "versions": {n: version(n) for n in names}}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], [int(word) for word in sys.argv[3:]])
