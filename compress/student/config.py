"""What fixes a student's function apart from its weights."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator


class StudentConfig(BaseModel):
    """Everything that fixes the student's function apart from its weights.

    `place` says where the bottleneck is: "word" is the paper's form (table V x E, linear map E x H without
    bias, then positions and layer norm at H); "embedding" is ALBERT's (positions and layer norm at E, then a map
    with bias). `bottleneck: None` is a plain V x H table. `links` replaces the stored rows, at either place, by sums of
    `links` weighted rows of a base table of `base_rows` rows. The stored `unit` layers are applied `repeats` times,
    cyclically: A B C A B C.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    vocabulary: int = Field(gt=0)
    hidden: int = Field(gt=0)
    heads: int = Field(gt=0)
    intermediate: int = Field(gt=0)
    unit: int = Field(gt=0)
    repeats: int = Field(default=1, gt=0)
    bottleneck: int | None = Field(default=None, gt=0)
    place: Literal["word", "embedding"] = "word"
    base_rows: int | None = Field(default=None, gt=0, lt=2**24, description="rows of a coded table's base")
    links: int | None = Field(default=None, ge=2, le=5, description="base rows that a coded row is a sum of")
    positions: int = Field(gt=0, description="rows of the position table, which is the longest input in tokens")
    activation: Literal["gelu", "gelu_new", "relu"] = "gelu"
    layer_norm_eps: float = Field(default=1e-12, gt=0)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    pooling: Literal["mean", "cls", "max"] = "mean"
    dense: int | None = Field(default=None, gt=0, description="width of a linear map after pooling")
    dense_activation: Literal["identity", "tanh", "relu", "gelu"] = "identity"
    dense_bias: bool = True
    normalize: bool = True
    pad_id: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _heads_divide(self) -> StudentConfig:
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not a multiple of heads {self.heads}")
        return self

    @model_validator(mode="after")
    def _code_is_whole(self) -> StudentConfig:
        if (self.base_rows is None) != (self.links is None):
            raise ValueError("base_rows and links describe a coded table together: set both or neither")
        return self

    @model_serializer(mode="wrap")
    def _without_code(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Folders and bundles of other tables are written as before there were codes, and open in older versions.
        values: dict[str, Any] = handler(self)
        return {key: value for key, value in values.items() if self.coded or key not in ("base_rows", "links")}

    @property
    def coded(self) -> bool:
        """Whether the rows of the token table are sums of base rows."""
        return self.links is not None

    @property
    def table_rows(self) -> int:
        """Stored rows of `embedding.table`: the base's of a coded table, else one per piece."""
        return self.base_rows or self.vocabulary

    @property
    def table_width(self) -> int:
        """E, the width of a token's stored row."""
        return self.bottleneck or self.hidden

    @property
    def width(self) -> int:
        """D, the width of a sentence vector."""
        return self.dense or self.hidden
