"""The artifacts that benchmarks/artifacts.py measures: students of two shapes, two real models, and two peers.

Each is made once and kept in the work folder. Shapes have random weights: bytes, memory and speed do not depend on
them.
"""

from pathlib import Path

import torch
from results_page import run_json

from msdc.compress.student.model import Student, StudentConfig
from msdc.compress.student.stock import to_student
from msdc.compress.texts import quickstart_texts
from msdc.compress.vocabulary.train import train_vocabulary
from msdc.encoders.encoder import load_encoder
from msdc.encoders.folder import locate_model
from msdc.export import export
from msdc.export.exporters import BundleOptions, write_bundle
from msdc.export.golden import golden_texts, write_golden
from msdc.export.manifest import Manifest, list_files, write_manifest
from msdc.files import staged_folder
from msdc.text.tokenizer import PieceTokenizer

# 3 stored layers, applied 4 times, on a table 128 wide: a 12-layer model in a quarter of the layers.
UNIT = {"vocabulary": 250_002, "bottleneck": 128, "unit": 3, "repeats": 4, "positions": 512, "pad_id": 1}
STUDENTS = {
    "minilm-student": {**UNIT, "hidden": 384, "heads": 12, "intermediate": 1536},
    "xlmr-student": {**UNIT, "hidden": 768, "heads": 12, "intermediate": 3072},
}
TEACHER, SHIPPED = "all-MiniLM-L6-v2", "msdc-mini"
PEER, TEACHER_PEER = "peer-minilm-l12", "peer-all-minilm-l6"
# peer -> what artifact_peer.py is told to export, and its pieces
PEERS = {PEER: ("minilm-l12", 250_002), TEACHER_PEER: (TEACHER, 30_522)}


def tokenizer_file(work: Path) -> Path:
    """A small vocabulary for the random shapes: the size of the table matters, not the tokenizer."""
    path = work / "tokenizer.model"
    return path if path.is_file() else train_vocabulary(quickstart_texts(), path, 2000, threads=1)


def make_student(work: Path, name: str, precision: str) -> Path:
    """A bundle with both runtimes and the stand-in tokenizer: of a random student, or of the teacher's own weights."""
    out = work / f"{name}-{precision}{'-stand-in' * (name == TEACHER)}"
    if not out.is_dir():
        work.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(0)
        if name == TEACHER:
            student = to_student(load_encoder(TEACHER))
        else:
            student = Student(StudentConfig(**STUDENTS[name])).eval()
            with torch.no_grad():
                for parameter in student.parameters():
                    # Equal tensors are stored once: fresh biases, all zero, would make the file too small.
                    parameter.add_(torch.randn_like(parameter) * 0.02)
        options = BundleOptions(precision=precision, runtimes=("executorch", "onnx"), gates=False)
        write_bundle(student, PieceTokenizer(tokenizer_file(work)), out, name=name, options=options, say=print)
    return out


def make_model(work: Path, name: str, precision: str | None, target: str = "linux") -> Path:
    """A bundle of a model by name with both runtimes; None: its own precision."""
    out = work / f"{name}-{target}-{precision or 'own'}"
    if not out.is_dir():
        work.mkdir(parents=True, exist_ok=True)
        export(name, target=target, runtime="both", precision=precision, out=out)
    return out


def pooled(source: Path, target: Path, width: int) -> int:
    """Append mean pooling and a zero for token types to a token-level graph; the opset."""
    import onnx
    from onnx import TensorProto, helper

    model = onnx.load(source)
    graph = model.graph
    types = [value for value in graph.input if value.name == "token_type_ids"]
    nodes = []
    for value in types:
        graph.input.remove(value)
        nodes.append(helper.make_node("Sub", ["input_ids", "input_ids"], ["token_type_ids"]))
    tokens = graph.output[0].name
    graph.initializer.extend(
        [helper.make_tensor("pool_axis", TensorProto.INT64, [1], [1]),
         helper.make_tensor("pool_last", TensorProto.INT64, [1], [2])]
    )  # fmt: skip
    after = [
        helper.make_node("Cast", ["attention_mask"], ["pool_mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["pool_mask", "pool_last"], ["pool_mask_rows"]),
        helper.make_node("Mul", [tokens, "pool_mask_rows"], ["pool_kept"]),
        helper.make_node("ReduceSum", ["pool_kept", "pool_axis"], ["pool_total"], keepdims=0),
        helper.make_node("ReduceSum", ["pool_mask_rows", "pool_axis"], ["pool_count"], keepdims=0),
        helper.make_node("Div", ["pool_total", "pool_count"], ["sentence_embedding"]),
    ]
    for place, node in enumerate(nodes):
        graph.node.insert(place, node)
    graph.node.extend(after)
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", width]))
    onnx.save(model, target)
    return next(used.version for used in model.opset_import if used.domain in ("", "ai.onnx"))


def make_peer(work: Path, name: str, python: str, configuration: str | None = None) -> Path:
    """The peer's file as a bundle, for the same runner; `configuration` None: that of this processor."""
    from msdc.export.onnx.program import OnnxRunner

    out = work / name
    if out.is_dir():
        return out
    work.mkdir(parents=True, exist_ok=True)
    model, vocabulary = PEERS[name]
    teacher, raw = locate_model(TEACHER), work / f"{name}-raw"
    said = run_json(
        Path(__file__).with_name("artifact_peer.py"), raw, teacher if model == TEACHER else model, teacher,
        *([configuration] if configuration else []), python=python,
    )  # fmt: skip
    tokenizer, texts = PieceTokenizer(tokenizer_file(work)), golden_texts()
    with staged_folder(out, False) as stage:
        opset = pooled(raw / "model.onnx", stage / "model.onnx", 384)
        (stage / "tokenizer.model").write_bytes(tokenizer_file(work).read_bytes())
        rows = tokenizer.encode(texts, 256)
        vectors = OnnxRunner(stage / "model.onnx", threads=1).run(rows)
        write_golden(stage, texts, rows, {"float": vectors, "onnx": vectors})
        ids = {"bos_id": tokenizer.bos_id, "eos_id": tokenizer.eos_id, "pad_id": tokenizer.pad_id}
        manifest = Manifest.model_validate({
            "name": name, "target": "linux", "width": 384, "max_length": 256, "vocabulary": vocabulary,
            "languages": [], "precision": said["configuration"], "normalized": False, "gates": "skipped",
            "tokenizer": {"kind": "sentencepiece", "file": "tokenizer.model", "unk_id": tokenizer.unk_id, **ids},
            "programs": {"onnx": {"file": "model.onnx", "data": None, "opset": opset}},
            "model": {"parameters": 1, "embedding_parameters": 0, "encoder_parameters": 0, "config": {},
                      "source_sha256": "0" * 64},
            "parity": {}, "files": list_files(stage), "versions": said["versions"], "licenses": [],
            "data_sources": [f"sentence-transformers, {said['file']}"],
        })  # fmt: skip
        write_manifest(stage, manifest)
    (raw / "model.onnx").unlink()
    return out
