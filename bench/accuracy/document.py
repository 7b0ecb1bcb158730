"""The document that `msdc evaluate` writes as JSON and `msdc.bench.report` renders.

Fields that a task adds and no table reads are kept as they are (`extra="allow"`), so documents of earlier versions
remain readable. All scores are x 100 unless their task states otherwise; a value that is not finite is null.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError

from msdc.errors import InputError, first_problem

FORMAT: Literal[1] = 1
KIND: Literal["accuracy"] = "accuracy"

Interval = tuple[float | None, float | None]


class AccuracyRecord(BaseModel):
    """Base of all parts: immutable, unknown keys kept."""

    model_config = ConfigDict(extra="allow", frozen=True)


class ModelRecord(AccuracyRecord):
    """What was scored: a float model, the same cut to its first numbers, or an artifact on one runtime."""

    label: str
    kind: str = "float"
    model: str = ""
    width: int | None = None
    weights_stored_as: str | None = None
    runtime: str | None = None
    precision: str | None = None
    bytes: int | None = None
    gates_kept: bool | None = None


class Contamination(AccuracyRecord):
    """Test sentences of one set found in the training text; `near` is None when only exact copies were counted."""

    exact: int
    near: int | None = None
    sentences: int


class PartScore(AccuracyRecord):
    """The score on a part of a set: a subset, a test language, texts of one length, pairs unseen in training text."""

    pairs: int | None = None
    texts: int | None = None
    spearman: float | None = None
    accuracy: float | None = None
    mean: float | None = None
    min: float | None = None
    interval: Interval | None = None


class Against(AccuracyRecord):
    """Paired test on the same items: the model's score minus that of `model`. Without resamples there is no test."""

    model: str
    difference: float | None = None
    interval: Interval | None = None
    p: float | None = None


class Score(AccuracyRecord):
    """One model on one data set. `main` is the key of the headline score."""

    task: str
    name: str
    model: str
    main: str
    interval: Interval | None = None
    pairs: int | None = None
    truncated: int | None = None  # distinct texts that the model reads only in part
    contamination: Contamination | None = None
    unseen: PartScore | None = None
    against: Against | None = None
    notes: tuple[str, ...] = ()

    @property
    def value(self) -> float | None:
        """The headline score; None when it is absent or not finite."""
        score = getattr(self, self.main, None)
        return float(score) if isinstance(score, (int, float)) else None


class StsScore(Score):
    """Spearman of cosine and gold score; `mean` is the mean over `subsets`."""

    subsets: dict[str, PartScore] | None = None
    mean: float | None = None


class ClassificationScore(Score):
    """Classifier trained on the embeddings of one language and tested on others."""

    languages: dict[str, PartScore]
    training_texts: int
    training_language: str
    majority_class: float | None


class Picture(AccuracyRecord):
    """Points of two languages in the plane of their first two principal components."""

    points: dict[str, tuple[tuple[float, float], ...]]
    explained: tuple[float, float]
    gap: float
    source: str


class BiasScore(Score):
    """Language bias: `joint` (one pool) minus `mean` (over the sets)."""

    joint: float | None
    mean: float | None
    bias: float | None
    p: float | None = None
    picture: Picture | None = None


class Separability(AccuracyRecord):
    """Accuracy of a linear classifier that predicts the language of a vector."""

    accuracy: float | None
    chance: float


class GeometryScore(Score):
    """Shape of the embedding space, none of it x 100."""

    alignment: float | None
    uniformity: float | None
    isotropy: float | None
    mean_cosine: float | None
    language_separability: Separability | None = None


class SearchPart(AccuracyRecord):
    """Search ranked in one way, all x 100."""

    acc1: float | None
    acc5: float | None
    mrr: float | None
    ndcg: float | None
    interval: Interval | None = None


class SearchScore(Score):
    """Search by vectors (the score itself), by words and by both."""

    acc1: float | None = None
    acc5: float | None = None
    ndcg: float | None = None
    words: SearchPart | None = None
    both: SearchPart | None = None


class Histogram(AccuracyRecord):
    """`counts[i]` values between `edges[i]` and `edges[i + 1]`."""

    edges: tuple[float, ...] = Field(min_length=2)
    counts: tuple[int, ...]


class DriftScore(Score):
    """Cosine of an artifact's vectors with those of its float model `reference`."""

    languages: dict[str, PartScore]
    lengths: dict[str, PartScore]
    histogram: Histogram
    reference: str


def _tag(value: Any) -> str:
    task = value.get("task") if isinstance(value, dict) else getattr(value, "task", "")
    return task if task in ("sts", "classification", "bias", "geometry", "drift", "retrieval") else "other"


AnyScore = Annotated[
    Annotated[StsScore, Tag("sts")]
    | Annotated[ClassificationScore, Tag("classification")]
    | Annotated[BiasScore, Tag("bias")]
    | Annotated[GeometryScore, Tag("geometry")]
    | Annotated[DriftScore, Tag("drift")]
    | Annotated[SearchScore, Tag("retrieval")]
    | Annotated[Score, Tag("other")],
    Discriminator(_tag),
]


class PublishedRow(AccuracyRecord):
    """One system of a published table, or one of our models (`published` false) in the same columns."""

    system: str
    published: bool
    values: dict[str, float | None]


class PublishedTable(AccuracyRecord):
    """A table of a paper with our models' rows after the published ones."""

    title: str
    source: str
    columns: tuple[str, ...]
    rows: tuple[PublishedRow, ...]
    note: str = ""


class Absent(AccuracyRecord):
    """A set that was asked for through a suite and not found."""

    name: str
    looked_for: str


class SearchedCorpus(AccuracyRecord):
    """A training corpus that was searched for test sentences."""

    file: str
    sentences: int
    exact: int
    near: int | None = None


class ContaminationCheck(AccuracyRecord):
    """Whether training text was searched for test sentences, in which corpora, or why not."""

    checked: bool
    reason: str = "not checked"
    corpora: tuple[SearchedCorpus, ...] = ()


class Evaluation(AccuracyRecord):
    """Everything that one `msdc evaluate` measured."""

    format: Literal[1] = FORMAT
    kind: Literal["accuracy"] = KIND
    created: str | None = None
    models: tuple[ModelRecord, ...] = ()
    results: tuple[AnyScore, ...]
    tables: tuple[PublishedTable, ...] = ()
    absent: tuple[Absent, ...] = ()
    contamination: ContaminationCheck | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values, without the fields that were not given."""
        return self.model_dump(mode="json", exclude_unset=True)


def read_document(raw: Any, where: str = "this accuracy document") -> Evaluation:
    """The document in `raw`, parsed JSON of `msdc evaluate`. `where` names it in an error."""
    try:
        return Evaluation.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"{where} is not what msdc evaluate writes: {first_problem(error)}") from error


def is_document(raw: Any) -> bool:
    """Whether parsed JSON claims to be written by `msdc evaluate`."""
    return isinstance(raw, dict) and raw.get("kind") == KIND
