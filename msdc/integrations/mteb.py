"""Encoders and bundles as models of mteb 2.x.

    import mteb
    from msdc.integrations.mteb import as_mteb

    mteb.evaluate(as_mteb("msdc-mini"), mteb.get_tasks(tasks=["STS17"]))

`msdc evaluate MODEL --tasks mteb:STS17` does the same. Shapes: N texts, D sentence width.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import langcodes
import numpy as np
from mteb.models import ModelMeta
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_meta import ScoringFunction
from mteb.types import PromptType

from msdc.encoders.encoder import Encoder, SentenceEncoder
from msdc.export.bundle import Bundle
from msdc.export.readme import CardFacts, read_card
from msdc.loading import open_model

# What the folder of the shipped student does not state. Training data by mteb's names: FLORES dev is training text (the
# task scores devtest), NTREX is one of its corpora; sentences of Tatoeba's test sets were excluded.
MSDC_MINI: dict[str, Any] = {
    "release_date": "2026-11-26",
    "adapted_from": "sentence-transformers/all-MiniLM-L6-v2",
    "training_datasets": {"FloresBitextMining", "NTREXBitextMining"},
    "n_parameters": 11_230_000,
    "n_embedding_parameters": 5_900_000,
    "public_training_data": True,
}


def _language_scripts(codes: Iterable[str]) -> list[str]:
    """Language codes as mteb writes them: "eng-Latn" for "en"."""
    languages = map(langcodes.Language.get, codes)
    return [f"{language.to_alpha3()}-{language.maximize().script}" for language in languages]


def model_meta(model: SentenceEncoder) -> ModelMeta:
    """`ModelMeta` of an encoder or a bundle, from its card or manifest; its revision is the model's fingerprint.

    A bundle has its runtime and precision in its name: each program is a model of its own.
    """
    name, facts, framework = model.name, CardFacts(), ["Sentence Transformers", "PyTorch"]
    size = None
    if isinstance(model, Bundle):
        manifest = model.manifest
        name = f"{name}-{model.runtime}-{manifest.precision}"
        facts = CardFacts(tuple(manifest.languages), tuple(manifest.licenses), tuple(manifest.data_sources))
        framework = ["ONNX"] if model.runtime == "onnx" else ["PyTorch"]
        size = manifest.program_bytes(model.runtime) / 2**20
    elif isinstance(model, Encoder):
        facts = read_card(model.folder)
    card_fields: dict[str, Any] = MSDC_MINI if model.name == "msdc-mini" else {}
    similarity = {"cosine": ScoringFunction.COSINE, "dot": ScoringFunction.DOT_PRODUCT}.get(model.similarity_fn_name)
    languages: list[str] = []
    with contextlib.suppress(ValueError, LookupError):  # a card's own words for its languages
        languages = _language_scripts(facts.languages)
    return ModelMeta.create_empty(
        {
            "loader": _load,
            "name": name if "/" in name else f"msdc/{name}",
            "revision": model.fingerprint()[:40],
            "languages": languages or None,
            "license": "apache-2.0" if card_fields else None,
            "open_weights": True,
            "max_tokens": model.max_length,
            "embed_dim": model.width,
            "memory_usage_mb": size,
            "framework": framework,
            "similarity_fn_name": similarity,
            "use_instructions": bool({"query", "document"} & set(model.prompts)),
            **card_fields,
        }
    )


def _load(name: str, revision: str | None = None, **options: Any) -> MtebEncoder:
    """What `mteb` calls for a `ModelMeta`: the shipped model of that name, or the folder or hub id `path`."""
    return as_mteb(options.get("path") or name.removeprefix("msdc/"))


class MtebEncoder(AbsEncoder):
    """A model with `.encode(texts) -> float32 [N, D]` as mteb calls it.

    Queries and documents get the model's prompts of that name, where it has them and no default prompt.
    """

    def __init__(self, model: Any, meta: ModelMeta | None = None) -> None:
        self.model = model
        self.mteb_model_meta = model_meta(model) if meta is None else meta

    def encode(self, inputs: Any, *, prompt_type: PromptType | None = None, **options: Any) -> np.ndarray:
        """Vectors [N, D] of the texts of all batches; options of mteb (task, split, prompts) change none of them."""
        texts = [text for batch in inputs for text in batch["text"]]
        role = prompt_type.value if prompt_type is not None else ""
        if isinstance(self.model, SentenceEncoder):
            chosen = role if role in self.model.prompts and self.model.default_prompt_name is None else None
            return self.model.encode(texts, chosen, batch_size=options.get("batch_size"))
        return np.asarray(self.model.encode(texts), dtype=np.float32)


def as_mteb(model: str | Path | SentenceEncoder) -> MtebEncoder:
    """`model` for `mteb.evaluate`: an encoder or a bundle, or the name or folder of one.

    Raises:
        InputError: no such model.
    """
    return MtebEncoder(open_model(str(model)) if isinstance(model, str | Path) else model)
