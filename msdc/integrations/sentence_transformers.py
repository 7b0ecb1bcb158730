"""Encoders and bundles as a `SentenceTransformer`, which most libraries take.

    from msdc.integrations.sentence_transformers import as_sentence_transformer

    model = as_sentence_transformer("msdc-mini")
    model.encode(["Where is the station?"], convert_to_tensor=True)

`SentenceTransformer(FOLDER, trust_remote_code=True)` opens a student's folder too: sentence-transformers asks for that
argument for every class outside its own package.

Shapes: B batch, T tokens, D sentence width.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import InputModule

from msdc.compress.student.io import save_student
from msdc.compress.student.model import Student
from msdc.encoders.encoder import Encoder, SentenceEncoder
from msdc.encoders.folder import is_bundle
from msdc.encoders.stock import folder_modules
from msdc.errors import InputError
from msdc.export.bundle import Bundle, load_bundle, run_rows
from msdc.files import read_json, write_json
from msdc.loading import load_encoder, open_model
from msdc.text.tokenizer import pad, prompt_tokens, require_texts

# What sentence-transformers writes next to the model, from its own settings.
_WRITTEN = ("modules.json", "config_sentence_transformers.json", "README.md")


class EncoderModule(InputModule):
    """A student or a bundle as the one module of a `SentenceTransformer`; a student's weights can be trained.

    Prompts, width and similarity belong to the `SentenceTransformer` (`as_sentence_transformer` sets them).
    """

    def __init__(self, encoder: SentenceEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.tokenizer: Any = encoder.tokenizer
        self.student = encoder.module if isinstance(encoder, Encoder) else None
        # A student is saved as a model folder, a bundle in a folder of its own: its manifest lists all files in it.
        self.save_in_root = self.student is not None

    @property
    def max_seq_length(self) -> int:
        """Longest input in tokens."""
        return self.encoder.max_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        self.encoder.max_length = value

    def get_embedding_dimension(self) -> int:
        """D, before truncation."""
        return self.encoder.full_width

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **options: Any) -> dict[str, Any]:
        """Token ids and mask [B, T] of texts, each after the prompt; `prompt_length` where its tokens are not pooled.

        Raises:
            InputError: a value that is not a text.
        """
        texts = list(inputs)
        require_texts(texts)
        first, encoder = prompt or "", self.encoder
        ids_BT, mask_BT = pad(encoder.tokenize([first + text for text in texts]), encoder.tokenizer.pad_id)
        features: dict[str, Any] = {"input_ids": ids_BT, "attention_mask": mask_BT}
        if first and not encoder.defaults.include_prompt:
            features["prompt_length"] = prompt_tokens(encoder.tokenizer, first, encoder.max_length)
        return features

    def forward(self, features: dict[str, Any], **options: Any) -> dict[str, Any]:
        """Adds `sentence_embedding` [B, D]; a student also its last hidden states, `token_embeddings` [B, T, H]."""
        ids_BT, mask_BT, skip = features["input_ids"], features["attention_mask"], features.get("prompt_length", 0)
        if self.student is not None:
            hidden_BTH = features["token_embeddings"] = self.student.hidden(ids_BT, mask_BT)
            features["sentence_embedding"] = self.student.head(hidden_BTH[:, skip:], mask_BT[:, skip:])
            return features
        assert isinstance(self.encoder, Bundle)
        rows = [ids_T[mask_T.bool()].tolist() for ids_T, mask_T in zip(ids_BT, mask_BT, strict=True)]
        vectors_BD = torch.from_numpy(run_rows(self.encoder.runner, rows, skip, self.encoder.full_width))
        features["sentence_embedding"] = vectors_BD.to(ids_BT.device)
        return features

    def save(self, output_path: str, *args: Any, safe_serialization: bool = True, **options: Any) -> None:
        """Write the student's folder, which `msdc export` takes, or copy the bundle."""
        with tempfile.TemporaryDirectory(prefix="msdc-save-") as temporary:
            if self.student is None:
                assert isinstance(self.encoder, Bundle)
                saved_folder = self.encoder.folder
            else:
                saved_folder = save_student(self.student, self.encoder.tokenizer, Path(temporary, "student"))
            skipped = shutil.ignore_patterns(*_WRITTEN) if self.student is not None else None
            shutil.copytree(saved_folder, output_path, dirs_exist_ok=True, ignore=skipped)
        if isinstance(self.encoder, Bundle):
            write_json(Path(output_path, self.config_file_name), {"runtime": self.encoder.runtime})

    @classmethod
    def load(
        cls,
        model_name_or_path: str,
        subfolder: str = "",
        token: bool | str | None = None,
        cache_folder: str | None = None,
        revision: str | None = None,
        local_files_only: bool = False,
        init_defaults: dict[str, Any] | None = None,
        **options: Any,
    ) -> EncoderModule:
        """The module of a saved folder, or of a student's own."""
        local_path = cls.load_dir_path(model_name_or_path, subfolder, token, cache_folder, revision, local_files_only)
        if local_path is None:
            raise InputError(f"{model_name_or_path}: no folder {subfolder!r}")
        folder = Path(local_path)
        if not (folder / "bundle.json").is_file():
            return cls(load_encoder(folder, precision="float"))
        return cls(load_bundle(folder, read_json(folder / cls.config_file_name)["runtime"]))


def as_sentence_transformer(
    model: str | Path | SentenceEncoder, *, device: str | None = None, **options: Any
) -> SentenceTransformer:
    """`model` as a `SentenceTransformer` with the same prompts, default width and similarity.

    The vectors are those of a bundle's program, or of the float model, also of an encoder that computes in int8.

    Args:
        model: an encoder or a bundle, or the name or folder of one.
        device: of a float model; a bundle's program runs on the CPU.
        options: further arguments of `SentenceTransformer`, such as `truncate_dim`.

    Raises:
        InputError: no such model; neither an encoder nor a bundle.
    """
    encoder = model
    if isinstance(model, str | Path):
        encoder = open_model(str(model), precision=None if is_bundle(str(model)) else "float")
    if not isinstance(encoder, Encoder | Bundle):
        raise InputError(f"as_sentence_transformer takes an encoder, a bundle or a folder, not {type(model).__name__}")
    if isinstance(encoder, Bundle) or isinstance(encoder.module, Student):
        modules: list[Any] = [EncoderModule(encoder)]
    else:
        modules = folder_modules(encoder.module, encoder.name)
    settings = {
        "prompts": dict(encoder.prompts),
        "default_prompt_name": encoder.default_prompt_name,
        "similarity_fn_name": encoder.similarity_fn_name,
        "truncate_dim": encoder.truncate_dim,
    }
    sentence_transformer = SentenceTransformer(
        modules=modules, device=device or ("cpu" if isinstance(encoder, Bundle) else None), **{**settings, **options}
    )
    sentence_transformer.max_seq_length = encoder.max_length
    return sentence_transformer.eval()
