"""A stock transformer with pooling, dense and normalisation, as one torch module.

Shapes: B batch, T tokens, H hidden, D sentence width.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from msdc.encoders.layout import Layout
from msdc.errors import InputError
from msdc.files import regular_size

DENSE_ACTIVATIONS = {"identity": nn.Identity(), "tanh": nn.Tanh(), "relu": nn.ReLU(), "gelu": nn.GELU()}


class SentenceModel(nn.Module):
    """(ids_BT, mask_BT) -> sentence_BD for any encoder that `transformers` loads."""

    def __init__(self, body: nn.Module, layout: Layout, dense: nn.Linear | None = None) -> None:
        super().__init__()
        self.body = body
        self.pooling = layout.pooling
        self.dense = dense
        self.dense_activation = DENSE_ACTIVATIONS[layout.dense.activation if layout.dense else "identity"]
        self.normalize = layout.normalize
        config: Any = body.config
        self.width = int(dense.out_features if dense is not None else config.hidden_size)

    def embed(self, ids_BT: Tensor) -> Tensor:
        """Output of the embedding layer, [B, T, H or E]."""
        embeddings: Any = self.body.embeddings
        hidden_BTH: Tensor = embeddings(ids_BT)
        return hidden_BTH

    def hidden(self, ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Last hidden states, [B, T, H]."""
        hidden_BTH: Tensor = self.body(input_ids=ids_BT, attention_mask=mask_BT.long()).last_hidden_state
        return hidden_BTH

    def states(self, ids_BT: Tensor, mask_BT: Tensor) -> tuple[Tensor, ...]:
        """Hidden states after the embedding and after every layer, each [B, T, H]."""
        output = self.body(input_ids=ids_BT, attention_mask=mask_BT.long(), output_hidden_states=True)
        states: tuple[Tensor, ...] = output.hidden_states
        return states

    def head(self, hidden_BTH: Tensor, mask_BT: Tensor) -> Tensor:
        """Pooling, dense and normalisation: [B, T, H] -> [B, D]."""
        mask_BT1 = mask_BT.unsqueeze(-1).to(hidden_BTH.dtype)
        if self.pooling == "cls":
            sentence = hidden_BTH[:, 0]
        elif self.pooling == "max":
            sentence = hidden_BTH.masked_fill(mask_BT1 == 0, torch.finfo(hidden_BTH.dtype).min).max(1).values
        else:
            sentence = (hidden_BTH * mask_BT1).sum(1) / mask_BT1.sum(1).clamp(min=1e-9)
        if self.dense is not None:
            sentence = self.dense_activation(self.dense(sentence))
        return F.normalize(sentence, dim=-1) if self.normalize else sentence

    def forward(self, ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Sentence vectors [B, D] of token ids [B, T] whose mask is 1 on real tokens."""
        return self.head(self.hidden(ids_BT, mask_BT), mask_BT)


def load_sentence_model(layout: Layout, trust_remote_code: bool = False) -> SentenceModel:
    """Load the transformer of a folder from safetensors.

    Raises:
        InputError: no safetensors, damaged weights, or an architecture that needs remote code.
    """
    from safetensors import safe_open
    from transformers import AutoModel
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]
    if not list(layout.body.glob("*.safetensors")):
        raise InputError(f"{layout.body}: no .safetensors weights; other weight files are not read")
    for path in sorted(layout.body.glob("*.safetensors")):
        regular_size(path)
        try:
            with safe_open(path, framework="pt"):
                pass
        except Exception as error:
            raise InputError(f"{path}: damaged or not a safetensors file ({str(error).splitlines()[0]})") from error
    try:
        body = AutoModel.from_pretrained(
            layout.body, trust_remote_code=trust_remote_code, use_safetensors=True, local_files_only=True
        )
    except Exception as error:
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise InputError(f"{layout.body}: transformers cannot load it: {reason}") from error
    dense = None
    if layout.dense is not None:
        from safetensors.torch import load_file

        dense = nn.Linear(layout.dense.in_features, layout.dense.out_features, bias=layout.dense.bias)
        state = load_file(layout.dense.folder / "model.safetensors")
        dense.load_state_dict({key.removeprefix("linear."): value for key, value in state.items()})
    return SentenceModel(body, layout, dense).float().eval()
