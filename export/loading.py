"""Loading the model that is exported, in float: a student runs by ONNX Runtime, so that it needs no PyTorch."""

from __future__ import annotations

from typing import Unpack

from msdc.compress.loading import load_student_encoder
from msdc.encoders.encoder import Encoder
from msdc.encoders.folder import OWN_TYPE
from msdc.encoders.loading import StockOptions, load_stock_encoder
from msdc.encoders.source import ModelSource
from msdc.extras import installed, named_extras

MOST_PROGRAM_BYTES = 2**30  # of weights; a program has at most twice as much


@named_extras("msdc.load_encoder")
def load_float_encoder(source: ModelSource, **options: Unpack[StockOptions]) -> Encoder:
    """A model in float: a stock one by PyTorch, a student by ONNX Runtime, or by PyTorch where its program would be
    too large.
    """
    if source.layout.model_type != OWN_TYPE:
        return load_stock_encoder(source, **options)
    small = sum(file.stat().st_size for file in source.folder.glob("*.safetensors")) < MOST_PROGRAM_BYTES
    if not small and installed("torch"):
        return load_student_encoder(source)
    from msdc.export.onnx.encoder import load_program_encoder  # imports ONNX Runtime

    return load_program_encoder(source, "float")
