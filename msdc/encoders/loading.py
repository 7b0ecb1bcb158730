"""Loading a stock model by PyTorch, in float: a folder of sentence-transformers' classes, or a bare transformer."""

from __future__ import annotations

from typing import Literal, TypedDict, Unpack

from msdc.encoders.encoder import Encoder, survive_fork
from msdc.encoders.folder import read_defaults
from msdc.encoders.source import ModelSource
from msdc.extras import require

PoolingName = Literal["mean", "cls", "max"]
HeadName = Literal["mlp"]


class StockOptions(TypedDict, total=False):
    """Settings of a stock model that its folder does not hold; see `msdc.load_encoder`."""

    trust_remote_code: bool
    pooling: PoolingName | None
    head: HeadName | None
    head_seed: int | None


def load_stock_encoder(source: ModelSource, **options: Unpack[StockOptions]) -> Encoder:
    """The stock model of a folder as an `Encoder` with its identity.

    Raises:
        InputError: a model that is damaged or not supported; a head without weights, without `head_seed`.
    """
    folder, layout = source.folder, source.layout
    pooling, head = options.get("pooling"), options.get("head")
    changed = pooling is not None or head is not None
    require("torch", f"{source.name}, a stock model,")
    survive_fork()
    from msdc.encoders import stock, tokens

    model = stock.open_sentence_transformer(source, options.get("trust_remote_code", False), pooling is not None)
    module = stock.torch_module(model, str(folder))
    drawn = stock.set_pooling(module, source, pooling, head, options.get("head_seed")) if changed else None
    tokenizer, longest = stock.stock_tokenizer(layout.body, model[0]), stock.longest_input(model)
    tokens.check_ids(tokenizer, module, folder)
    tokens.check_tokens(model[0], tokenizer, longest, folder)
    defaults = read_defaults(folder, stock.includes_prompt(model))
    encoder = Encoder(module, tokenizer, longest, source.name, folder, defaults)
    if changed:
        # Another pooling of the same files is another encoder.
        encoder._mark = f" pooling={pooling} head={head} drawn={drawn}"
    encoder.identity = source.identity()
    return encoder
