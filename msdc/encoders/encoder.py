"""Text in, vectors out: the interface that every command and package uses for a model.

`SentenceEncoder` is what float models and exported bundles have in common; `Encoder` is a float model.

Shapes: N texts, B batch, T tokens, D sentence width.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

import msdc
from msdc.encoders.folder import (
    OWN_TYPE,
    STOCK_FOLDER,
    EncodeDefaults,
    Layout,
    is_reserved,
    locate_model,
    read_defaults,
    read_layout,
    with_prompt,
)
from msdc.errors import InputError
from msdc.extras import installed, names_extras, require
from msdc.files import sha256_files
from msdc.progress import track
from msdc.text.tokenizer import Tokenizer, load_tokenizer, pack_by_length, pad, prompt_tokens, require_texts

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

BATCH_TOKENS = 4096


class SentenceEncoder(Protocol):
    """What float models (`Encoder`) and exported bundles (`msdc.export.bundle.Bundle`) offer."""

    @property
    def name(self) -> str:
        """Name for messages and results."""

    @property
    def width(self) -> int:
        """D, the width of a sentence vector."""

    @property
    def max_length(self) -> int:
        """Longest input in tokens, special ids included; longer texts are truncated."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Text to ids."""

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids with special ids, truncated to `max_length`."""

    @property
    def defaults(self) -> EncodeDefaults:
        """Prompts of the model and the width of its vectors."""

    def encode(
        self,
        texts: Sequence[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate_dim: int | None = None,
    ) -> NDArray[np.float32]:
        """Vectors of `texts`, float32 [N, D].

        Raises:
            InputError: `texts` is one string, or holds something that is not text; an unknown prompt; a width that the
                model does not have.
        """

    def fingerprint(self) -> str:
        """Hash of everything that decides a vector; equal fingerprints mean interchangeable vectors."""


class SentenceModule(Protocol):
    """The torch module of a float model: a stock `SentenceModel` or a `Student`."""

    training: bool

    @property
    def width(self) -> int:
        """D, the width of a sentence vector."""

    def __call__(self, ids_BT: Tensor, mask_BT: Tensor, skip: int = 0) -> Tensor:
        """Sentence vectors [B, D] of token ids [B, T] whose mask is 1 on real tokens; `skip` first are not pooled."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """As `torch.nn.Module.parameters`."""

    def train(self, mode: bool = True) -> nn.Module:
        """As `torch.nn.Module.train`."""

    def eval(self) -> nn.Module:
        """As `torch.nn.Module.eval`."""

    def requires_grad_(self, requires_grad: bool = True) -> nn.Module:
        """As `torch.nn.Module.requires_grad_`."""

    def to(self, device: torch.device) -> nn.Module:
        """As `torch.nn.Module.to`."""


class Encoder:
    """A float model with its tokenizer. `folder` is where it was loaded from, None for one that lives in memory."""

    def __init__(
        self,
        module: SentenceModule,
        tokenizer: Tokenizer,
        max_length: int,
        name: str,
        folder: Path | None = None,
        defaults: EncodeDefaults | None = None,
    ) -> None:
        self.module = module
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.name = name
        self.folder = folder
        self.defaults = defaults or EncodeDefaults()
        self._fingerprint: str | None = None

    def __repr__(self) -> str:
        return f"Encoder({self.name!r}, width={self.width}, max_length={self.max_length})"

    @property
    def width(self) -> int:
        """D, the width of a sentence vector by default: the module's, or the model's `truncate_dim`."""
        return self.defaults.width(int(self.module.width))

    def fingerprint(self) -> str:
        """sha256 over weights, settings and tokenizer: the key under which this encoder's outputs are cached.

        Raises:
            InputError: the encoder was not loaded from a folder.
        """
        if self._fingerprint is None:
            if self.folder is None:
                raise InputError("an encoder that lives only in memory has no fingerprint; save it first")
            # By whole path: files of the same name (config.json of two modules) keep their order in a copied folder.
            files = sorted(p for p in self.folder.rglob("*") if p.suffix in (".safetensors", ".json", ".model", ".txt"))
            if read_layout(self.folder).model_type == OWN_TYPE:
                # The twin for other libraries, and the list that names it, decide none of our vectors.
                twin = (STOCK_FOLDER, "modules.json")
                files = [path for path in files if path.relative_to(self.folder).parts[0] not in twin]
            self._fingerprint = sha256_files(files)
        return self._fingerprint

    def set_fingerprint(self, fingerprint: str) -> None:
        """Replace the fingerprint: whoever changes how the folder's weights are used says so."""
        self._fingerprint = fingerprint

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids with special ids, truncated to `max_length`; no prompt is added."""
        return self.tokenizer.encode(texts, self.max_length)

    def prompt_tokens(self, prompt: str) -> int:
        """Tokens of `prompt` that pooling leaves out: 0 where the model pools them (`include_prompt`)."""
        return 0 if self.defaults.include_prompt else prompt_tokens(self.tokenizer, prompt, self.max_length)

    def encode(
        self,
        texts: Sequence[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate_dim: int | None = None,
        batch_tokens: int = BATCH_TOKENS,
        progress: bool = False,
        precision: str = "float32",
    ) -> NDArray[np.float32]:
        """Vectors of `texts`, float32 [N, D], L2-normalised when the model says so.

        Args:
            texts: N texts; longer ones are truncated to `max_length` tokens.
            prompt_name: name of the model's prompt to put before every text; None: its default one.
            prompt: the prompt itself; "" switches the default prompt off.
            truncate_dim: keep the first numbers of every vector only; None: the model's own setting.
            batch_tokens: tokens per batch. Texts of similar length are batched together; the order of the result is
                the order of `texts`.
            progress: show a progress bar on standard error.
            precision: float32, or bfloat16 to run under autocast.

        Raises:
            InputError: `texts` is one string, or holds something that is not text; an unknown prompt; a width that the
                model does not have.
        """
        require_texts(texts)
        first = self.defaults.prompt(prompt, prompt_name)
        width = self.defaults.width(int(self.module.width), truncate_dim)
        vectors_ND = np.zeros((len(texts), width), dtype=np.float32)
        if not len(texts):
            return vectors_ND
        rows, skip = self.tokenize(with_prompt(first, texts)), self.prompt_tokens(first)
        batches = pack_by_length([len(row) for row in rows], batch_tokens)
        with self._evaluating():
            for batch in track(batches, f"encode with {self.name}", enabled=progress):
                vectors_ND[batch] = self._run([rows[i] for i in batch], skip, precision)[:, :width]
        return vectors_ND

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        was_training = self.module.training
        self.module.eval()
        yield
        self.module.train(was_training)

    def _run(self, rows: Sequence[Sequence[int]], skip: int, precision: str) -> NDArray[np.float32]:
        """Vectors [B, D] at full width of rows of ids whose `skip` first tokens are not pooled."""
        import torch

        with torch.inference_mode():
            device = next(self.module.parameters()).device
            ids_BT, mask_BT = pad(rows, self.tokenizer.pad_id)
            with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
                ids_BT, mask_BT = ids_BT.to(device), mask_BT.to(device)
                sentence_BD = self.module(ids_BT, mask_BT, skip) if skip else self.module(ids_BT, mask_BT)
            vectors_BD: NDArray[np.float32] = sentence_BD.float().cpu().numpy()
        return vectors_BD


def _load_own(layout: Layout, name: str) -> Encoder:
    """A student of ours, as a torch module or, without PyTorch, as an ONNX program."""
    folder = layout.folder
    if not installed("torch"):
        return msdc.load_program_encoder(folder, name)
    student = msdc.load_student(folder)
    pad_id = int(layout.config.get("pad_token_id") or layout.config.get("pad_id") or 0)
    tokenizer, module = load_tokenizer(layout.body, pad_id), cast(SentenceModule, student)
    return Encoder(module, tokenizer, int(student.config.positions), name, folder, read_defaults(folder))


@names_extras
def load_encoder(
    path_or_name: str | Path,
    trust_remote_code: bool = False,
    *,
    pooling: Literal["mean", "cls", "max"] | None = None,
    head: Literal["mlp"] | None = None,
    head_seed: int | None = None,
) -> Encoder:
    """Load a student, a sentence-transformers model, the offline teacher, or a model of the Hugging Face hub.

    Args:
        path_or_name: a shipped name (`msdc-mini`), a folder, or a hub id.
        trust_remote_code: let `transformers` run code that comes with the model.
        pooling: of a bare folder (no `modules.json`); without it the mean.
        head: of a bare folder: "mlp" is the dense layer with tanh that SimCSE's models have over [CLS].
        head_seed: draw the head's weights with this seed where the folder holds none (a student before training).

    Raises:
        InputError: no such model, or one that is damaged or of an unknown kind; pooling or head for a folder that says
            its pooling itself; a head whose weights are missing.
    """
    folder = locate_model(path_or_name)
    if (folder / "bundle.json").is_file():
        raise InputError(f"{folder}: this is an exported bundle; load it with msdc.load_bundle")
    layout = read_layout(folder)
    name = Path(str(path_or_name)).name
    told = pooling is not None or head is not None
    if told and layout.listed:
        raise InputError(
            f"{folder}: its folder says how it pools; pooling and head are for folders without modules.json"
        )
    if layout.model_type == OWN_TYPE:
        return _load_own(layout, name)
    require("torch", f"{name}, a stock model,")
    from msdc.encoders import stock

    model = stock.open_sentence_transformer(layout, trust_remote_code)
    module = stock.wrap(model, str(folder))
    drawn = stock.pool_as_told(module, folder, pooling, head, head_seed) if told else None
    encoder = Encoder(
        cast(SentenceModule, module),
        stock.stock_tokenizer(layout.body, model[0]),
        stock.longest_input(model),
        name,
        folder,
        read_defaults(folder, stock.includes_prompt(model)),
    )
    if told:
        # Outputs are cached under the fingerprint: another reading of the same files is another encoder.
        text = f"{encoder.fingerprint()} pooling={pooling} head={head} drawn={drawn}"
        encoder.set_fingerprint(hashlib.sha256(text.encode()).hexdigest())
    return encoder


def own_vectors(
    encoder: Encoder, texts: Sequence[str], max_length: int, prompt: str = ""
) -> NDArray[np.float32] | None:
    """Vectors [N, D] of `texts` by `SentenceTransformer.encode` of the encoder's folder, at full width.

    `prompt` is put before each of them, and no other one. None for a folder that only this project loads.
    """
    from msdc.encoders import stock

    if encoder.folder is None or not isinstance(encoder.module, stock.SentenceModel | stock.StaticModel):
        return None
    model = stock.open_sentence_transformer(read_layout(encoder.folder))
    model.truncate_dim = None
    if isinstance(encoder.module, stock.SentenceModel):
        model.max_seq_length = max_length
    else:
        first: Any = model[0]
        first.tokenizer.enable_truncation(max_length)
    vectors_ND: NDArray[np.float32] = model.encode(list(texts), prompt=prompt, batch_size=8, show_progress_bar=False)
    return vectors_ND.astype(np.float32)


class Configured:
    """A model whose `encode` uses the given prompt and width; everything else is the model's own.

    Raises:
        InputError: the model has no such prompt, or no such width.
    """

    def __init__(self, model: Any, prompt_name: str | None, prompt: str | None, truncate_dim: int | None) -> None:
        defaults: EncodeDefaults = model.defaults
        self._model, self.name = model, str(model.name)
        self._prompt = defaults.prompt(prompt, prompt_name)
        manifest = getattr(model, "manifest", None)
        self.width = defaults.width(int((manifest or model.module).width), truncate_dim)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def encode(self, texts: Sequence[str]) -> Any:
        """Vectors of `texts`, float32 [N, D]."""
        return self._model.encode(texts, prompt=self._prompt, truncate_dim=self.width)

    def fingerprint(self) -> str:
        """Hash of the model and of the settings."""
        text = f"{self._model.fingerprint()}\0{self.width}\0{self._prompt}"
        return hashlib.sha256(text.encode()).hexdigest()


def configured(
    model: Any, prompt_name: str | None = None, prompt: str | None = None, truncate_dim: int | None = None
) -> Any:
    """`model` as it is where nothing is asked for, else `Configured`."""
    if prompt_name is None and prompt is None and truncate_dim is None:
        return model
    return Configured(model, prompt_name, prompt, truncate_dim)


def open_model(
    name: str,
    runtime: str | None = None,
    *,
    prompt_name: str | None = None,
    prompt: str | None = None,
    truncate_dim: int | None = None,
) -> SentenceEncoder:
    """A bundle when `name` is a folder with a bundle.json, else a float model.

    Args:
        name: a shipped name, a folder, or a hub id.
        runtime: runtime of a bundle; None takes the first that it holds.
        prompt_name: prompt that `encode` uses by default, by name.
        prompt: the same, as text.
        truncate_dim: width of the vectors of `encode`.

    Raises:
        InputError: an unknown prompt or width; as `load_encoder` and `msdc.load_bundle`.
    """
    model: Any
    if not is_reserved(name) and (Path(name) / "bundle.json").is_file():
        model = msdc.load_bundle(name, runtime=runtime)
    elif runtime is not None:
        raise InputError(
            f"{name}: a model without runtimes, --runtime is for bundles; make one: "
            f"msdc export {name} --target linux -o {Path(name).name}-linux"
        )
    else:
        model = load_encoder(name)
    return cast(SentenceEncoder, configured(model, prompt_name, prompt, truncate_dim))
