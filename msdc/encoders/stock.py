"""A sentence-transformers model as one torch module over token ids: its own modules in their order.

Its tokenizer gives the ids of `transformers`, in a form that can be saved, exported and trimmed. For a bare transformer
folder the caller defines pooling and head. SimCSE's models (princeton-nlp/sup-simcse-*) are such folders: their
sentence vector is a dense layer with tanh over the last state of [CLS], stored as the pooler or under its training name
`mlp`.

Shapes: B batch, T tokens, H hidden, D sentence width.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import pickle
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, cast

import safetensors.torch
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer as Backend
from torch import Tensor, nn

from msdc.encoders.folder import POSITIONS_AFTER_PAD
from msdc.encoders.settings import check_layout
from msdc.encoders.source import PICKLE_SUFFIX, ModelSource, refuse_misfit, refuse_other_tensors, weight_files
from msdc.errors import InputError, MsdcError, first_line, printable
from msdc.extras import require
from msdc.files import staged_folder, user_cache
from msdc.machine import memory_mib
from msdc.progress import warn
from msdc.text.quickstart import golden_lines
from msdc.text.tokenizer import (
    JSON_FILE,
    MODEL_FILE,
    FastTokenizer,
    PieceTokenizer,
    Tokenizer,
    check_tokenizer_files,
    pb,
)

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

# max_length of models that state none (static embeddings, T5's relative positions).
UNLIMITED = 2**20
# Tables of absolute positions, by the ends of their names.
POSITION_TABLE = re.compile(r"(^|\.)(position_embeddings?|embed_positions|wpe|positions_embed)$")
OTHER_TOWER = re.compile(r"vision|visual|image|audio")
HEAD_NAMES = ("mlp.dense", "pooler.dense")
START_STD = 0.02
# Tensors of a static model: the table, or those of model2vec, whose table may be smaller than its vocabulary.
STATIC = ("embedding.weight",)
MODEL2VEC = ("embeddings", "mapping", "weights")
# Heads of published encoders that no sentence vector needs: of masked and causal language models, of ELECTRA, T5's
# decoder, classifiers, SimCSE's training. And buffers that older releases of `transformers` stored.
HEADS = (
    "cls", "lm_head", "mlm_head", "predictions", "lm_predictions", "mask_predictions", "sop_classifier", "head",
    "decoder", "vocab_transform", "vocab_layer_norm", "vocab_projector", "generator_predictions", "generator_lm_head",
    "discriminator_predictions", "classifier", "qa_outputs", "score", "pooler", "mlp", "final_logits_bias",
)  # fmt: skip
COMPUTED = ("position_ids", "rotary_emb.inv_freq", "token_type_ids")
FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
# Names of the SentencePiece model in stock folders, ours first.
PIECE_FILES = (MODEL_FILE, "sentencepiece.bpe.model", "spiece.model", "sentencepiece.model")
SPACES = ["", "  two  spaces ", "no-break\u00a0space and \u3000 more", "\ufb01ne \uff26\uff35 \u2460", "cafe\u0301"]


class SentenceModel(nn.Module):
    """(ids_BT, mask_BT) -> sentence_BD for any text model that sentence-transformers loads.

    `transformer` is its first module, `after` the others: pooling, dense layers, normalisation.
    """

    def __init__(self, transformer: nn.Module, after: Sequence[nn.Module], width: int) -> None:
        super().__init__()
        self.transformer, self.first, self.width = transformer, (transformer,), width
        self.after = nn.ModuleList(after)

    @property
    def body(self) -> Any:
        """The model of `transformers`."""
        return self.transformer.model

    def embed(self, ids_BT: Tensor) -> Tensor:
        """Output of the embedding layer, [B, T, H or E]."""
        hidden_BTH: Tensor = self.body.embeddings(ids_BT)
        return hidden_BTH

    def hidden(self, ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Last hidden states, [B, T, H]."""
        hidden_BTH: Tensor = self.body(input_ids=ids_BT, attention_mask=mask_BT.long()).last_hidden_state
        return hidden_BTH

    def _finish(self, features: dict[str, Any], skip: int = 0) -> Tensor:
        if skip:
            features["prompt_length"] = skip
        for module in self.after:
            features = module(features)
        sentence_BD: Tensor = features["sentence_embedding"]
        return sentence_BD

    def head(self, hidden_BTH: Tensor, mask_BT: Tensor) -> Tensor:
        """Pooling, dense layers and normalisation: [B, T, H] -> [B, D]."""
        return self._finish({"token_embeddings": hidden_BTH, "attention_mask": mask_BT.long()})

    def forward(self, ids_BT: Tensor, mask_BT: Tensor, skip: int = 0) -> Tensor:
        """Sentence vectors [B, D] of token ids [B, T] whose mask is 1 on real tokens.

        `skip` is the number of first tokens that a pooling with `include_prompt: false` ignores.
        """
        features = {"input_ids": ids_BT, "attention_mask": mask_BT.long(), "modality": "text"}
        return self._finish(self.transformer(features), skip)


class StaticModel(nn.Module):
    """(ids_BT, mask_BT) -> sentence_BD: the mean of table rows, then the other modules. Without tokens: zeros."""

    def __init__(self, embedding: nn.Module, after: Sequence[nn.Module], width: int) -> None:
        super().__init__()
        # In a tuple, so that its weights are not counted twice.
        self.first = (embedding,)
        bag: Any = embedding.embedding
        table_VH = bag.weight.detach()
        self.table = nn.Embedding(table_VH.shape[0], table_VH.shape[1], _weight=table_VH.float())
        self.after = nn.ModuleList(after)
        self.width = width

    def forward(self, ids_BT: Tensor, mask_BT: Tensor, skip: int = 0) -> Tensor:
        """Sentence vectors [B, D] of token ids [B, T] whose mask is 1 on real tokens."""
        del skip
        mask_BT1 = mask_BT.unsqueeze(-1).float()
        rows_BTH = F.embedding(ids_BT, self.table.weight)
        features = {"sentence_embedding": (rows_BTH * mask_BT1).sum(1) / mask_BT1.sum(1).clamp(min=1.0)}
        for module in self.after:
            features = module(features)
        return features["sentence_embedding"]


def folder_modules(module: Any, where: str) -> list[nn.Module]:
    """The modules of the folder as sentence-transformers created them."""
    if not isinstance(module, SentenceModel | StaticModel):
        raise InputError(f"{where}: not a model of sentence-transformers modules")
    return [module.first[0], *module.after]


SAVE_AGAIN = "load the model where it comes from, if you trust it, and save it with `save_pretrained`"


def _unpickled(raw: bytes, file: Path) -> dict[str, Tensor]:
    """The tensors of a state dict that `torch.save` wrote; they own their memory. Nothing else is loaded."""
    if zipfile.is_zipfile(packed := io.BytesIO(raw)):
        size = sum(member.file_size for member in zipfile.ZipFile(packed).infolist())
        if size > memory_mib() * 2**20:
            raise InputError(f"{file}: {size} bytes when unpacked, larger than the memory that this process may use")
    try:
        state = torch.load(io.BytesIO(raw), map_location="cpu", weights_only=True)
    except Exception as error:
        # torch's message advises to load it anyway.
        needs = re.search(r"(?:GLOBAL|Unsupported global:?|Unsupported class) (?:GLOBAL )?([\w.]+)", str(error))
        if needs or isinstance(error, pickle.UnpicklingError):
            what = f" ({shorten(printable(needs[1]), 80)})" if needs else ""
            raise InputError(f"{file}: its pickle needs more than weights{what}: {SAVE_AGAIN}") from error
        raise InputError(
            f"{file}: damaged or not a file of `torch.save` ({first_line(error)}): {SAVE_AGAIN}"
        ) from error
    if not isinstance(state, dict):
        raise InputError(f"{file}: has a {type(state).__name__}, not a state dict: {SAVE_AGAIN}")
    for name, value in state.items():
        dense = isinstance(name, str) and isinstance(value, Tensor) and value.layout == torch.strided
        # A view may repeat few bytes into more than the memory.
        if not dense or value.is_quantized or value.nbytes > value.untyped_storage().nbytes():
            raise InputError(
                f"{file}: {shorten(printable(str(name)), 80)} is no plain tensor of a state dict: {SAVE_AGAIN}"
            )
    return {name: value.detach().clone(memory_format=torch.contiguous_format) for name, value in state.items()}


def read_tensors(source: ModelSource, folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder's weights, from bytes that `source` read and hashed; the tensors own their memory.

    Raises:
        InputError: no weights, damaged ones, or not the tensors of their index.
    """
    files, listed = weight_files(folder)
    by_name: dict[str, Tensor] = {}
    for file in files:
        raw = source.read(file)
        if file.suffix == PICKLE_SUFFIX:
            by_name |= _unpickled(raw, file)
            continue
        try:
            by_name |= safetensors.torch.load(raw)
        except Exception as error:
            raise InputError(f"{file}: damaged or not a safetensors file ({first_line(error)})") from error
    if listed is not None:
        refuse_misfit(folder, listed - by_name.keys(), by_name.keys() - listed, {})
    for name, value in by_name.items():
        # Integers are indices (of model2vec), buffers and masks; a weight in integers has lost its scale.
        if value.dtype not in FLOATS and name.rpartition(".")[2] in ("weight", "bias", "embeddings", "weights"):
            if name.endswith("bias") and value.ndim > 1:
                continue  # GPT-2's mask
            kind = str(value.dtype).removeprefix("torch.")
            raise InputError(f"{folder}: tensor {printable(name)} is {kind}, not float; use the float checkpoint")
    return {n: value.float() if value.dtype == torch.float64 else value for n, value in by_name.items()}


class _FromSource:
    """Mixin before a class of sentence-transformers, whose weights come from `source`, all of them and no others."""

    source: ModelSource

    @classmethod
    def load_torch_weights(cls, model_name_or_path: str, subfolder: str = "", model: Any = None, **_: Any) -> Any:
        """Replaces the loader of Dense, LayerNorm and StaticEmbedding; the last passes no `model`."""
        where = Path(model_name_or_path) / subfolder
        tensors = read_tensors(cls.source, where)
        stored = {name: tuple(value.shape) for name, value in tensors.items()}
        if model is not None:
            refuse_other_tensors(where, stored, {name: tuple(v.shape) for name, v in model.state_dict().items()})
            model.load_state_dict(tensors)
            return model
        (needed, *optional) = STATIC if STATIC[0] in tensors else MODEL2VEC
        refuse_misfit(where, {needed} - stored.keys(), stored.keys() - {needed, *optional}, {})
        # The sum of half-precision rows would be less exact than any program.
        return {name: value.float() if value.is_floating_point() else value for name, value in tensors.items()}

    def _load_model(self, folder: str, task: str, config: Any, *_: Any, **loading: Any) -> Any:
        """Replaces the loader of the model of `transformers`, which would look for other files and for kernels."""
        from transformers import AutoModel

        where, this, automatic = Path(folder) / loading.get("subfolder", ""), cast(Any, self), cast(Any, AutoModel)
        # None: the library's own choice instead of config.json's.
        chosen: dict[str, Any] = {"attn_implementation": None, "experts_implementation": None}
        reading = {"state_dict": read_tensors(self.source, where), "dtype": torch.float32, **chosen}
        reading |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
        loaded = this._load_encoder_only_model(None, config, **reading)
        if loaded is None:
            with torch.device("meta"):
                shape = automatic.from_config(config, trust_remote_code=loading.get("trust_remote_code"), **chosen)
            loaded = type(shape).from_pretrained(None, config=shape.config, **reading)
        model, report = loaded
        prefix = f"{model.base_model_prefix}."
        # Few models use their pooler, and many were published without one.
        this.no_pooler = {name for name in report["missing_keys"] if name.startswith("pooler.")}
        unexpected = {name for name in report["unexpected_keys"] if not _unused(name.removeprefix(prefix), model)}
        shapes = {name: (has, expected) for name, has, expected in report["mismatched_keys"]}
        refuse_misfit(where, report["missing_keys"] - this.no_pooler, unexpected, shapes)
        return model


def _unused(name: str, model: nn.Module) -> bool:
    """Whether a tensor that the model lacks belongs to an unused head, or is a buffer that is computed."""
    first = name.split(".")[0]
    return name.endswith(COMPUTED) or (first in HEADS and not hasattr(model, first))


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def open_sentence_transformer(
    source: ModelSource, trust_remote_code: bool = False, pooled: bool = False
) -> SentenceTransformer:
    """The folder as sentence-transformers' own modules, in float32 on the CPU, after `check_layout`.

    `pooled`: the caller defines the pooling of a bare transformer.
    """
    layout, folder = source.layout, str(source.folder)
    require("sentence_transformers", f"{layout.folder.name}, a stock model,")
    check_layout(layout, trust_remote_code, pooled)
    check_tokenizer_files(layout.folder)
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import modules as stock
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    # It would print a table of tensors that do not fit; our error for them is one line, and an unused head is ignored.
    logging.getLogger("transformers.modeling_utils").addFilter(_is_error)
    hub: dict[str, Any] = {"local_files_only": True, "trust_remote_code": trust_remote_code}
    modules: list[Any] = []
    try:
        for kind, module_folder in zip(layout.modules, source.places, strict=True):
            loader: Any = type(kind, (_FromSource, getattr(stock, kind)), {"source": source})
            if layout.listed:
                part = module_folder.relative_to(source.folder).as_posix()
                modules.append(loader.load(folder, subfolder="" if part == "." else part, **hub))
            else:
                loading = {key: dict(hub) for key in ("model_kwargs", "processor_kwargs", "config_kwargs")}
                modules.append(loader(folder, **loading))
        first = modules[0]
        _refuse_positions(layout.config, first, layout.body)
        class_name = str(next(iter(layout.config.get("architectures") or ()), ""))
        if class_name and not trust_remote_code and not hasattr(transformers, class_name):
            warn(f"{folder}: config.json names the class {class_name}, which transformers does not have; the model is "
                 f"computed as {type(first.model).__name__}")  # fmt: skip
        of: Any = getattr(first, "tokenizer", None)
        if getattr(of, "pad_token", "") is None:
            # The libraries ask for one even where nothing is padded; which id it is changes no vector.
            of.pad_token = of.eos_token or of.unk_token or of.convert_ids_to_tokens(0)
        if not source.has_weights:
            raise MsdcError(f"{folder}: this release of sentence-transformers loads weights differently; use 6.2")
        if "pooler_output" in str(getattr(first, "modality_config", {}).get("text")):
            refuse_misfit(layout.body, first.no_pooler, (), {})
        if not layout.listed and first.module_output_name == "token_embeddings":
            # The default of sentence-transformers for a bare transformer.
            causal = str((first.config.architectures or [""])[0]).endswith("ForCausalLM")
            last = causal and getattr(first.config, "is_causal", True)
            modules.append(stock.Pooling(first.get_embedding_dimension(), "lasttoken" if last else "mean"))
        return SentenceTransformer(modules=modules, device="cpu", local_files_only=True).eval()
    except MsdcError:
        raise
    except Exception as error:
        raise InputError(f"{folder}: sentence-transformers cannot load it: {first_line(error)}") from error


def _refuse_positions(config: dict[str, Any], first: Any, where: Path) -> None:
    """Refuse positions of a kind that the class of `transformers` does not compute; it would use absolute ones."""
    kind = config.get("position_embedding_type") or "absolute"
    if kind != "absolute" and not hasattr(type(first.config), "position_embedding_type"):
        raise InputError(f"{where}: config.json: position_embedding_type {kind!r} is not computed by transformers'"
                         f" {type(first.model).__name__}")  # fmt: skip


def torch_module(model: SentenceTransformer, where: str) -> SentenceModel | StaticModel:
    """The torch module of a loaded model."""
    first, *after = list(model)
    width = model.get_embedding_dimension()
    if type(first).__name__ == "StaticEmbedding":
        return StaticModel(first, after, int(width or cast(Any, first).embedding_dim))
    modalities: Any = getattr(first, "modality_config", {})
    if "text" not in modalities:
        raise InputError(f"{where}: not a text model (it takes {', '.join(map(str, modalities)) or 'nothing known'})")
    if width is None:
        raise InputError(f"{where}: the width of its vectors is unknown")
    return SentenceModel(first, after, int(width)).float().eval()


def includes_prompt(model: SentenceTransformer) -> bool:
    """Whether the prompt's tokens are pooled: no pooling module has `include_prompt: false`."""
    return all(getattr(module, "include_prompt", True) for module in model)


def longest_input(model: SentenceTransformer) -> int:
    """Tokens per text, special ids included, at most the existing positions."""
    first: Any = model[0]
    if type(first).__name__ == "StaticEmbedding":
        # Static models have no limit but that of their tokenizer.json.
        return int((first.tokenizer.truncation or {}).get("max_length", UNLIMITED))
    limit = first.max_seq_length
    longest = UNLIMITED if limit is None or limit > UNLIMITED else int(limit)
    return min(longest, positions_of(first))


def positions_of(first: Any) -> int:
    """Tokens that the first module has positions for: by its config, and by the rows of its tables of positions."""
    body: Any = getattr(first, "model", None)
    config: Any = getattr(body, "config", None)
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    stated = getattr(config, "max_position_embeddings", None) or 0
    longest = stated if stated > 0 else UNLIMITED
    if config is not None and config.model_type in POSITIONS_AFTER_PAD:
        longest -= int(getattr(config, "pad_token_id", 0) or 0) + 1
    for name, table in getattr(body, "text_model", body).named_modules() if isinstance(body, nn.Module) else ():
        if isinstance(table, nn.Embedding) and POSITION_TABLE.search(name) and not OTHER_TOWER.search(name):
            # RoBERTa's relatives count from the pad id + 1, BART's from 2.
            pad, offset = table.padding_idx, int(getattr(table, "offset", 0))
            longest = min(longest, table.num_embeddings - (offset if pad is None else pad + 1))
    return longest


# --- bare transformers ----------------------------------------------------------------------------------------------


def set_pooling(
    module: nn.Module, source: ModelSource, pooling: str | None, head: str | None, seed: int | None
) -> int | None:
    """Set the pooling (mean, cls, max) and the head ("mlp") of a bare transformer.

    The head is a dense layer with tanh after pooling, whose weights are the folder's `mlp` or pooler; if the folder has
    neither they are drawn with `seed`. Returns the seed if the head was drawn, else None.
    """
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling

    folder = source.folder
    poolings = [part for part in module.after if isinstance(part, Pooling)] if isinstance(module, SentenceModel) else []
    if not isinstance(module, SentenceModel) or len(poolings) != 1:
        raise InputError(f"{folder}: its transformer computes sentence vectors; `pooling` and `head` do not apply")
    if pooling is not None:
        poolings[0].pooling_mode = pooling
    if head is None:
        return None
    state = _head_weights(read_tensors(source, folder), module.width)
    dense = Dense(module.width, module.width, activation_function=nn.Tanh())
    linear = dense.linear.requires_grad_(False)
    if state is not None:
        linear.load_state_dict(state)
    elif seed is not None:
        linear.weight.normal_(std=START_STD, generator=torch.Generator().manual_seed(seed))
        linear.bias.zero_()
    else:
        raise InputError(f'{folder}: `head` "mlp", but its weights have no {" or ".join(HEAD_NAMES)}')
    linear.requires_grad_(True)
    module.after.append(dense)
    return seed if state is None else None


def _head_weights(tensors: dict[str, Tensor], hidden: int) -> dict[str, Tensor] | None:
    """Weight and bias of the head among a folder's tensors; None without one."""
    for layout in HEAD_NAMES:
        weights: dict[str, Tensor] = {}
        for name, value in tensors.items():
            layer, _, part = name.rpartition(".")
            if f".{layer}".endswith(f".{layout}") and part in ("weight", "bias"):
                weights[part] = value.float()
        if weights.keys() == {"weight", "bias"} and weights["weight"].shape == (hidden, hidden):
            return weights
    return None


# --- tokenizers -----------------------------------------------------------------------------------------------------
#
# `transformers` may change the settings of `tokenizer.json` (lower-casing, a class that builds its own normalizer). If
# it does, or if the folder has an equal SentencePiece model with other ids, the tokenizer is written to the user's
# cache and opened from there, so that a copy of its file has the behaviour of the model.


def _cached_file(files: dict[str, bytes]) -> Path:
    """The first of `files`, written to a folder of the user's cache that is named by their hash."""
    folder = user_cache() / "tokenizers" / hashlib.sha256(b"".join(files.values())).hexdigest()[:32]
    first = folder / next(iter(files))
    if not first.is_file():
        with staged_folder(folder, force=True) as stage:
            for name, content in files.items():
                (stage / name).write_bytes(content)
    return first


def _model_with_ids(piece_file: Path, backend: Any) -> bytes | None:
    """The SentencePiece model with its pieces in the order of the `tokenizers` library's ids; None if impossible.

    XLM-R's ids are those of its `sentencepiece.bpe.model` plus one, after special ids of its own. A model with its
    pieces in the order of the ids needs no such offset: the phone reads it directly, and the table is unchanged.
    """
    Piece = pb.ModelProto.SentencePiece
    parsed = json.loads(backend.to_str())
    rows = parsed["model"].get("vocab")
    if parsed["model"].get("type") != "Unigram" or not isinstance(rows, list):
        return None
    added = {int(token["id"]): str(token["content"]) for token in parsed.get("added_tokens", [])}
    added_ids = range(len(rows), backend.get_vocab_size(with_added_tokens=True))
    names = [str(name) for name, _ in rows] + [added.get(number, "") for number in added_ids]
    proto = pb.ModelProto()
    try:
        proto.ParseFromString(piece_file.read_bytes())
    except Exception:
        return None
    pieces = {piece.piece: piece for piece in proto.pieces}
    ends, id_of = backend.encode("").ids, {name: number for number, name in enumerate(names)}
    unknown = next((piece.piece for piece in proto.pieces if piece.type == Piece.UNKNOWN), None)
    if "" in names or len(id_of) != len(names) or len(ends) != 2 or unknown is None or pieces.keys() - id_of.keys():
        return None
    ordered = []
    for name in names:
        piece = Piece(piece=name, score=0.0, type=Piece.CONTROL)
        if name in pieces:
            piece.CopyFrom(pieces[name])
        ordered.append(piece)
    del proto.pieces[:]
    proto.pieces.extend(ordered)
    trainer = proto.trainer_spec
    trainer.bos_piece, trainer.eos_piece, trainer.unk_piece = names[ends[0]], names[ends[1]], unknown
    trainer.bos_id, trainer.eos_id, trainer.unk_id = ends[0], ends[1], id_of[unknown]
    trainer.pad_id = id_of.get("<pad>", -1)
    trainer.vocab_size = len(names)
    content: bytes = proto.SerializeToString()
    return content


def _pieces(folder: Path, fast: FastTokenizer) -> PieceTokenizer | None:
    """The folder's SentencePiece model if its ids equal those of `fast`, except for names of special ids."""
    # SentencePiece reads names of special ids as ordinary text, which is right for a user's text.
    special = [token.content for token in fast.backend.get_added_tokens_decoder().values()]
    texts = [text for text in [*golden_lines(), *SPACES] if not any(name in text for name in special)]
    expected = fast.encode(texts, 512)
    for file in (folder / name for name in PIECE_FILES if (folder / name).is_file()):
        try:
            # Our own files have the right ids; a stock file is rewritten with the model's.
            candidates = [PieceTokenizer(file)] if file.name == MODEL_FILE else []
            rewritten = _model_with_ids(file, fast.backend)
            candidates += [] if rewritten is None else [PieceTokenizer(_cached_file({MODEL_FILE: rewritten}))]
        except InputError:
            continue
        for pieces in candidates:
            if pieces.size >= fast.size and pieces.pad_id == fast.pad_id and pieces.encode(texts, 512) == expected:
                return pieces
    return None


def stock_tokenizer(folder: Path, first: Any) -> Tokenizer:
    """The tokenizer of the first module of a sentence-transformers model in `folder`."""
    static = type(first).__name__ == "StaticEmbedding"
    source = first.tokenizer
    backend = source if static else getattr(source, "backend_tokenizer", None)
    if not isinstance(backend, Backend):
        raise InputError(
            f"{folder}: models with a {type(source).__name__} are not supported: it has no form as tokenizer.json, "
            "which phones read; use a model with a WordPiece, BPE or Unigram tokenizer"
        )
    text = json.loads(backend.to_str())
    text["padding"] = text["truncation"] = None
    if static:
        # A static model adds no special ids.
        text["post_processor"] = None
    file, same = folder / JSON_FILE, False
    if file.is_file():
        stored = Backend.from_file(str(file))
        stored.no_padding()
        stored.no_truncation()
        same = json.loads(stored.to_str()) == text
    if not same:
        settings = [folder / name for name in ("tokenizer_config.json", "special_tokens_map.json")]
        copies = {path.name: path.read_bytes() for path in settings if path.is_file()}
        file = _cached_file({JSON_FILE: json.dumps(text, ensure_ascii=False).encode("utf-8"), **copies})
    fast = FastTokenizer(file, 0 if static else int(source.pad_token_id or 0))
    return fast if static else _pieces(folder, fast) or fast
