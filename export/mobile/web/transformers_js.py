"""Files that transformers.js reads, written only where its tokenizer gives our ids on the golden texts.

Two kinds of folder: a web bundle of any model, with the bundle's program, and a student's folder, which then opens with
`pipeline("feature-extraction", ID)` in a browser or in Node. That one gets `onnx/model.onnx` in float32, which Node and
WebGPU take by default, `onnx/model_quantized.onnx`, which browsers take, `tokenizer.json` where there is only a
SentencePiece `.model`, and, where transformers.js reads it otherwise than `tokenizers`, one that both read alike
(`spelled`). Both programs are compared with the model's own vectors.

The gate runs transformers.js itself in Node. Its two native dependencies (an ONNX runtime and an image library) are
replaced by empty ones: a tokenizer needs neither.

Shapes: N texts, D sentence width.
"""

from __future__ import annotations

import base64
import copy
import itertools
import json
import re
import shutil
import subprocess
import tempfile
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msdc.compress.quantization.plan import plan_for
from msdc.compress.vocabulary.train import read_character_map
from msdc.encoders.encoder import Encoder, load_encoder
from msdc.errors import GateError, InputError, MsdcError
from msdc.export.golden import golden_texts, measure, read_golden, shortfalls, thresholds_for
from msdc.export.manifest import Manifest
from msdc.export.mobile.web.npm import PackageFile, runtime_folder
from msdc.export.smoothing import smooth
from msdc.files import read_json, staged_folder, write_text
from msdc.progress import say
from msdc.text.tokenizer import (
    JSON_FILE,
    MAX_TOKENIZER_BYTES,
    MODEL_FILE,
    FastTokenizer,
    Tokenizer,
    prompt_tokens,
    write_fast_copy,
)

if TYPE_CHECKING:
    from msdc.compress.student.config import StudentConfig

HERE = Path(__file__).resolve().parent
PACKAGE, VERSION, LIBRARY = "@huggingface/transformers", "4.3.1", "transformers.node.min.mjs"
FILES = {LIBRARY: PackageFile("8cc8e9ddc428fa0e59fe31116bd70bc5b58db6bc260f5f38ef2c7b0f9523f52e", 573_031, 0)}
CONFIG_FILE, SETTINGS_FILE = "config.json", "tokenizer_config.json"
READ = (CONFIG_FILE, SETTINGS_FILE, JSON_FILE)  # of a folder beside its programs
OWN_KIND = "msdc-student"
STUBS = {
    "onnxruntime-node": "module.exports = { InferenceSession: {}, Tensor: class {}, env: {} };\n",
    "onnxruntime-common": "exports.Tensor = class Tensor {};\n",
    "sharp": "module.exports = () => {};\n",
}
TIMEOUT_S = 600.0
SHOWN = 40  # letters of a text in a message
FOLDER, PROGRAM, QUANTIZED = "onnx", "model.onnx", "model_quantized.onnx"
MAX_PROGRAM_BYTES = 2**31 - 1  # of one protobuf file
POOLINGS = ("mean", "cls")  # of the pipeline
TITLE = "## In transformers.js"
# What transformers.js does instead of reading the map.
_DROPPED = re.compile("[\u0001-\u0008\u000b\u000e-\u001f\u007f\u008f\u009f]")
_SPACES = re.compile("[\t\n\f\r\u00a0\u1680\u2000-\u200f\u2028\u2029\u202f\u205f\u2581\u3000\ufeff\ufffd]")
_WHOLE = "\uff5e"
DOTTED = "\u0130"
# Characters that no text has (Unicode keeps them for programs); NFKC neither changes them nor moves a mark over them.
_GUARDS = [chr(code) for code in range(0xFDD1, 0xFDF0)]
ASSIGNED = 0x33480  # beyond it NFKC changes nothing
MAX_STEPS = 500
Step = dict[str, Any]


def library(folder: Path) -> Path:
    """transformers.js in `folder` beside its empty dependencies; returns the file to import."""
    target = folder / LIBRARY
    shutil.copyfile(runtime_folder(PACKAGE, VERSION, FILES) / LIBRARY, target)
    for name, source in STUBS.items():
        package = folder / "node_modules" / name
        package.mkdir(parents=True)
        (package / "package.json").write_text(json.dumps({"name": name, "main": "index.js"}), encoding="utf-8")
        (package / "index.js").write_text(source, encoding="utf-8")
    return target


def ids_of(folder: Path, texts: Sequence[str], tokenizer: Path) -> list[list[int]]:
    """Ids that transformers.js gives `texts` with `tokenizer`, a tokenizer.json, and a folder's other files."""
    node = shutil.which("node")
    if node is None:
        raise MsdcError("node, which runs transformers.js, is not installed (apt-get install nodejs npm)")
    with tempfile.TemporaryDirectory(prefix="msdc-transformers-") as temporary:
        work = Path(temporary)
        (work / "model").mkdir()
        for name in READ:
            shutil.copyfile(tokenizer if name == JSON_FILE else folder / name, work / "model" / name)
        request = {"library": str(library(work)), "parent": f"{work}/", "name": "model", "texts": list(texts)}
        (work / "request.json").write_text(json.dumps(request), encoding="utf-8")
        command = [node, str(HERE / "transformers_gate.cjs"), str(work / "request.json")]
        try:
            done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise MsdcError(f"transformers.js gave no ids in {TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "Error" in line] or ["no message"]
        raise MsdcError(f"transformers.js does not read its tokenizer: {lines[0].strip()[:200]}")
    found: list[list[int]] = json.loads(done.stdout)
    return found


def differing(
    texts: Sequence[str], ids: Sequence[list[int]], found: Sequence[list[int]], max_length: int, eos_id: int | None
) -> list[str]:
    """The texts whose ids differ. transformers.js cuts a long text's last special id off, and we do not: of a text that
    was cut, what stands before that id is compared.
    """
    other = []
    for text, own, theirs in zip(texts, ids, found, strict=True):
        cut = len(own) == max_length and len(theirs) > len(own) and own[-1:] == [eos_id]
        kept = own[:-1] if cut else own
        if (theirs if len(theirs) <= max_length else theirs[: len(kept)]) != kept:
            other.append(text)
    return other


def _candidates(sources: Iterable[Path], work: Path) -> Iterator[Path]:
    """Each tokenizer as a tokenizer.json in `work`, then spelled out where that says something."""
    for number, source in enumerate(sources):
        made = work / f"{number}.json"
        write_fast_copy(source, made) if source.name == MODEL_FILE else shutil.copyfile(source, made)
        yield made
        if (value := spelled(read_json(made, MAX_TOKENIZER_BYTES))) is not None:
            made.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
            yield made


def _write_tokenizer(
    target: Path,
    sources: Iterable[Path],
    texts: Sequence[str],
    rows: Sequence[list[int]],
    length: int,
    ends: int | None,
) -> None:
    """Write `target`, whose folder holds the other files: the first tokenizer of `sources`, as it is or spelled out,
    with which transformers.js gives the ids `rows`. `ends` is the special id that closes a text.
    """
    say(f"transformers.js: compare its tokenizer on {len(texts)} golden texts")
    reason = f"no {JSON_FILE}"
    with tempfile.TemporaryDirectory(prefix="msdc-transformers-") as temporary:
        for made in _candidates(sources, Path(temporary)):
            if FastTokenizer(made).encode(texts, length) != rows:
                reason = f"{JSON_FILE}, as it was written for it, gives other ids"
                continue
            other = differing(texts, rows, ids_of(target.parent, texts, made), length, ends)
            if not other:
                if not target.is_file() or target.read_bytes() != made.read_bytes():
                    write_text(target, made.read_text(encoding="utf-8"))
                return
            shown = other[0][:SHOWN] + ("..." if len(other[0]) > SHOWN else "")
            reason = f"its tokenizer gives other ids on {len(other)} of {len(texts)} golden texts, the first: {shown!r}"
    raise GateError(f"transformers.js: {reason}")


def write_transformers_js(stage: Path, manifest: Manifest, folder: Path) -> None:
    """Write the files into the bundle's folder `stage`; `folder` is the model's, whose configuration is copied.

    Raises:
        GateError: transformers.js gives other ids.
        MsdcError: no Node, or transformers.js cannot be fetched.
    """
    golden, part = read_golden(stage), manifest.tokenizer
    usual = {CONFIG_FILE: {"model_type": OWN_KIND}, SETTINGS_FILE: {"tokenizer_class": "PreTrainedTokenizerFast"}}
    for name, value in usual.items():
        if (folder / name).is_file():
            shutil.copyfile(folder / name, stage / name)
        else:
            write_text(stage / name, json.dumps(value))
    # The bundle's own tokenizer.json is what the model's loader made of it; a SentencePiece model may have a twin.
    sources = [stage / part.file] if part.file == JSON_FILE else [folder / JSON_FILE, stage / part.file]
    present = [source for source in sources if source.is_file()]
    _write_tokenizer(stage / JSON_FILE, present, golden["texts"], golden["ids"], manifest.max_length, part.eos_id)


def about_bundle(manifest: Manifest, tokenizer: Tokenizer) -> str:
    """What the module's README says of the files."""
    part, prompt = manifest.part("onnx"), manifest.prompts.get(manifest.default_prompt or "", "")
    data = [name for name in part.files() if name != part.file]
    more = f"[{prompt_tokens(tokenizer, prompt, manifest.max_length)}n], [1]"
    values = {
        "program": part.file.removesuffix(".onnx"),
        "external": json.dumps([{"path": name, "data": name} for name in data]),
        "text": json.dumps(f"{prompt}a text", ensure_ascii=False),
        "more": "" if manifest.include_prompt else f', prompt_tokens: new Tensor("int64", {more})',
        "length": str(manifest.max_length),
        "version": VERSION,
    }
    text = (HERE / "transformers.md").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], text).strip()


def _write_programs(encoder: Encoder, stage: Path, rows: list[list[int]], length: int) -> None:
    """Write both programs, each in one file; the gates are those of an export."""
    from msdc.export.exporters import float_model
    from msdc.export.onnx.program import OnnxRunner, check_onnx_file
    from msdc.export.onnx.write import build_onnx

    model = float_model(encoder)
    config = model.weights.config
    int8 = model.weights.plan or plan_for(config, "int8")
    wanted_ND = model.vectors(rows)
    for name, plan in ((PROGRAM, plan_for(config, "fp32")), (QUANTIZED, int8)):
        smoothed = smooth(model, plan, encoder.tokenizer, length)
        made = build_onnx(smoothed, plan, length, "web", tokens=_pipelined(config))
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


def about_folder(config: StudentConfig, prompt: str, hub_id: str) -> str:
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
    from msdc.export.exporters import canonical_obstacle, float_model

    place = folder / FOLDER
    if others := {path.name for path in place.iterdir()} - {PROGRAM, QUANTIZED} if place.is_dir() else ():
        raise InputError(f"{place} holds {min(others)}, which msdc has not written: move it away")
    encoder = load_encoder(str(folder.resolve()))
    # A tokenizer.json is written where there is a SentencePiece `.model`.
    given = {JSON_FILE} if (folder / MODEL_FILE).is_file() else set()
    lacking = [name for name in READ if name not in given and not (folder / name).is_file()]
    obstacles = (
        canonical_obstacle(encoder),
        not encoder.defaults.include_prompt and "it does not count a prompt's tokens",
        lacking and f"it lacks {', '.join(lacking)}",
    )
    if obstacle := next(filter(None, obstacles), None):
        raise InputError(f"{folder}: no files for transformers.js ({obstacle})")
    prompt = encoder.defaults.prompt()
    texts = [prompt + text for text in golden_texts()]
    config = float_model(encoder).weights.config
    length = min(encoder.max_length, config.positions)
    rows = encoder.tokenizer.encode(texts, length)
    with staged_folder(place, force=True) as stage:
        _write_programs(encoder, stage, rows, length)
        source = folder / (JSON_FILE if (folder / JSON_FILE).is_file() else MODEL_FILE)
        ends = encoder.tokenizer.encode([""], 8)[0]
        _write_tokenizer(folder / JSON_FILE, [source], texts, rows, length, ends[-1] if ends else None)
        _write_card(folder, about_folder(config, prompt, hub_id))


def _instead(text: str) -> str:
    text = _SPACES.sub(" ", _DROPPED.sub("", text))
    return _WHOLE.join(unicodedata.normalize("NFKC", part) for part in text.split(_WHOLE))


def _squeezed(text: str) -> str:
    return re.sub(" +", " ", text)


def _class(characters: Iterable[str]) -> str:
    return "[" + "".join(f"\\{c}" if c in "\\]^-[&~" else c for c in sorted(characters)) + "]"


def _replace(pattern: str, content: str, regex: bool = False) -> Step:
    return {"type": "Replace", "pattern": {"Regex" if regex else "String": pattern}, "content": content}


def _apart(rules: Mapping[str, str]) -> list[str]:
    """Zero-width places between two marks that NFKC might swap or join, and no rule does."""
    follow: defaultdict[str, set[str]] = defaultdict(set)
    for key in rules:
        for first, second in itertools.pairwise(key):
            if unicodedata.combining(first) and unicodedata.combining(second):
                follow[first].add(second)
    joined = "|".join(f"(?<={first}){_class(follow[first])}" for first in sorted(follow))
    return [rf"(?<=\p{{M}})(?=\p{{M}}){f'(?!{joined})' if joined else ''}"]


def spelled_steps(rules: Mapping[str, str], lowered: bool) -> tuple[list[Step], list[Step]]:
    """Steps before and after the map whose rules these are; for maps whose extra spaces a later step removes.

    With `lowered` no capital reaches the map, but for the dotted I (`msdc.text.tokenizer.write_fast_copy`).
    """
    marks = {key for key, text in rules.items() if len(key) == 1 and text == f" {key} "}

    def found(text: str) -> str:
        return _squeezed("".join(f" {c} " if c in marks else c for c in _instead(text)))

    wanted: defaultdict[str, list[str]] = defaultdict(list)
    kept = []
    singles = {key for key in rules if len(key) == 1}
    for character in sorted(singles.union(map(chr, (*range(0xD800), *range(0xE000, ASSIGNED))))):
        text = rules.get(character, character)
        if lowered and character.lower() != character and character != DOTTED:
            continue
        if found(character) == _squeezed(text):
            continue
        if text == character:
            kept.append(character)
        elif found(text) == _squeezed(text):
            wanted[text].append(character)
    guards = dict(zip(kept, _GUARDS[1:], strict=False))
    before = [_replace(_class(characters), text, regex=True) for text, characters in wanted.items()]
    before += [_replace(character, guard) for character, guard in guards.items()]
    before += [_replace(pattern, _GUARDS[0], regex=True) for pattern in _apart(rules)]
    after = [_replace(_GUARDS[0], "")] + [_replace(guard, character) for character, guard in guards.items()]
    if marks:
        after.append(_replace(f"(?<={_class(marks)})|(?={_class(marks)})", " ", regex=True))
    return before, after


def spelled(tokenizer: Mapping[str, Any]) -> dict[str, Any] | None:
    """A `tokenizer.json` whose map of SentencePiece is spelled out for transformers.js.

    That library does not read a `Precompiled` normalizer's map: it drops control characters, makes spaces of others and
    applies NFKC. It makes a final sigma of a capital one that ends a word. The steps added here make the text such that
    this gives what `tokenizers` gives, where they change nothing. What they cannot say is left to the gate.

    Returns:
        The value of the file; None where there is nothing to spell out, or it takes too many steps.
    """
    made = copy.deepcopy(dict(tokenizer))
    normalizer = made.get("normalizer") or {}
    given = normalizer.get("normalizers", [normalizer])
    steps: list[Step] = []
    for step in given:
        if step.get("type") == "Precompiled" and (raw := base64.b64decode(step.get("precompiled_charsmap") or "")):
            rules = read_character_map(raw) if len(raw) > 4 else {}
            before, after = spelled_steps(rules, any(one.get("type") == "Lowercase" for one in steps))
            if len(before) > MAX_STEPS:
                return None
            steps += [*before, step, *after] if rules else [step]
        elif step.get("type") == "Lowercase" or step.get("lowercase"):
            # JavaScript makes another small letter of a sigma that ends a word.
            steps += [_replace("\u03a3", "\u03c3"), step]
        else:
            steps.append(step)
    if len(steps) == len(given):
        return None
    made["normalizer"] = {"type": "Sequence", "normalizers": steps}
    return made
