"""Loading the model that is exported, in float: a student runs by ONNX Runtime, so that it needs no PyTorch."""

from __future__ import annotations

from typing import Unpack

from msdc.compress.loading import load_student_encoder
from msdc.encoders.encoder import Encoder
from msdc.encoders.folder import OWN_TYPE
from msdc.encoders.loading import StockOptions, load_stock_encoder
from msdc.encoders.source import ModelSource
from msdc.errors import InputError
from msdc.extras import installed, named_extras

MOST_PROGRAM_BYTES = 2**30  # of weights; a program has at most twice as much


@named_extras("msdc.load_encoder")
def load_float_encoder(source: ModelSource, threads: int | None = None, **options: Unpack[StockOptions]) -> Encoder:
    """A model in float: a stock one by PyTorch, a student by ONNX Runtime, or by PyTorch where its program would be
    too large.

    Raises:
        InputError: `threads` for a model that PyTorch runs.
    """
    is_own = source.layout.model_type == OWN_TYPE
    small = is_own and sum(file.stat().st_size for file in source.folder.glob("*.safetensors")) < MOST_PROGRAM_BYTES
    if not small and (not is_own or installed("torch")):
        if threads is not None:
            raise InputError(
                f"{source.name}: `threads` is for models that ONNX Runtime runs; use torch.set_num_threads"
            )
        return load_student_encoder(source) if is_own else load_stock_encoder(source, **options)
    from msdc.export.onnx.encoder import load_program_encoder  # imports ONNX Runtime

    return load_program_encoder(source, "float", threads)
