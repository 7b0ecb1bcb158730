"""A student's folder for transformers.js: `pipeline("feature-extraction", ID)` in a browser or in Node.

Added to the folder: `onnx/model.onnx` in float32, which Node and WebGPU take by default, `onnx/model_quantized.onnx`,
which browsers take, `tokenizer.json` where there is only a SentencePiece `.model`, and, where transformers.js reads it
otherwise than `tokenizers`, one that both read alike. On the golden texts both programs are compared with the model's
own vectors, transformers.js's ids with ours.

Shapes: N texts, D sentence width.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msdc.errors import GateError, InputError
from msdc.export.mobile.web.spelled import spelled
from msdc.export.mobile.web.transformers_js import (
    PACKAGE,
    READ,
    VERSION,
    differing,
    ids_of,
    told,
)
from msdc.files import read_json, staged_folder, write_text
from msdc.progress import say
from msdc.text.tokenizer import (
    JSON_FILE,
    MAX_TOKENIZER_BYTES,
    MODEL_FILE,
    FastTokenizer,
    Tokenizer,
    write_fast_copy,
)

if TYPE_CHECKING:
    from msdc.compress.student.config import StudentConfig
    from msdc.encoders.encoder import Encoder

FOLDER, PROGRAM, QUANTIZED = "onnx", "model.onnx", "model_quantized.onnx"
TARGET = "web"
MAX_PROGRAM_BYTES = 2**31 - 1  # of one protobuf file
POOLINGS = ("mean", "cls")  # of the pipeline
TITLE = "## In transformers.js"


def _write_tokenizer(
    folder: Path, tokenizer: Tokenizer, texts: Sequence[str], rows: list[list[int]], length: int
) -> None:
    """Keep the folder's tokenizer.json where transformers.js gives our ids with it, else write one that it reads.

    Raises:
        GateError: it gives other ids with either.
        MsdcError: no Node, or transformers.js cannot be fetched.
    """
    say(f"transformers.js: compare its tokenizer on {len(texts)} golden texts")
    ends = tokenizer.encode([""], 8)[0]
    eos_id = ends[-1] if ends else None
    file = folder / JSON_FILE
    with tempfile.TemporaryDirectory(prefix="msdc-transformers-") as temporary:
        model = Path(temporary) / "model"
        model.mkdir()
        for name in READ:
            if (folder / name).is_file():
                shutil.copyfile(folder / name, model / name)
            else:
                write_fast_copy(folder / MODEL_FILE, model / name)
        other = differing(texts, rows, ids_of(model, list(texts)), length, eos_id)
        if not other:
            if not file.is_file():
                shutil.copyfile(model / JSON_FILE, file)
            return
        made = spelled(read_json(model / JSON_FILE, MAX_TOKENIZER_BYTES))
        if made is None:
            raise GateError(f"transformers.js: {told(other, len(texts))}")
        (model / JSON_FILE).write_text(json.dumps(made, ensure_ascii=False), encoding="utf-8")
        if FastTokenizer(model / JSON_FILE).encode(texts, length) != rows:
            raise GateError(f"{JSON_FILE}: spelled out for transformers.js it gives other ids")
        other = differing(texts, rows, ids_of(model, list(texts)), length, eos_id)
        if other:
            raise GateError(f"transformers.js: {told(other, len(texts))}")
        write_text(file, (model / JSON_FILE).read_text(encoding="utf-8"))


def _write_programs(encoder: Encoder, stage: Path, rows: list[list[int]], length: int) -> None:
    """Write both programs, each in one file.

    Raises:
        GateError: vectors of a program are not those of the model.
        InputError: the model is too large for one file.
    """
    from msdc.compress.quantization.plan import plan_for, read_plan
    from msdc.export.onnx.check import check_onnx_file
    from msdc.export.onnx.runner import OnnxRunner
    from msdc.export.onnx.write import build_onnx
    from msdc.export.reference.gates import measure, shortfalls, thresholds_for
    from msdc.export.reference.smooth import smooth
    from msdc.export.ways import float_model

    model = float_model(encoder)
    config = model.weights.config
    folder = encoder.folder
    int8 = (folder and read_plan(folder)) or plan_for(config, "int8")
    wanted_ND = model.vectors(rows)
    for name, plan in ((PROGRAM, plan_for(config, "fp32")), (QUANTIZED, int8)):
        smoothed = smooth(model, plan, encoder.tokenizer, length)
        made = build_onnx(smoothed, plan, length, TARGET, tokens=_pipelined(config))
        if made.ByteSize() > MAX_PROGRAM_BYTES:
            raise InputError(f"{encoder.name}: {made.ByteSize():,} bytes are too many for one ONNX file")
        (stage / name).write_bytes(made.SerializeToString(deterministic=True))
        check_onnx_file(stage / name, full=True)
        runner = OnnxRunner(stage / name, pad_id=config.pad_id)
        found = measure(wanted_ND, runner.run(rows), None)
        del runner  # Windows renames no folder with an open file
        say(f"{FOLDER}/{name}: {(stage / name).stat().st_size:,} bytes, mean cosine {found.mean_cosine:.6f}")
        if short := shortfalls(found, thresholds_for(set(plan.weights.values()))):
            raise GateError(f"{FOLDER}/{name}: {'; '.join(short)}")


def _pipelined(config: StudentConfig) -> bool:
    """Whether transformers.js's pipeline can make the sentence vector of the tokens' states."""
    return config.dense is None and config.pooling in POOLINGS


def about(config: StudentConfig, prompt: str, hub_id: str) -> str:
    """The card's section."""
    if _pipelined(config):
        names = "pipeline"
        lines = [
            f'const extractor = await pipeline("feature-extraction", "{hub_id}");',
            f'const options = {{ pooling: "{config.pooling}", normalize: {str(config.normalize).lower()} }};',
            'const vectors = await extractor(["a text", "another"], options);',
        ]
    else:
        names = "AutoModel, AutoTokenizer"
        lines = [
            f'const tokenizer = await AutoTokenizer.from_pretrained("{hub_id}");',
            f'const model = await AutoModel.from_pretrained("{hub_id}");',
            'const ids = await tokenizer(["a text", "another"], { padding: true, truncation: true });',
            "const { sentence_embedding } = await model(ids);",
        ]
    code = "\n".join([f'import {{ {names} }} from "{PACKAGE}";', "", *lines])
    first = f" Every text begins with the prompt `{prompt}`." if prompt else ""
    return (
        f"{TITLE}\n\n```js\n{code}\n```\n\n{PACKAGE} {VERSION} gives the ids of `tokenizers` on the golden texts of "
        f"msdc. It cuts texts of more than {config.positions} tokens without their closing token.{first}\n"
    )


def _write_card(folder: Path, section: str) -> None:
    path = folder / "README.md"
    card = path.read_text(encoding="utf-8") if path.is_file() else f"# {folder.name}\n"
    before, title, rest = card.partition(f"\n{TITLE}\n")
    after = "\n## " + rest.split("\n## ", 1)[1] if title and "\n## " in rest else ""
    write_text(path, f"{before.rstrip()}\n\n{section}{after}")


def add_transformers_js(folder: Path, hub_id: str = "OWNER/NAME") -> None:
    """Make a student's folder open in transformers.js; the folder is changed only when all gates have passed.

    `hub_id` is the name that the card opens it by.

    Raises:
        InputError: not a model that is exported by hand-written programs, or one without a tokenizer.json.
        GateError: a gate failed.
        MsdcError: no Node, or transformers.js cannot be fetched.
    """
    from msdc.encoders.encoder import load_encoder
    from msdc.export.reference.golden import golden_texts
    from msdc.export.ways import canonical_obstacle, float_model

    encoder = load_encoder(str(folder.resolve()))
    obstacle = canonical_obstacle(encoder)
    if obstacle is not None:
        raise InputError(f"{folder}: no files for transformers.js ({obstacle})")
    if not encoder.defaults.include_prompt:
        raise InputError(f"{folder}: no files for transformers.js (it does not count a prompt's tokens)")
    # A tokenizer.json is written where there is a SentencePiece `.model`.
    given = {JSON_FILE} if (folder / MODEL_FILE).is_file() else set()
    lacking = [name for name in READ if name not in given and not (folder / name).is_file()]
    if lacking:
        raise InputError(f"{folder}: no files for transformers.js (it lacks {', '.join(lacking)})")
    prompt = encoder.defaults.prompt()
    texts = [prompt + text for text in golden_texts()]
    config = float_model(encoder).weights.config
    length = min(encoder.max_length, config.positions)
    rows = encoder.tokenizer.encode(texts, length)
    with staged_folder(folder / FOLDER, force=True) as stage:
        _write_programs(encoder, stage, rows, length)
        _write_tokenizer(folder, encoder.tokenizer, texts, rows, length)
        _write_card(folder, about(config, prompt, hub_id))
