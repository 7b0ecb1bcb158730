"""The artifacts that benchmarks/artifacts.py and target_instructions.py measure: ours, and peers.

Each is created once and kept in the work folder. A shape has random weights: bytes, memory and speed do not depend on
them.
"""

import platform
import shutil
from pathlib import Path

import torch
from results_page import run_json

from msdc.bench.system_programs import run_tool
from msdc.bench.toolchain.build import CORE, FLAGS, LOADERS, RUNNER, SOURCES, compiler_name, needed_libraries
from msdc.bench.toolchain.sdk import _foreign_libraries
from msdc.compress.student.model import Student, StudentConfig
from msdc.compress.texts import quickstart_texts
from msdc.compress.vocabulary.train import train_vocabulary
from msdc.encoders.folder import locate_model
from msdc.export import export
from msdc.export.exporters import write_bundle
from msdc.export.golden import golden_texts, read_golden, write_golden
from msdc.export.manifest import Manifest, list_files, read_manifest, write_manifest
from msdc.export.options import ExportSettings
from msdc.export.schema import OnnxPart
from msdc.files import staged_folder
from msdc.text.tokenizer import PieceTokenizer

# 3 stored layers, applied 4 times, on a table 128 wide: a 12-layer model in a quarter of the layers.
STUDENT = StudentConfig(vocabulary=250_002, bottleneck=128, unit=3, repeats=4, positions=512, pad_id=1, hidden=384,
                        heads=12, intermediate=1536)  # fmt: skip
LONGEST = 128
TEACHER, SHIPPED = "all-MiniLM-L6-v2", "msdc-mini"
PEER, TEACHER_PEER = "peer-minilm-l12", "peer-all-minilm-l6"
# peer -> what artifact_peer.py exports, and its number of tokens
PEERS = {PEER: ("minilm-l12", 250_002), TEACHER_PEER: (TEACHER, 30_522)}
# LiteRT's program of the teacher -> the lengths that it has a signature for; other rows are padded to the next
LITERT = {"peer-litert-16": range(8, 129, 8), "peer-litert-3": (8, 32, 128)}


def tokenizer_file(work: Path) -> Path:
    """A small vocabulary for the random shapes: the size of the table matters, not the tokenizer."""
    path = work / "tokenizer.model"
    return path if path.is_file() else train_vocabulary(quickstart_texts(), path, 2000, threads=1)


def make_student(work: Path, name: str, precision: str) -> Path:
    """A bundle of a random student with both runtimes and the stand-in tokenizer."""
    out = work / f"{name}-{precision}"
    if not out.is_dir():
        work.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(0)
        student = Student(STUDENT).eval()
        with torch.no_grad():
            for parameter in student.parameters():
                # Equal tensors are stored once: fresh biases, all zero, would make the file too small.
                parameter.add_(torch.randn_like(parameter) * 0.02)
        options = ExportSettings(precision=precision, runtime="both", gates=False)
        write_bundle(student, PieceTokenizer(tokenizer_file(work)), out, name=name, options=options)
    return out


def make_model(work: Path, name: str, precision: str | None, target: str = "linux") -> Path:
    """A bundle of a model by name with both runtimes; None: its own precision."""
    out = work / f"{name}-{target}-{precision or 'own'}"
    if not out.is_dir():
        work.mkdir(parents=True, exist_ok=True)
        export(name, target=target, runtime="both", precision=precision, output=out)
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
    for position, node in enumerate(nodes):
        graph.node.insert(position, node)
    graph.node.extend(after)
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", width]))
    onnx.save(model, target)
    return next(used.version for used in model.opset_import if used.domain in ("", "ai.onnx"))


def make_peer(work: Path, name: str, python: str, configuration: str | None = None) -> Path:
    """The peer's file as a bundle, for the same runner; `configuration` None: that of this processor."""
    from msdc.export.onnx.runner import OnnxRunner

    out = work / name
    if out.is_dir():
        return out
    work.mkdir(parents=True, exist_ok=True)
    model, vocabulary = PEERS[name]
    teacher, raw = locate_model(TEACHER), work / f"{name}-raw"
    exported = run_json(
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
            "languages": [], "precision": exported["configuration"], "normalized": False, "gates": "skipped",
            "tokenizer": {"kind": "sentencepiece", "file": "tokenizer.model", "unk_id": tokenizer.unk_id, **ids},
            "programs": {"onnx": {"file": "model.onnx", "data": None, "opset": opset}},
            "model": {"parameters": 1, "embedding_parameters": 0, "encoder_parameters": 0, "config": {},
                      "source_sha256": "0" * 64},
            "parity": {}, "files": list_files(stage), "versions": exported["versions"], "licenses": [],
            "data_sources": [f"sentence-transformers, {exported['file']}"],
        })  # fmt: skip
        write_manifest(stage, manifest)
    (raw / "model.onnx").unlink()
    return out


def make_litert(work: Path, name: str, python: str) -> Path:
    """LiteRT's program in the bundle of our int8 model, instead of ONNX Runtime's, for `litert_runner`.

    The golden texts are ours of at most 128 tokens; the vectors to reproduce are the float model's.
    """
    ours, out = make_model(work, TEACHER, "int8"), work / name
    if not out.is_dir():
        with staged_folder(out, False) as stage:
            script = Path(__file__).with_name("artifact_litert.py")
            converted = run_json(script, stage / "model.tflite", locate_model(TEACHER), *LITERT[name], python=python)
            manifest, golden = read_manifest(ours), read_golden(ours)
            for file in filter(None, (manifest.tokenizer.file, manifest.tokenizer.native_file)):
                shutil.copy(ours / file, stage / file)
            uncut = [i for i, row in enumerate(golden["ids"]) if len(row) <= LONGEST]
            vectors = dict.fromkeys(("float", "onnx"), golden["vectors"]["float"][uncut])
            texts, ids = ([golden[key][i] for i in uncut] for key in ("texts", "ids"))
            write_golden(stage, texts, ids, vectors)
            programs = type(manifest.programs)(onnx=OnnxPart(file="model.tflite", data=None, opset=1))
            changed = {"name": name, "max_length": LONGEST, "programs": programs, "files": list_files(stage),
                       "parity": {}, "versions": converted["versions"], "precision": converted["recipe"]}  # fmt: skip
            write_manifest(stage, manifest.model_copy(update=changed))
    return out


def litert_runner(work: Path, python: str, machine: str | None = None) -> Path:
    """Our native runner with LiteRT as its engine: for this machine (None), or with all libraries for a device's."""
    host, out = platform.machine(), work / f"litert-runner-{machine or 'here'}"
    if out.is_dir():
        return out
    ask = "from importlib import metadata as m; d = m.distribution('ai-edge-litert'); "
    says = "import json; print(json.dumps([d.version, str(d.locate_file('ai_edge_litert'))]))"
    number, folder = run_json("-c", ask + says, python=python)
    if machine:
        folder = _foreign_libraries("ai-edge-litert", number, machine, ("libLiteRt.so",))
    library, compiler = Path(folder) / "libLiteRt.so", compiler_name(machine or host, host)
    core = [path for path in (CORE / "src").glob("*.cpp") if not path.name.startswith(("engine_", "c_interface"))]
    sources = [*core, *SOURCES.glob("*.cpp"), Path(__file__).with_name("litert_engine.cpp"), library]
    with staged_folder(out, False) as stage:
        program, includes = stage / RUNNER, (CORE / "include", CORE / "src", SOURCES)
        words = [*FLAGS, f'-DMSDC_RUNTIME_VERSION="{number}"', *(f"-I{path}" for path in includes), *sources]
        run_tool([compiler, *map(str, words), "-Wl,-rpath,$ORIGIN/lib", "-o", str(program)], "LiteRT's runner")
        shipped = [library]
        if machine:
            loader = run_tool([compiler, f"-print-file-name={LOADERS[machine]}"], "find the loader").strip()
            shipped += [*needed_libraries(compiler, program, (library,)), Path(loader)]
        (stage / "lib").mkdir()
        for path in shipped:
            shutil.copy(path.resolve(), stage / "lib" / path.name)
    return out
