"""The settings of a stock model's folder: each is applied, known to change no vector, or refused by its name.

A setting that were read by sentence-transformers or by the authors' own code, and not here, would change vectors
without a word. `check_layout` reads the files before anything is loaded; what a tokenizer does with its settings is
compared afterwards (`msdc.encoders.stock`).
"""

from __future__ import annotations

from pathlib import Path
from textwrap import shorten
from typing import Any

from msdc.encoders.folder import DEFAULTS_FILE, ONE_VECTOR, OTHER_FAMILIES, Layout
from msdc.errors import InputError, printable
from msdc.files import read_json, without_system_files
from msdc.limits import check_sizes
from msdc.progress import warn
from msdc.text.tokenizer import MAX_TOKENIZER_BYTES

# Keys of sentence_bert_config.json for the libraries' loaders, which could name other files, folders and kernels.
LOADER_KEYS = ("tokenizer_name_or_path", "model_args", "model_kwargs", "config_args", "config_kwargs",
               "tokenizer_args", "processor_kwargs")  # fmt: skip
TASK = "feature-extraction"
# Those that are applied, and `unpad_inputs`, which changes no vector.
TRANSFORMER_KEYS = ("max_seq_length", "do_lower_case", "modality_config", "module_output_name", "unpad_inputs")
# Those of the call, which only sentence-transformers' own `encode` applies: refused where they are set.
CALL_KEYS = ("processing_kwargs", "query_length", "document_length", "query_expansion")
POOLINGS = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
ENDS = {"module_input_name", "module_output_name"}
# Keys of the config.json of each module.
MODULE_KEYS = {
    "Pooling": {"word_embedding_dimension", "embedding_dimension", "pooling_mode", "include_prompt",
                *(f"pooling_mode_{mode}" for mode in POOLINGS)},
    "Dense": {"in_features", "out_features", "bias", "activation_function", "use_residual", *ENDS},
    "Normalize": ENDS,
    "LayerNorm": {"dimension"},
    "Dropout": {"dropout"},
}  # fmt: skip
# Heads of models that are trained for another output than a sentence vector, by the end of the class name.
CLASSIFIERS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice")
SENTENCE, STATE = "sentence_embedding", "last_hidden_state"


def _object(file: Path) -> dict[str, Any]:
    """A file of settings; without one, none."""
    if not file.is_file():
        return {}
    if not isinstance(value := read_json(file), dict):
        raise InputError(f"{file}: not an object")
    return value


def _refuse_kernels(file: Path, value: Any) -> None:
    """Refuse settings that name an implementation on the hub, which `transformers` would download and run."""
    for key, setting in value.items() if isinstance(value, dict) else ():
        names = setting.values() if isinstance(setting, dict) else [setting]
        if "implementation" in key and any("/" in str(name) for name in names):
            raise InputError(f"{file}: {key} names code on the hub, which is not loaded")
        _refuse_kernels(file, setting)


def _refuse_code(file: Path, value: dict[str, Any]) -> None:
    """Refuse a model that is computed by code of its own: without it, another model would be built from its weights."""
    if not (named := value.get("auto_map")):
        return
    entries = named.values() if isinstance(named, dict) else [named]
    names = [str(name) for entry in entries for name in (entry if isinstance(entry, list | tuple) else [entry]) if name]
    code = shorten(printable(", ".join(dict.fromkeys(f"{name.rpartition('.')[0]}.py" for name in names))), 120)
    kind = value.get("model_type")
    same = f"; if the {kind} model of transformers computes the same, remove auto_map from a copy" if kind else ""
    raise InputError(
        f"{file}: auto_map: the model is computed by code of its own ({code}), which msdc does not run; only "
        f"`msdc.load_encoder(folder, trust_remote_code=True)` runs it, to encode or as a teacher in Python{same}"
    )


def _refuse_transformer_settings(body: Path) -> None:
    for file in sorted(body.glob("sentence_*_config.json")):
        settings = _object(file)
        # Known releases write this value, which is not passed to `transformers`.
        for key in sorted(k for k in LOADER_KEYS if settings.get(k) and settings[k] != {"trust_remote_code": True}):
            raise InputError(f"{file}: {key} is not supported; keep tokenizer and settings in the folder's own files")
        if (task := settings.get("transformer_task", TASK)) != TASK:
            raise InputError(f"{file}: transformer_task {task!r} is not supported, only {TASK!r}: {ONE_VECTOR}")
        longest = settings.get("max_seq_length")
        if longest is not None and not (type(longest) is int and longest > 0):
            raise InputError(f"{file}: max_seq_length {longest!r} is not a number of tokens")
        for key in CALL_KEYS:
            if settings.get(key):
                raise InputError(f"{file}: {key} {shorten(str(settings[key]), 80)} is not supported; it changes tokens")
        applied_keys = {*LOADER_KEYS, *TRANSFORMER_KEYS, *CALL_KEYS, "transformer_task"}
        if unknown := sorted(settings.keys() - applied_keys):
            raise InputError(
                f"{file}: {', '.join(map(repr, unknown[:5]))}: unknown settings; their effect is not known"
            )


def _refuse_module_settings(kind: str, path: Path) -> None:
    """Refuse unknown keys of a module after the transformer."""
    file = path / "config.json"
    settings, applied_keys = _object(file), MODULE_KEYS.get(kind)
    if applied_keys is None:
        return
    check_sizes(settings, file)
    if unknown := sorted(settings.keys() - applied_keys):
        raise InputError(
            f"{file}: {', '.join(map(repr, unknown[:5]))}: not settings of {kind}; their effect is not known"
        )
    activation = str(settings.get("activation_function", "torch.nn."))
    if not activation.startswith("torch.nn."):
        raise InputError(f"{path}: activation {activation!r} is not supported; known: classes of torch.nn")


def check_layout(layout: Layout, trust_remote_code: bool = False, pooled: bool = False) -> None:
    """Check the settings of all modules before anything is loaded.

    Args:
        layout: the folder.
        trust_remote_code: the caller lets code of the model run.
        pooled: the caller defines the pooling of a bare transformer.
    """
    folder, body, config = layout.folder, layout.body, layout.config
    check_sizes(config, body / "config.json")
    for file in without_system_files((*body.glob("*.json"), *body.glob("*.model"), *body.glob("*.txt"))):
        if (size := file.stat().st_size) > MAX_TOKENIZER_BYTES:
            raise InputError(f"{file}: {size} bytes, more than the {MAX_TOKENIZER_BYTES} allowed")
    kind = str(_object(folder / DEFAULTS_FILE).get("model_type") or "SentenceTransformer")
    if kind != "SentenceTransformer":
        names = {f"{name.title().replace('_', '')}": what for name, what in OTHER_FAMILIES.items()}
        what = names.get(kind, f"a {shorten(printable(kind), 60)}")
        raise InputError(f"{folder}: {what}, not a sentence encoder ({DEFAULTS_FILE}): {ONE_VECTOR}")
    _refuse_kernels(body / "config.json", config)
    if quantized := config.get("quantization_config"):
        how = quantized.get("quant_method") if isinstance(quantized, dict) else None
        raise InputError(
            f"{body}: its weights are quantized by {how or 'another library'} (quantization_config), which msdc does "
            "not read; use the float checkpoint it was made from (`msdc export` quantizes it)"
        )
    if not trust_remote_code:
        for name in ("config.json", "tokenizer_config.json"):
            _refuse_code(body / name, _object(body / name))
    _refuse_transformer_settings(body)
    for module, path in zip(layout.modules[1:], layout.paths[1:], strict=True):
        _refuse_module_settings(module, path)
    if not layout.listed and not pooled:
        _check_bare(layout)


def _check_bare(layout: Layout) -> None:
    """A folder without modules.json: refuse a classifier, and name what is assumed of any other model."""
    architecture = str(next(iter(layout.config.get("architectures") or ()), ""))
    if architecture.endswith(CLASSIFIERS):
        raise InputError(
            f"{layout.folder}: a {printable(architecture)} (a reranker or another classifier), not a sentence encoder: "
            f"{ONE_VECTOR}"
        )
    how = "its last token is used" if architecture.endswith("ForCausalLM") else "its tokens are averaged (mean pooling)"
    warn(
        f"{layout.folder}: no modules.json: {printable(architecture) or 'a transformer'} does not state how it makes a "
        f"sentence vector; {how}, as in sentence-transformers. A masked language model or SPLADE is no sentence encoder"
    )
