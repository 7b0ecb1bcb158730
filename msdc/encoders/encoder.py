"""Text in, vectors out: the interface to models for all commands and packages.

`SentenceEncoder` is the base of exported bundles and of `Encoder`, a model with its weights.

Shapes: N texts, B batch, T tokens, D sentence width.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypedDict, TypeVar, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from msdc.encoders.folder import EncodeDefaults, Similarity, shipped_cosines, with_prompt
from msdc.errors import InputError, did_you_mean
from msdc.progress import track, warn
from msdc.scores import cosine_spread, require_finite, unit_rows
from msdc.text.passages import passages
from msdc.text.quickstart import unrelated_sentences
from msdc.text.tokenizer import (
    Reader,
    Tokenizer,
    count_truncated,
    pack_by_length,
    pad,
    prompt_tokens,
    require_texts,
)

BATCH_TOKENS, MOST_TEXTS = 4096, 4096
LITTLE_ROOM = 16  # tokens of text after a prompt: a short sentence in most languages
Precision = Literal["float", "int8"]
# Settings of `SentenceTransformer` that may be assigned here too.
SETTINGS = ("max_seq_length", "prompts", "default_prompt_name", "truncate_dim", "similarity_fn_name")


class EncodeOptions(TypedDict, total=False):
    """Keyword arguments of `SentenceEncoder.encode`."""

    prompt_name: str | None
    prompt: str | None
    batch_size: int | None
    show_progress_bar: bool | None
    normalize_embeddings: bool
    truncate_dim: int | None
    batch_tokens: int
    precision: str
    inputs: Sequence[str] | str | None
    sentences: Sequence[str] | str | None


def _listed(texts: Any) -> list[str]:
    """N texts, or one, as a list; `InputError` for anything else."""
    if not isinstance(texts, Iterable):
        raise InputError(f"encode takes texts or one text, not {type(texts).__name__}")
    # Arrays of Arrow have `to_pylist`; their own values are no strings.
    listed: list[str] = [texts] if isinstance(texts, str) else getattr(texts, "to_pylist", lambda: list(texts))()
    require_texts(listed)
    return listed


def prompt_room(tokenizer: Tokenizer, prompt: str, max_length: int) -> int:
    """Tokens that an input of `max_length` tokens has left for text, after `prompt` and the special ids; 0 or less:
    none."""
    empty, row = tokenizer.encode([""], max_length)[0], tokenizer.encode([prompt], 1 << 20)[0] if prompt else []
    return max_length - max(len(row), len(empty))


def require_room(name: str, tokenizer: Tokenizer, defaults: EncodeDefaults, max_length: int) -> None:
    """Refuse a model with a prompt that leaves no room for text; warn of one that leaves fewer than `LITTLE_ROOM`.

    Raises:
        InputError: naming the prompt: with it, every text gets the same vector.
    """
    for prompt in filter(None, defaults.prompt_texts()):
        room = prompt_room(tokenizer, prompt, max_length)
        label = f"{name}: {defaults.label(prompt)} {prompt[:40]!r}"
        if room < 1:
            raise InputError(
                f"{label} has {max_length - room} tokens with the special ones, and an input {max_length}: every text "
                "would get the same vector; use a larger `max_length`, or remove the prompt from "
                "config_sentence_transformers.json"
            )
        if room < LITTLE_ROOM:
            warn(f"{label} leaves {room} of {max_length} tokens for text; longer texts are truncated")


def unrelated_cosines(
    tokenizer: Tokenizer, max_length: int, encode: Callable[[list[str]], NDArray[np.float32]]
) -> tuple[float, float] | None:
    """Mean and standard deviation of the cosines of unrelated sentences; see `SentenceEncoder.cosines`."""
    reader = Reader(tokenizer, max_length)
    sentences = next((texts for texts in unrelated_sentences() if not reader.unread(texts).any()), None)
    return None if sentences is None else cosine_spread(encode(sentences))


# Arguments of `SentenceTransformer.encode` with the values that are supported here, the default first.
SUPPORTED: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("output_value", ("sentence_embedding",)), ("convert_to_numpy", (True,)), ("convert_to_tensor", (False,)),
    ("device", (None, "cpu")), ("pool", (None,)), ("chunk_size", (None,)),
)  # fmt: skip
DEFAULTS = tuple(values[0] for _, values in SUPPORTED)


def _require_supported(passed: Sequence[Any]) -> None:
    """Refuse a value of one of the arguments in SUPPORTED, in their order."""
    for (name, values), value in zip(SUPPORTED, passed, strict=True):
        if value not in values:
            allowed = " or ".join(map(repr, values))
            raise InputError(
                f"`{name}` {value!r} is not supported, only {allowed}; "
                "msdc.integrations.sentence_transformers.as_sentence_transformer(model) has the rest"
            )


class Batching(NamedTuple):
    """How texts are batched: at most so many texts and tokens, with a progress bar or without."""

    texts: int
    tokens: int
    progress: bool


class SentenceEncoder:
    """A model with its tokenizer: one with its weights (`Encoder`) or an exported one (`msdc.export.bundle.Bundle`).

    `max_length` is its longest input in tokens, special ids included; longer texts are truncated. `defaults` are its
    prompts and the dimensions of its vectors. The properties that a `SentenceTransformer` has too may be assigned.
    """

    name: str
    tokenizer: Tokenizer
    defaults: EncodeDefaults

    def __init__(self, name: str, tokenizer: Tokenizer, max_length: int, defaults: EncodeDefaults) -> None:
        self.name, self.tokenizer, self.defaults = name, tokenizer, defaults
        self._max_length, self._loaded = max_length, (max_length, defaults)
        self._mark = ""  # pooling and head that the caller chose, as part of the fingerprint

    def __copy__(self) -> Self:
        """Another object with the same program or module."""
        other = type(self).__new__(type(self))
        vars(other).update(vars(self))
        return other

    if not TYPE_CHECKING:  # mypy finds misspelled attributes only in a class without this method

        def __setattr__(self, name: str, value: object) -> None:
            settings = {key for kind in type(self).__mro__ for key in vars(kind).get("__annotations__", ())}
            if not (name.startswith("_") or name in settings or hasattr(type(self), name)):
                use = f"; it is an argument: encode({name}=...)" if name in EncodeOptions.__annotations__ else None
                hint = did_you_mean(name, SETTINGS) if use is None else use
                raise AttributeError(f"{type(self).__name__} has no setting {name!r}{hint}")
            super().__setattr__(name, value)

    @property
    def max_length(self) -> int:
        """Longest input in tokens, special ids included: at most what the model was loaded with."""
        return self._max_length

    @max_length.setter
    def max_length(self, value: int) -> None:
        longest = self._loaded[0]
        least = len(self.tokenizer.encode([""], longest)[0]) + 1
        if not isinstance(value, int) or not least <= value <= longest:
            raise InputError(f"`max_seq_length` {value!r}: {self.name} takes {least} to {longest} tokens")
        self._max_length = value

    max_seq_length = max_length

    @property
    def prompts(self) -> Mapping[str, str]:
        """Prompts by name; to change one, assign a new mapping."""
        return MappingProxyType(dict(self.defaults.prompts))

    @prompts.setter
    def prompts(self, value: Mapping[str, str]) -> None:
        self.defaults = replace(self.defaults, prompts=dict(value) if isinstance(value, Mapping) else value)

    @property
    def default_prompt_name(self) -> str | None:
        """Name of the prompt that `encode` uses where the caller sets none."""
        return self.defaults.default_prompt

    @default_prompt_name.setter
    def default_prompt_name(self, value: str | None) -> None:
        self.defaults = replace(self.defaults, default_prompt=value)

    @property
    def truncate_dim(self) -> int | None:
        """Dimensions that `encode` keeps where the caller sets none; None: all."""
        return self.defaults.truncate_dim

    @truncate_dim.setter
    def truncate_dim(self, value: int | None) -> None:
        changed = replace(self.defaults, truncate_dim=value)
        changed.width(self.full_width, value)
        self.defaults = changed

    @property
    def similarity_fn_name(self) -> Similarity:
        """How `similarity` compares: cosine, dot, euclidean or manhattan."""
        return self.defaults.similarity

    @similarity_fn_name.setter
    def similarity_fn_name(self, value: Similarity) -> None:
        self.defaults = replace(self.defaults, similarity=value)

    @property
    def full_width(self) -> int:
        """Width of a sentence vector before it is truncated."""
        raise NotImplementedError

    @property
    def width(self) -> int:
        """D, the width of a sentence vector by default: the full one, or the model's `truncate_dim`."""
        return self.defaults.width(self.full_width)

    def fingerprint(self) -> str:
        """Hash of everything that affects a vector: the key under which this model's outputs are cached."""
        return self._with_settings(self._fingerprint())

    def _with_settings(self, identity: str) -> str:
        """`identity` together with the settings that differ from those that the model was loaded with."""
        mark = self._mark
        (length, named, first), before = (
            self._effective(*pair) for pair in ((self.max_length, self.defaults), self._loaded)
        )
        if (length, named, first) != before:
            mark += f"\0{first[0]}\0{first[1]}" + ("" if (length, named) == before[:2] else f"\0{length}\0{named}")
        return hashlib.sha256(f"{identity}{mark}".encode()).hexdigest() if mark else identity

    def _effective(self, length: int, defaults: EncodeDefaults) -> tuple[int, list[tuple[str, str]], tuple[int, str]]:
        """What decides vectors: the longest input, the named prompts, and width and prompt of a plain `encode`."""
        named = sorted((name, prompt) for name, prompt in defaults.prompts.items() if name)
        return length, named, (defaults.width(self.full_width), defaults.prompt())

    @property
    def source(self) -> str:
        """The fingerprint of the float model; for a bundle that of the model it was exported from."""
        return self.fingerprint()

    def cosines(self) -> tuple[float, float] | None:
        """Mean and standard deviation of the cosines of unrelated sentences, by which a search weighs its vectors.

        Of the first language of the embedded corpus that the model reads; None if there is none.
        """
        return unrelated_cosines(self.tokenizer, self.max_length, self.encode)

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids with special ids, truncated to `max_length`; no prompt is added."""
        return self.tokenizer.encode(texts, self.max_length)

    def encode(
        self,
        texts: Sequence[str] | str | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int | None = None,
        show_progress_bar: bool | None = False,
        *,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        batch_tokens: int = BATCH_TOKENS,
        precision: str = "float32",
        inputs: Sequence[str] | str | None = None,
        sentences: Sequence[str] | str | None = None,
        output_value: Literal["sentence_embedding"] = "sentence_embedding",
        convert_to_numpy: Literal[True] = True,
        convert_to_tensor: Literal[False] = False,
        device: Literal["cpu"] | None = None,
        pool: None = None,
        chunk_size: None = None,
    ) -> NDArray[np.float32]:
        """Vectors of `texts`, float32 [N, D], L2-normalised if the model does so; of one string [D].

        The arguments are those of `SentenceTransformer.encode`; only `batch_tokens` is our own.

        Args:
            texts: N texts, or one; longer ones are truncated to `max_length` tokens.
            prompt_name: name of the model's prompt to put before every text; None: its default prompt.
            prompt: the prompt itself; "" switches the default prompt off.
            batch_size: maximum of texts per batch; None: as many as `batch_tokens` allows.
            show_progress_bar: show a progress bar on standard error.
            normalize_embeddings: scale every vector to unit length, after truncation.
            truncate_dim: keep only the first dimensions of every vector; None: the model's own setting.
            batch_tokens: tokens per batch. Texts of similar length are batched together; the order of the result is
                the order of `texts`. A bundle ignores it.
            precision: float32, or bfloat16 to run a float model under autocast.
            inputs: another name of `texts`.
            sentences: another name of `texts`.
            output_value: for this and the next ones only the defaults are supported.

        Raises:
            InputError: `texts` has a value that is not a text, or half of a surrogate pair; an unknown prompt; a value
                that is not supported; more dimensions than the model has; a precision that the model does not run in.
            MsdcError: a vector holds NaN or infinity.
        """
        passed = (output_value, convert_to_numpy, convert_to_tensor, device, pool, chunk_size)
        if passed != DEFAULTS:
            _require_supported(passed)
        if batch_size is not None and not (isinstance(batch_size, int) and batch_size > 0):
            raise InputError(f"`batch_size` {batch_size!r}: expected a positive integer")
        chosen = next((argument for argument in (inputs, sentences) if argument is not None), texts)
        listed = _listed(chosen)
        prompt_text = self.defaults.prompt(prompt, prompt_name)
        width = self.defaults.width(self.full_width, truncate_dim)
        batching = Batching(batch_size or MOST_TEXTS, batch_tokens, bool(show_progress_bar))
        vectors_ND = self._encode(listed, prompt_text, batching, precision or "float32")[:, :width]
        vectors_ND = unit_rows(vectors_ND) if normalize_embeddings else np.ascontiguousarray(vectors_ND)
        return vectors_ND[0] if isinstance(chosen, str) else vectors_ND

    def _encode(self, texts: list[str], prompt: str, batching: Batching, precision: str) -> NDArray[np.float32]:
        """Finite vectors [N, D] at full width of `texts` after `prompt`."""
        rows = self.tokenize(with_prompt(prompt, texts))
        # Tokens of the prompt that are not pooled.
        skip = 0 if self.defaults.include_prompt else prompt_tokens(self.tokenizer, prompt, self.max_length)
        packed = pack_by_length([len(row) for row in rows], batching.tokens, batching.texts)
        batches = track(packed, f"encode with {self.name}", enabled=batching.progress, requested=True)
        return require_finite(self._vectors(rows, skip, batches, precision), self.name)

    def count_truncated(
        self, texts: Sequence[str] | str, prompt_name: str | None = None, prompt: str | None = None
    ) -> int:
        """How many of `texts` have more tokens than `max_length`, so that `encode` reads only their beginnings.

        Tokens of the prompt and special ids count. The arguments are those of `encode`, and so are its errors.
        """
        return self._count_truncated(_listed(texts), self.defaults.prompt(prompt, prompt_name))

    def _count_truncated(self, texts: list[str], prompt: str) -> int:
        """How many of `texts` are longer than the longest input after `prompt`."""
        return count_truncated(self.tokenizer, with_prompt(prompt, texts), self.max_length)

    def encode_query(
        self, texts: Sequence[str] | str | None = None, **options: Unpack[EncodeOptions]
    ) -> NDArray[np.float32]:
        """`encode` with the model's prompt "query", if it has one and the caller sets no prompt."""
        return self.encode(texts, **self._prompted("query", options))

    def encode_document(
        self, texts: Sequence[str] | str | None = None, **options: Unpack[EncodeOptions]
    ) -> NDArray[np.float32]:
        """`encode` with the model's prompt "document", if it has one and the caller sets no prompt."""
        return self.encode(texts, **self._prompted("document", options))

    def _prompted(self, name: str, options: EncodeOptions) -> EncodeOptions:
        if options.get("prompt_name") is None and options.get("prompt") is None:
            options["prompt"] = self.defaults.prompts.get(name, "")
        return options

    def token_counter(self, prompt: str | None = None) -> tuple[Callable[[Sequence[str]], list[int]], int]:
        """A function that counts tokens of texts, without special ids, and how many the model reads after `prompt`.

        None is the model's own prompt.
        """
        prompt = self.defaults.prompt() if prompt is None else prompt
        special = len(self.tokenizer.encode([""], self.max_length)[0])

        def count(texts: Sequence[str]) -> list[int]:
            return [len(row) - special for row in self.tokenizer.encode(texts, 1 << 20)]

        return count, prompt_room(self.tokenizer, prompt, self.max_length)

    def encode_long(self, text: str, *, pool: bool = True, **options: Unpack[EncodeOptions]) -> NDArray[np.float32]:
        """Vector [D] of a text of any length: the mean of its passages' vectors, each weighted by its tokens.

        Passages as in `msdc search`; nothing is truncated. The mean has unit length if the passages' vectors have it.

        Args:
            text: one text.
            pool: False returns the passages' vectors in order, float32 [P, D].
            options: those of `encode`.

        Raises:
            InputError: as `encode`; a prompt that leaves no room for text.
        """
        require_texts([text])
        count, most = self.token_counter(self.defaults.prompt(options.get("prompt"), options.get("prompt_name")))
        if most < 1:
            raise InputError(f"{self.name}: the prompt has as many tokens as the model reads ({self.max_length})")
        (spans,) = passages([text], count, most)
        parts = [text[start:end] for start, end in spans] or [text]
        vectors_PD = self.encode(parts, **options)
        if not pool:
            return vectors_PD
        mean_D = np.average(vectors_PD, axis=0, weights=np.maximum(count(parts), 1)).astype(np.float32)
        unit = np.allclose(np.linalg.norm(vectors_PD, axis=1), 1.0, atol=1e-3)
        return unit_rows(mean_D[None])[0] if unit else mean_D

    def similarity(self, first: ArrayLike, second: ArrayLike) -> NDArray[np.float32]:
        """Similarity of all pairs of vectors, float32 [N, M]: cosines, or what `similarity_fn_name` names.

        A distance (euclidean, manhattan) is negative, as in sentence-transformers.

        Args:
            first: vectors [N, D], or one [D].
            second: vectors [M, D], or one [D].

        Raises:
            InputError: wrong shapes.
        """
        first_ND, second_MD = (np.atleast_2d(np.asarray(side, dtype=np.float32)) for side in (first, second))
        if first_ND.ndim != 2 or second_MD.ndim != 2 or first_ND.shape[1] != second_MD.shape[1]:
            raise InputError(f"similarity: {first_ND.shape} and {second_MD.shape} are not [N, D] and [M, D]")
        kind = self.defaults.similarity
        if kind in ("euclidean", "manhattan"):
            order = 2 if kind == "euclidean" else 1
            distance_NM = [np.linalg.norm(second_MD - one_D, ord=order, axis=1) for one_D in first_ND]
            return -np.asarray(distance_NM, dtype=np.float32).reshape(len(first_ND), len(second_MD))
        if kind == "cosine":
            first_ND, second_MD = unit_rows(first_ND), unit_rows(second_MD)
        return np.asarray(first_ND @ second_MD.T, dtype=np.float32)

    def similarity_pairwise(self, first: ArrayLike, second: ArrayLike) -> NDArray[np.float32]:
        """Similarity of each vector of `first` [N, D] with that of the same row of `second` [N, D], float32 [N].

        Raises:
            InputError: wrong shapes.
        """
        first_ND, second_ND = (np.atleast_2d(np.asarray(side, dtype=np.float32)) for side in (first, second))
        if first_ND.ndim != 2 or first_ND.shape != second_ND.shape:
            raise InputError(f"similarity_pairwise: {first_ND.shape} and {second_ND.shape} are not both [N, D]")
        kind = self.defaults.similarity
        if kind in ("euclidean", "manhattan"):
            apart_N = np.linalg.norm(first_ND - second_ND, ord=2 if kind == "euclidean" else 1, axis=1)
            return -np.asarray(apart_N, dtype=np.float32)
        if kind == "cosine":
            first_ND, second_ND = unit_rows(first_ND), unit_rows(second_ND)
        return np.asarray((first_ND * second_ND).sum(axis=1), dtype=np.float32)

    def get_sentence_embedding_dimension(self) -> int:
        """`width`, under the name that it has in sentence-transformers."""
        return self.width

    def _fingerprint(self) -> str:
        raise NotImplementedError

    def _vectors(
        self, rows: list[list[int]], skip: int, batches: Iterable[NDArray[Any]], precision: str
    ) -> NDArray[np.float32]:
        """Vectors [N, D] at full width of rows of ids whose `skip` first tokens are not pooled."""
        raise NotImplementedError


class Encoder(SentenceEncoder):
    """A model with its weights.

    `folder` is where it was loaded from, None for one in memory only; `identity` the hash of the bytes that were loaded
    (`msdc.encoders.source`), which may differ from the folder's bytes now. `precision` is "float", or "int8" where the
    program of an export computes the vectors.
    """

    folder: Path | None
    identity: str | None

    def __init__(
        self,
        module: Any,
        tokenizer: Tokenizer,
        max_length: int,
        name: str,
        folder: Path | None = None,
        defaults: EncodeDefaults | None = None,
    ) -> None:
        super().__init__(name, tokenizer, max_length, defaults or EncodeDefaults())
        self._module, self.folder, self.identity = module, folder, None
        self._precision: Precision = "float"

    def __repr__(self) -> str:
        shown = f"width={self.width}, max_length={self.max_length}, precision={self.precision!r}"
        return f"Encoder({self.name!r}, {shown})"

    @property
    def precision(self) -> Precision:
        """That of the vectors; another one is chosen when the model is loaded."""
        return self._precision

    @property
    def module(self) -> Any:
        """The torch module: `module(ids_BT, mask_BT, skip=0)` returns sentence vectors [B, D], in float, of token ids
        with mask 1 on real tokens, without pooling the first `skip` ones; `module.width` is D.

        One that is assigned computes the vectors from then on.
        """
        return self._open_module() if self._module is None else self._module

    @module.setter
    def module(self, value: Any) -> None:
        self._module, self._precision = value, "float"

    def _open_module(self) -> Any:
        """The module of an encoder that was created without one."""
        return None

    @property
    def full_width(self) -> int:
        """Width of the module's vectors."""
        return int(self.module.width)

    def _fingerprint(self) -> str:
        if self.identity is None:
            raise InputError("an encoder that was not loaded from a folder has no fingerprint; save it first")
        return self.identity

    @property
    def source(self) -> str:
        """The fingerprint of the float model, also of an int8 one."""
        return self.fingerprint() if self.identity is None else self._with_settings(self.identity)

    def cosines(self) -> tuple[float, float] | None:
        """Those of the float model; measured but for a shipped model as it was loaded."""
        is_loaded = (self._max_length, self.defaults, self._mark) == (*self._loaded, "")
        return (shipped_cosines().get(self.identity or "") if is_loaded else None) or super().cosines()

    def _vectors(
        self, rows: list[list[int]], skip: int, batches: Iterable[NDArray[Any]], precision: str
    ) -> NDArray[np.float32]:
        if precision not in ("float32", "bfloat16"):
            raise InputError(f"{self.name}: precision {precision!r}; a float model runs in float32 or bfloat16")
        if precision == "bfloat16" and self.precision == "int8":
            raise InputError(f'{self.name}: int8; load_encoder(..., precision="float") runs in bfloat16 too')
        if len(rows) == 1 and rows[0]:
            return self._run(rows, skip, precision)
        vectors_ND = np.zeros((len(rows), self.full_width), dtype=np.float32)
        for batch in batches:
            # Without special ids a blank text has no tokens: zeros, as in a bundle.
            batch = batch[[bool(rows[i]) for i in batch]]
            if len(batch):
                vectors_ND[batch] = self._run([rows[i] for i in batch], skip, precision)
        return vectors_ND

    def _run(self, rows: Sequence[Sequence[int]], skip: int, precision: str) -> NDArray[np.float32]:
        """Vectors [B, D] of one batch."""
        import torch

        was_training = self.module.training
        self.module.eval()
        with torch.inference_mode():
            device = next(self.module.parameters()).device
            ids_BT, mask_BT = pad(rows, self.tokenizer.pad_id)
            with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
                ids_BT, mask_BT = ids_BT.to(device), mask_BT.to(device)
                sentence_BD = self.module(ids_BT, mask_BT, skip) if skip else self.module(ids_BT, mask_BT)
            vectors_BD: NDArray[np.float32] = sentence_BD.float().cpu().numpy()
        self.module.train(was_training)
        return vectors_BD

    def reads_padding(self) -> bool:
        """Whether a text's vector depends on the padding of its batch, measured on two texts."""
        short, long = self.tokenize(["a cat", "a cat sat on the mat, and then it went home again"])
        alone_1D, both_2D = self._run([short], 0, "float32"), self._run([short, long], 0, "float32")
        return bool(np.abs(alone_1D - both_2D[:1]).max() > 1e-3 * np.linalg.norm(alone_1D))


Model = TypeVar("Model", bound=SentenceEncoder)


def configured(
    model: Model, prompt_name: str | None = None, prompt: str | None = None, truncate_dim: int | None = None
) -> Model:
    """`model` with other defaults of `encode`; None keeps the model's own."""
    if prompt_name is None and prompt is None and truncate_dim is None:
        return model
    defaults = model.defaults
    defaults.prompt(prompt, prompt_name)  # refuses a prompt that the model does not have
    if prompt is not None:
        defaults = replace(defaults, prompts={**defaults.prompts, "": prompt}, default_prompt="" if prompt else None)
    elif prompt_name is not None:
        defaults = replace(defaults, default_prompt=prompt_name)
    changed = copy.copy(model)
    changed.defaults = replace(defaults, truncate_dim=defaults.width(model.full_width, truncate_dim))
    return changed


@functools.cache  # once per process
def survive_fork() -> None:
    """In a forked child PyTorch runs in one thread: its pool has no threads there, and would be waited for forever."""

    def one_thread() -> None:
        import torch

        torch.set_num_threads(1)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=one_thread)


def own_vectors(
    encoder: Encoder, texts: Sequence[str], max_length: int, prompt: str = ""
) -> NDArray[np.float32] | None:
    """Vectors [N, D] of `texts` by `SentenceTransformer.encode` of the encoder's modules, at full width.

    `prompt` is put before each of them, and no other one. One text at a time: some architectures read the padding of a
    batch. None for a model that sentence-transformers does not load.
    """
    from msdc.encoders import stock

    if not isinstance(encoder.module, stock.SentenceModel | stock.StaticModel):
        return None
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(modules=stock.folder_modules(encoder.module, encoder.name), device="cpu")
    if isinstance(encoder.module, stock.SentenceModel):
        model.max_seq_length = max_length
    else:
        first: Any = model[0]
        first.tokenizer.enable_truncation(max_length)
    vectors_ND: NDArray[np.float32] = model.encode(list(texts), prompt=prompt, batch_size=1, show_progress_bar=False)
    return vectors_ND.astype(np.float32)
