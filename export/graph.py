"""The student once more, written for export: batch 1, attention by hand in a 2-D form.

Stock attention decomposes into a safe softmax on portable kernels and breaks the delegate into pieces; these modules
share the student's own layers (quantized or not) and spell the same function in operators that XNNPACK takes whole.

Shapes: T tokens, E table width, H hidden, N heads, D sentence width.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from compress.student import ACTIVATIONS, Layer, Student


class ExportEmbed(nn.Module):
    """ids [1, T] -> hidden [1, T, H]."""

    def __init__(self, student: Student, max_length: int) -> None:
        super().__init__()
        self.embedding = student.embedding
        self.at_word = student.config.place == "word"
        # Its own, shorter table: rows beyond the longest input would only add bytes.
        self.register_buffer("position", student.embedding.position.weight.detach()[:max_length].clone())
        self.width = student.config.table_width

    def forward(self, ids_1T: Tensor) -> Tensor:
        part = self.embedding
        hidden = part.table(ids_1T)
        if part.project is not None and self.at_word:
            hidden = part.project(hidden)
        hidden = part.norm(hidden + self.position[: ids_1T.shape[1]])
        if part.project is not None and not self.at_word:
            hidden = part.project(hidden)
        return hidden


class ExportLayer(nn.Module):
    """One layer over [T, H]; every view carries a literal -1 so that the length stays free."""

    def __init__(self, layer: Layer, heads: int, hidden: int) -> None:
        super().__init__()
        self.layer = layer
        self.heads, self.hidden, self.head_width = heads, hidden, hidden // heads
        self.scale = 1.0 / math.sqrt(self.head_width)

    def forward(self, hidden_TH: Tensor) -> Tensor:
        layer = self.layer

        def split(x_TH: Tensor) -> Tensor:
            return x_TH.view(-1, self.heads, self.head_width)

        query = split(layer.query(hidden_TH) * self.scale).permute(1, 0, 2)
        key = split(layer.key(hidden_TH)).permute(1, 2, 0)
        value = split(layer.value(hidden_TH)).permute(1, 0, 2)
        weights_NTT = torch.bmm(query, key).softmax(-1)
        context_TH = torch.bmm(weights_NTT, value).permute(1, 0, 2).contiguous().view(-1, self.hidden)
        hidden_TH = layer.attention_norm(hidden_TH + layer.output(context_TH))
        return layer.output_norm(hidden_TH + layer.down(layer.activation(layer.up(hidden_TH))))


class ExportUnit(nn.Module):
    """One pass through the recurring unit, [1, T, H] -> [1, T, H]."""

    def __init__(self, student: Student) -> None:
        super().__init__()
        config = student.config
        self.hidden = config.hidden
        self.layers = nn.ModuleList(ExportLayer(layer, config.heads, config.hidden) for layer in student.layers)

    def forward(self, hidden_1TH: Tensor) -> Tensor:
        hidden_TH = hidden_1TH.view(-1, self.hidden)
        for layer in self.layers:
            hidden_TH = layer(hidden_TH)
        return hidden_TH.view(1, -1, self.hidden)


class ExportPool(nn.Module):
    """Pooling, dense and normalisation of one unpadded sentence, [1, T, H] -> [1, D]."""

    def __init__(self, student: Student) -> None:
        super().__init__()
        self.how = student.config.pooling
        self.dense = student.dense
        self.dense_activation = ACTIVATIONS[student.config.dense_activation]
        self.normalize = student.config.normalize

    def forward(self, hidden_1TH: Tensor) -> Tensor:
        if self.how == "cls":
            sentence_1D = hidden_1TH[:, 0]
        elif self.how == "max":
            sentence_1D = hidden_1TH.amax(1)
        else:
            sentence_1D = hidden_1TH.mean(1)
        if self.dense is not None:
            sentence_1D = self.dense_activation(self.dense(sentence_1D))
        return F.normalize(sentence_1D, dim=-1) if self.normalize else sentence_1D


class ExportForward(nn.Module):
    """The whole road in one method, ids [1, T] -> [1, D]."""

    def __init__(self, student: Student, max_length: int) -> None:
        super().__init__()
        self.embed = ExportEmbed(student, max_length)
        self.unit = ExportUnit(student)
        self.pool = ExportPool(student)
        self.repeats = student.config.repeats

    def forward(self, ids_1T: Tensor) -> Tensor:
        hidden_1TH = self.embed(ids_1T)
        for _ in range(self.repeats):
            hidden_1TH = self.unit(hidden_1TH)
        return self.pool(hidden_1TH)
