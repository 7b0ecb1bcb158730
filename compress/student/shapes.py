"""Names and shapes of every tensor of a student, from its config alone.

Planning must not build a 250,002-row table to count it, and quantization, planning and export must agree on names.
"""

from __future__ import annotations

from math import prod

from msdc.compress.student.config import StudentConfig

# One row per piece, or the base rows of a coded table.
TABLE = "embedding.table.weight"
CODE = "embedding.code.weight"
INDEX = "embedding.code.index"
PROJECT = "embedding.project.weight"
POSITION = "embedding.position.weight"
DENSE = "dense.weight"
LINEARS = ("query", "key", "value", "output", "up", "down")

# Indices of a code are stored in two bytes where these suffice.
SHORT_ROWS = 2**15

Shape = tuple[int, ...]


def index_bytes(base_rows: int) -> int:
    """Bytes of one stored index into a base of `base_rows` rows: int16 or int32."""
    return 2 if base_rows <= SHORT_ROWS else 4


def _linear(name: str, out_features: int, in_features: int, bias: bool = True) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {f"{name}.weight": (out_features, in_features)}
    if bias:
        shapes[f"{name}.bias"] = (out_features,)
    return shapes


def _norm(name: str, width: int) -> dict[str, Shape]:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def layer_shapes(hidden: int, intermediate: int) -> dict[str, Shape]:
    """Tensors of one transformer layer."""
    H, I = hidden, intermediate
    shapes: dict[str, Shape] = {}
    for name in ("query", "key", "value", "output"):
        shapes |= _linear(name, H, H)
    return shapes | _norm("attention_norm", H) | _linear("up", I, H) | _linear("down", H, I) | _norm("output_norm", H)


def tensor_shapes(config: StudentConfig) -> dict[str, Shape]:
    """Every tensor of `Student(config).state_dict()`, by name."""
    H, E = config.hidden, config.table_width
    norm_width = E if config.place == "embedding" else H
    shapes: dict[str, Shape] = {TABLE: (config.table_rows, E)}
    if config.links is not None:
        shapes |= {CODE: (config.vocabulary, config.links), INDEX: (config.vocabulary, config.links)}
    if config.bottleneck is not None:
        shapes |= _linear("embedding.project", H, E, bias=config.place == "embedding")
    shapes[POSITION] = (config.positions, norm_width)
    shapes |= _norm("embedding.norm", norm_width)
    for index in range(config.unit):
        one = layer_shapes(H, config.intermediate)
        shapes |= {f"layers.{index}.{name}": shape for name, shape in one.items()}
    if config.dense is not None:
        shapes |= _linear("dense", config.dense, H, config.dense_bias)
    return shapes


def matrix_names(config: StudentConfig) -> list[str]:
    """Weights that a precision plan speaks of: the token table, its code and every linear map, in graph order."""
    apart = (POSITION, INDEX)
    return [name for name, shape in tensor_shapes(config).items() if len(shape) == 2 and name not in apart]


def parameter_counts(config: StudentConfig) -> dict[str, int]:
    """Stored numbers: `embedding` (token table, bottleneck map, positions), `encoder` (the stored layers), `total`.

    The weights of a coded table are counted, its indices are not: they are no parameters. "Embedding size" and
    "encoder size" are counted as Ding et al. 2022 count them; layer norm of the embedding and a dense head belong to
    neither and appear in `total` only.
    """
    embedding = encoder = total = 0
    for name, shape in tensor_shapes(config).items():
        if name == INDEX:
            continue
        total += prod(shape)
        if name in (TABLE, CODE, POSITION) or name.startswith("embedding.project"):
            embedding += prod(shape)
        elif name.startswith("layers."):
            encoder += prod(shape)
    return {"embedding": embedding, "encoder": encoder, "total": total}


def _roberta(vocabulary: int, hidden: int, heads: int, layers: int) -> StudentConfig:
    return StudentConfig(
        vocabulary=vocabulary,
        hidden=hidden,
        heads=heads,
        intermediate=4 * hidden,
        unit=layers,
        positions=514,
        pad_id=1,
        layer_norm_eps=1e-5,
    )


def _bert(vocabulary: int, hidden: int, heads: int, layers: int) -> StudentConfig:
    return StudentConfig(
        vocabulary=vocabulary, hidden=hidden, heads=heads, intermediate=4 * hidden, unit=layers, positions=512
    )


# Published encoders by name, so that a size can be planned before anything is fetched. Positions are those of the
# published tables (XLM-R: 514, two of which no token uses), because the papers' sizes count them.
SHAPES = {
    "xlmr-base": _roberta(250_002, 768, 12, 12),
    "xlmr-large": _roberta(250_002, 1024, 16, 24),
    "minilm": _bert(250_037, 384, 12, 12),
    "mbert": _bert(119_547, 768, 12, 12),
    "distilmbert": _bert(119_547, 768, 12, 6),
    "labse": _bert(501_153, 768, 12, 12),
    "bert-base": _bert(30_522, 768, 12, 12),
    "all-minilm-l6": _bert(30_522, 384, 12, 6),
}
