"""Model folders of many kinds, made with sentence-transformers from tiny random models and saved by its own `save`."""

import json
from pathlib import Path

import torch
from architectures import configurations
from stock_models import stock_model, write_wordpiece
from tiny_models import once

from msdc.export import export


def _transformer(folder: Path, model, roberta: bool = False, max_length: int | None = 24, **settings):
    from sentence_transformers.sentence_transformer.modules import Transformer

    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    write_wordpiece(folder, roberta=roberta)
    return Transformer(str(folder), max_seq_length=max_length, **settings)


# Kinds that are not of the student's families, by name in `architectures`.
OTHERS = {"mpnet": "mpnet", "modernbert": "modernbert", "deberta": "deberta-v3", "t5": "t5", "instructor": "t5",
          "qwen3": "qwen3", "gemma3": "embedding-gemma"}  # fmt: skip


def _other(name: str):
    """A tiny random model of a class that is not one of the student's families."""
    torch.manual_seed(3)
    model = configurations(32, 2)[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


UNPOOLED = "prompt not pooled, mean"
PROMPTS = {"query": "the dog: ", "passage": "house, ", "plain": ""}
MODES = ("cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
KINDS = (
    *(f"pooling {mode}" for mode in MODES),
    "pooling cls and mean and max",
    "default prompt",
    *(f"prompt not pooled, {mode}" for mode in MODES),
    "instructor",
    "truncate_dim",
    "do_lower_case",
    "two dense",
    "dense with residual",
    "layer norm",
    "no normalisation",
    "no modules.json",
    "roberta",
    "distilbert",
    "albert",
    *("mpnet", "modernbert", "deberta", "t5", "qwen3", "gemma3"),
    "clip text",
    "static",
    "static with truncation",
    "model2vec",
)


def _static(folder: Path, truncation: int | None = None):
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    folder.mkdir(parents=True)
    write_wordpiece(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    if truncation:
        tokenizer.enable_truncation(truncation)
    return StaticEmbedding(tokenizer, embedding_weights=torch.randn(120, 24))


def _cased(folder: Path) -> None:
    """Make the tokenizer of `folder` keep capitals, so that only `do_lower_case` removes them."""
    from tokenizers import Tokenizer, normalizers

    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.normalizer = normalizers.NFC()
    backend.save(str(folder / "tokenizer.json"))


def _model2vec(folder: Path) -> Path:
    """The layout of model2vec's own `save_pretrained`: an embeddings tensor, modules.json naming StaticEmbedding."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    write_wordpiece(folder)
    save_file({"embeddings": torch.randn(120, 24)}, str(folder / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True}))
    modules = [
        {"idx": 0, "name": "0", "path": ".", "type": "sentence_transformers.models.StaticEmbedding"},
        {"idx": 1, "name": "1", "path": "1_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]
    (folder / "1_Normalize").mkdir()
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


def write_folder(folder: Path, kind: str) -> Path:
    """The folder of one of `KINDS` below `folder`."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense, LayerNorm, Normalize, Pooling

    torch.manual_seed(11)
    raw, out = folder / "raw", folder / "model"
    if kind == "model2vec":
        return _model2vec(out)
    same, prompted = torch.nn.Identity(), {"prompts": PROMPTS, "default_prompt_name": "query"}
    # (pooling, settings, modules after the pooling)
    pooling, settings, after = {
        "default prompt": ({}, prompted, None),
        # T5, prompts read but not pooled, a dense layer without bias
        "instructor": ({"include_prompt": False}, prompted, [Dense(32, 24, bias=False, activation_function=same)]),
        "truncate_dim": ({}, {"truncate_dim": 20, "prompts": PROMPTS}, None),
        "two dense": ({}, {}, [Dense(32, 48, activation_function=torch.nn.Tanh()),
                               Dense(48, 16, bias=False, activation_function=torch.nn.SiLU())]),
        "dense with residual": ({}, {}, [Dense(32, 24, activation_function=same, use_residual=True)]),
        "layer norm": ({}, {}, [LayerNorm(32)]),
        "no normalisation": ({}, {}, []),
        "qwen3": ({"pooling_mode": "lasttoken"}, {}, None),
        "gemma3": ({}, {}, [Dense(32, 64, bias=False, activation_function=same),
                            Dense(64, 32, bias=False, activation_function=same)]),
    }.get(kind, ({}, {}, None))  # fmt: skip
    if kind.startswith("pooling "):
        names = tuple(kind.removeprefix("pooling ").split(" and "))
        pooling = {"pooling_mode": names if len(names) > 1 else names[0]}
    elif kind.startswith("prompt not pooled"):
        pooling, settings = {"pooling_mode": kind.split(", ")[1], "include_prompt": False}, prompted
    pooling = {"pooling_mode": "mean"} | pooling
    if kind not in ("dense with residual", "layer norm", "no normalisation"):
        after = [*(after or ()), Normalize()]
    if kind == "clip text":
        raw.mkdir(parents=True)
        settings_of_images = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 16},
                              "crop_size": {"height": 16, "width": 16}}  # fmt: skip
        (raw / "preprocessor_config.json").write_text(json.dumps(settings_of_images))
        modules = [_transformer(raw, _other("clip-text"))]
    elif kind.startswith("static"):
        modules = [_static(raw, 12 if "truncation" in kind else None), *after]
    else:
        if kind in ("roberta", "distilbert", "albert"):
            model = stock_model(kind)
        elif kind in OTHERS:
            model = _other(OTHERS[kind])
        else:
            model = stock_model("bert")
        if kind == "no modules.json":
            raw.mkdir(parents=True)
            model.save_pretrained(raw)
            write_wordpiece(raw)
            return raw
        if kind == "do_lower_case":
            raw.mkdir(parents=True)
            write_wordpiece(raw)
            _cased(raw)
            from sentence_transformers.sentence_transformer.modules import Transformer

            model.save_pretrained(raw)
            first = Transformer(str(raw), max_seq_length=24, do_lower_case=True)
        else:
            first = _transformer(raw, model, roberta=kind == "roberta")
        modules = [first, Pooling(32, **pooling), *after]
    SentenceTransformer(modules=modules, device="cpu", **settings).save(str(out), create_model_card=False)
    if kind == "do_lower_case":
        # Saved with the lower-casing inside the tokenizer; folders of older releases state it in the settings alone.
        _cased(out)
        file = out / "sentence_bert_config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "do_lower_case": True}))
    return out


def kind_bundle(kind: str, runtime: str) -> tuple[Path, Path]:
    """(folder of `folder_kinds.KINDS`, its fp32 bundle for linux)."""
    name = kind.replace(" ", "-").replace(",", "")
    folder = once(f"folder-{name}", lambda target: write_folder(target.parent / name, kind).rename(target))

    def make(target: Path) -> None:
        export(str(folder), target="linux", runtime=runtime, precision="fp32", output=target)

    return folder, once(f"bundle-{name}-{runtime}", make)
