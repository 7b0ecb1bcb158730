"""The config of a student, and the names and shapes of its weights.

Planning counts a 250,002-row table without building it; quantization, planning and export share the names.
"""

from __future__ import annotations

from math import prod
from typing import Any, Literal, Protocol

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from msdc import limits
from msdc.errors import InputError, first_problem

# One row per token, or the base rows of a coded table.
TABLE = "embedding.table.weight"
CODE = "embedding.code.weight"
INDEX = "embedding.code.index"
PROJECT = "embedding.project.weight"
POSITION = "embedding.position.weight"
DENSE = "dense.weight"
DENSE_BIAS = "dense.bias"
LINEARS = ("query", "key", "value", "output", "up", "down")

# Indices of a code are stored in two bytes where these suffice.
SHORT_ROWS = 2**15


class StudentConfig(BaseModel):
    """Everything that determines the student's function apart from its weights.

    `place` is the position of the bottleneck: "word" is the paper's form (table V x E, linear map E x H without bias,
    then positions and layer norm at H); "embedding" is ALBERT's (positions and layer norm at E, then a map with bias).
    `bottleneck: None` is a plain V x H table. With `nonzeros` every row is the sum of that many weighted rows of a base
    table of `base_rows` rows, at either place. The stored `unit` layers are applied `repeats` times, cyclically:
    A B C A B C. `unit: 0` is a static student: the mean of the tokens' rows, without positions and norms.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    vocabulary: limits.Tokens
    hidden: limits.Width
    heads: limits.Heads
    intermediate: limits.Inner
    unit: int = Field(ge=0, le=limits.LAYERS)
    repeats: limits.Layers = 1
    bottleneck: limits.Width | None = None
    place: Literal["word", "embedding"] = "word"
    base_rows: int | None = Field(default=None, gt=0, lt=2**24, description="rows of a coded table's base")
    nonzeros: int | None = Field(default=None, ge=2, le=5, description="base rows that a coded row is a sum of")
    positions: limits.Positions = Field(description="rows of the position table, which is the longest input in tokens")
    activation: Literal["gelu", "gelu_new", "relu"] = "gelu"
    layer_norm_eps: float = Field(default=1e-12, gt=0)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    pooling: Literal["mean", "cls", "max"] = "mean"
    dense: limits.Width | None = Field(default=None, description="width of a linear map after pooling")
    dense_activation: Literal["identity", "tanh", "relu", "gelu"] = "identity"
    dense_bias: bool = True
    normalize: bool = True
    pad_id: int = Field(default=0, ge=0)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise InputError(f"student: {first_problem(error)}") from error

    @model_validator(mode="after")
    def _is_whole(self) -> StudentConfig:
        if self.unit * self.repeats > limits.LAYERS:
            raise ValueError(f"{self.unit} layers x {self.repeats} repeats are more than the {limits.LAYERS} allowed")
        if self.static and (self.bottleneck is not None or self.repeats > 1):
            raise ValueError(
                "a student of 0 layers has no bottleneck and no repeats; `dense` is its map to wider vectors"
            )
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not a multiple of heads {self.heads}")
        if (self.base_rows is None) != (self.nonzeros is None):
            raise ValueError("base_rows and nonzeros describe a coded table together: set both or neither")
        return self

    @model_serializer(mode="wrap")
    def _without_code(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Most students have no coded table: their config.json does not have its keys.
        values: dict[str, Any] = handler(self)
        return {key: value for key, value in values.items() if self.coded or key not in ("base_rows", "nonzeros")}

    @property
    def coded(self) -> bool:
        """Whether the rows of the token table are sums of base rows."""
        return self.nonzeros is not None

    @property
    def static(self) -> bool:
        """Whether it has no layers."""
        return self.unit == 0

    @property
    def table_rows(self) -> int:
        """Stored rows of `embedding.table`: those of a coded table's base, else one per token."""
        return self.base_rows or self.vocabulary

    @property
    def table_width(self) -> int:
        """E, the width of a token's stored row."""
        return self.bottleneck or self.hidden

    @property
    def width(self) -> int:
        """D, the width of a sentence vector."""
        return self.dense or self.hidden


class HasConfig(Protocol):
    """A student, whose class needs torch."""

    config: StudentConfig


def index_bytes(base_rows: int) -> int:
    """Bytes of one stored index into a base of `base_rows` rows: int16 or int32."""
    return 2 if base_rows <= SHORT_ROWS else 4


def check_code(base_rows: int, nonzeros: int, vocabulary: int) -> None:
    """Check the sizes of a coded table."""
    if not 2 <= nonzeros <= 5:
        raise InputError(f"`nonzeros` {nonzeros}: a coded row is a sum of 2 to 5 base rows")
    if base_rows < nonzeros:
        raise InputError(f"`base_rows` {base_rows}: must be at least the {nonzeros} nonzeros of a row")
    if base_rows >= vocabulary:
        raise InputError(f"`base_rows` {base_rows}: must be less than the {vocabulary} rows of the table")


def tensor_shapes(config: StudentConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of `Student(config).state_dict()`, by name."""
    H, I, E = config.hidden, config.intermediate, config.table_width
    norm_width = E if config.place == "embedding" else H
    shapes: dict[str, tuple[int, ...]] = {TABLE: (config.table_rows, E)}

    def module(name: str, *weight: int, bias: bool = True) -> None:
        shapes[f"{name}.weight"] = weight
        if bias:
            shapes[f"{name}.bias"] = weight[:1]

    if config.nonzeros is not None:
        shapes |= {CODE: (config.vocabulary, config.nonzeros), INDEX: (config.vocabulary, config.nonzeros)}
    if config.bottleneck is not None:
        module("embedding.project", H, E, bias=config.place == "embedding")
    if not config.static:
        shapes[POSITION] = (config.positions, norm_width)
        module("embedding.norm", norm_width)
    for index in range(config.unit):
        for name in ("query", "key", "value", "output"):
            module(f"layers.{index}.{name}", H, H)
        module(f"layers.{index}.attention_norm", H)
        module(f"layers.{index}.up", I, H)
        module(f"layers.{index}.down", H, I)
        module(f"layers.{index}.output_norm", H)
    if config.dense is not None:
        module("dense", config.dense, H, bias=config.dense_bias)
    return shapes


def matrix_names(config: StudentConfig) -> list[str]:
    """Weights that a precision plan names: the token table, its code and every linear map, in graph order."""
    apart = (POSITION, INDEX)
    return [name for name, shape in tensor_shapes(config).items() if len(shape) == 2 and name not in apart]


def parameter_counts(config: StudentConfig) -> dict[str, int]:
    """Parameters: `embedding` (token table, bottleneck map, positions), `encoder` (the stored layers), `total`.

    The weights of a coded table are counted, its indices are not. "Embedding size" and
    "encoder size" are counted as Ding et al. 2022 count them; layer norm of the embedding and a dense head belong to
    neither and appear in `total` only.
    """
    sizes = {name: prod(shape) for name, shape in tensor_shapes(config).items() if name != INDEX}
    starts = {"embedding": (TABLE, CODE, POSITION, "embedding.project."), "encoder": ("layers.",), "total": ("",)}
    return {what: sum(size for name, size in sizes.items() if name.startswith(start)) for what, start in starts.items()}


def _published(vocabulary: int, hidden: int, heads: int, layers: int, **settings: Any) -> StudentConfig:
    sizes = {"vocabulary": vocabulary, "hidden": hidden, "heads": heads, "intermediate": 4 * hidden, "unit": layers}
    return StudentConfig(**{**sizes, "positions": 512, **settings})


_XLMR = {"positions": 514, "pad_id": 1, "layer_norm_eps": 1e-5}
# Published encoders by name, so that a size can be planned before anything is fetched. Positions are those of the
# published tables (XLM-R: 514, two of which no token uses), because the papers' sizes count them.
SHAPES = {
    "xlmr-base": _published(250_002, 768, 12, 12, **_XLMR),
    "xlmr-large": _published(250_002, 1024, 16, 24, **_XLMR),
    "minilm": _published(250_037, 384, 12, 12),
    "mbert": _published(119_547, 768, 12, 12),
    "distilmbert": _published(119_547, 768, 12, 6),
    "labse": _published(501_153, 768, 12, 12),
    "bert-base": _published(30_522, 768, 12, 12),
    "all-minilm-l6": _published(30_522, 384, 12, 6),
}
