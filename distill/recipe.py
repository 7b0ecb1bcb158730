"""A recipe: models, text, and a list of training stages.

Frozen pydantic models that refuse unknown keys. Defaults are those of Ding et al. 2022 if the paper states one. The
schema imports no reader of corpora: readers import the schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PositiveFloat,
    Tag,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from msdc.errors import InputError, did_you_mean
from msdc.limits import BANK, Batch, BatchTokens, Count, Epochs, Heads, Inner, Layers, Positions, Steps, Tokens, Width

TEACHER = "teacher"  # as the assistant: a copy of the teacher that is trained further
# The content of the files of a corpus; `auto` chooses by suffix (msdc.distill.data.corpora).
CorpusKind = Literal["auto", "nli", "nli-pairs", "scored", "dictionary", "gettext", "text", "triples", "pairs"]
KINDS: tuple[str, ...] = get_args(CorpusKind)
Length = Annotated[Positions, Field(gt=3)]  # tokens, special ones included
Nonzeros = Annotated[int, Field(ge=2, le=5)]
Prompt = Annotated[str, Field(max_length=1000)]
Share = Annotated[float, Field(gt=0, le=1)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


# docs/reference/recipe.md is made of the fields below and the comments above or after each of them.
class Strict(BaseModel):
    """Frozen, and every key must be known. Unknown keys are reported before missing keys: a misspelled key is both."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    takes: ClassVar[str] = ""  # what a recipe may give instead of these keys, for the message

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            if key not in cls.model_fields:
                raise ValueError(f"unknown key {key!r}{did_you_mean(str(key), cls.model_fields)}{cls.takes}")
        return data


Parsed = TypeVar("Parsed", bound=BaseModel)


def parse(model: type[Parsed], tree: Any, origin: str) -> Parsed:
    """A mapping as one of these models; errors begin with `origin`."""
    try:
        return model.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        node, path = tree, ""
        for part in first["loc"]:
            if isinstance(part, str) and part.startswith("="):
                continue  # the member of a union, not a key
            node = node.get(part) if isinstance(node, dict) else node[part] if isinstance(part, int) else None
            name = node.get("name", part) if isinstance(part, int) and isinstance(node, dict) else part
            path += f"{name}."
        message = first["msg"].removeprefix("Value error, ")
        raise InputError(f"{origin}: {f'{path[:-1]}: ' if path else ''}{message}") from error


def corpus_label(entry: Mapping[str, Any]) -> str:
    """The name of a corpus in overrides: its `name`, else that of its OPUS or hub data set, its file or its folder.

    TED2020/v1 is TED2020, nli/snli.*.tsv.gz is snli, and tatoeba/*.tsv.gz is tatoeba.
    """
    if entry.get("name"):
        return str(entry["name"])
    if entry.get("opus"):
        label = str(entry["opus"]).split("/")[0]
    elif entry.get("hub"):
        label = str(entry["hub"]).split("@")[0].rsplit("/", 1)[-1]
    else:
        path = PurePath(str(entry.get("path") or (entry.get("files") or [""])[0]))
        label = path.name.split(".")[0]
        if not label or "*" in label:
            label = path.parent.name
    return re.sub(r"[^\w-]+", "-", label)


class Corpus(Strict):
    """A source of sentences: a path or glob, two aligned files, a hub id, or an OPUS name."""

    # in overrides; None: that of its data set or file
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][\w-]*$")
    path: str | None = None  # file or glob, relative to the recipe
    files: tuple[str, str] | None = None  # two aligned files: source, target
    hub: str | None = None  # hub data set id, e.g. sentence-transformers/parallel-sentences-tatoeba
    opus: str | None = None  # OPUS corpus name, e.g. TED2020/v1
    kind: CorpusKind = "auto"  # content of the files; auto: chosen by suffix
    source: str = "en"  # language of the source side
    languages: tuple[str, ...] = ()  # target languages; empty: all that are found
    limit: Count | None = None  # rows taken from each file
    # Columns of a table by name or number (from 1): the text, the pair (source, target), the triple, or for nli (label,
    # premise, hypothesis).
    columns: tuple[int | str, ...] = ()
    header: bool | None = None  # whether the first row of a table names its columns; None: if it must
    # triples: columns of the scores of the positive and of each negative, such as those of a cross-encoder
    scores: tuple[int | str, ...] = ()
    # lowest and highest similarity (scored; None: 0 and 5) or score, which become 0 and 1
    scale: tuple[float, float] | None = None
    subset: str | None = None  # hub: the configuration of the data set
    tokenized: bool = False  # tokenized text: spaces before punctuation are removed
    # text: languages to translate it into, word by word, with a dictionary aligned from the parallel corpora
    word_by_word: tuple[str, ...] = ()
    recombine: float = Field(default=0.0, ge=0, le=1)  # word_by_word: share of words to replace by others first
    max_characters: Count = 250  # longer sentences are skipped (MSD code: 250)
    # Up to so many consecutive texts of a file become one, a passage, within max_characters; how many is drawn by the
    # text. Pairs are joined on both sides.
    join: int = Field(default=1, ge=1, le=1000)
    weight: PositiveFloat = 1.0  # multiplies its size in the balance of a stage
    on_bad: Literal["skip", "stop"] = "skip"  # lines that cannot be read, and the rest of a torn file
    most_bad: Share = 0.5  # of the lines of a file that may be skipped; more are an error, from 100 on
    manual_download: str = ""  # what the user must put there: text that cannot be redistributed

    @property
    def origin(self) -> str:
        """Its OPUS or hub name, or its path."""
        return self.opus or self.hub or self.path or " + ".join(self.files or ())

    @property
    def lenient(self) -> bool:
        """Whether lines that cannot be read are dropped."""
        return self.on_bad == "skip"

    @property
    def is_remote(self) -> bool:
        """Whether it is downloaded."""
        return self.hub is not None or self.opus is not None

    @field_validator("source", "languages", "word_by_word", mode="after")
    @classmethod
    def _lower_case(cls, codes: Any) -> Any:
        """Language codes are lower case; a region or script ("zh_TW", "sr_Latn") is not."""
        for code in (codes,) if isinstance(codes, str) else codes:
            base = re.split(r"[_-]", code)[0]
            if base != base.lower():
                raise ValueError(
                    f"{code!r}: language codes are lower case, such as {code.replace(base, base.lower())!r}"
                )
        return codes

    @model_validator(mode="after")
    def _fits_together(self) -> Corpus:
        if sum(value is not None for value in (self.path, self.files, self.hub, self.opus)) != 1:
            raise ValueError("a corpus needs exactly one of path, files, hub, opus")
        if self.word_by_word and self.kind != "text":
            raise ValueError("word_by_word requires `kind: text`")
        if self.subset is not None and self.hub is None:
            raise ValueError("subset is the configuration of a hub data set: it requires hub")
        if self.scores and self.kind != "triples":
            raise ValueError("scores requires `kind: triples`")
        scaled = self.kind == "scored" or self.scores
        if self.scale is not None and not (scaled and self.scale[0] < self.scale[1]):
            raise ValueError("scale requires `kind: scored` or scores, and is [lowest, highest], such as [0, 1]")
        if self.join > 1 and (self.kind not in ("auto", "text", "pairs") or self.word_by_word):
            raise ValueError("join is for text and pairs, not translated word by word")
        if self.recombine and not self.word_by_word:
            raise ValueError("recombine requires word_by_word")
        return self


class VocabularyTraining(Strict):
    """A SentencePiece unigram vocabulary trained on the corpora, or an existing `.model` file."""

    train: Tokens | None = Field(default=32_000, gt=100)  # number of tokens
    file: str | None = None  # an existing `.model`, instead of train
    lowercase: bool = True  # text is lower-cased
    # Train this many tokens; the others are whole words: those of the body, and frequent ones without punctuation.
    parts: Tokens | None = Field(default=None, gt=100)
    # With parts: words written together with the next one (Arabic clitics), which is a token inside words too.
    prefixes: tuple[str, ...] = ()
    spellings: bool = False  # with parts: dotted I, sharp s, alef and Arabic vowel marks have one form
    simplified: bool = False  # with parts: traditional Chinese characters are read as simplified ones (OpenCC)
    sentences_per_language: Count = 70_000  # read for the vocabulary and the rows


class Assistant(Strict):
    """The model between teacher and student: the teacher's body with a new vocabulary, or a multilingual model."""

    body: str = "teacher"  # `teacher`, or another model whose layers and rows are used
    vocabulary: VocabularyTraining = VocabularyTraining()  # trained on the corpora, or a file
    rows: Literal["cooccurrence", "alignment", "random"] = "alignment"  # how the token table is made from the body's
    inside: bool = False  # use the body's tokens inside words for those of the new vocabulary: parts of names
    nonzeros: Nonzeros | None = None  # code the table: each row a sum of this many rows of the body
    base_rows: int | None = Field(default=None, ge=100, lt=2**24)  # with nonzeros: keep this many rows of the body
    max_length: Length = 128  # tokens of a text

    @model_validator(mode="after")
    def _sums(self) -> Assistant:
        if self.base_rows is not None and self.nonzeros is None:
            raise ValueError("base_rows limits the base of a coded table: set nonzeros too")
        if self.nonzeros is not None and self.rows == "random":
            raise ValueError("nonzeros code rows that are sums of the body's rows; random rows are not")
        return self


class Scratch(Strict):
    """A student with random weights and its own joint vocabulary; the defaults are those of Mao et al. 2021."""

    layers: Layers = 2  # of the encoder
    hidden: Width = 512  # width of the layers
    heads: Heads = 8  # of attention
    intermediate: Inner = 1024  # width of the feed-forward layers
    vocabulary: VocabularyTraining = VocabularyTraining(train=50_000)  # one for all languages
    normalize: bool = False  # scale vectors to length 1, unlike the paper


class AddedVocabulary(Strict):
    """Tokens that a student's vocabulary gets before training, for text in a language that it does not read."""

    add: Tokens  # trained on the recipe's text; their rows come from the student's own, by alignment with the sources
    sentences_per_language: Count = 70_000  # read for the tokens and the rows


class NamedModel(Strict):
    """A model by name; `pooling` and `head` apply to a bare folder (one without `modules.json`)."""

    model: str  # name at the hub, or folder
    pooling: Literal["mean", "cls", "max"] | None = None  # None: mean
    head: Literal["mlp"] | None = None  # a dense layer with tanh after pooling (SimCSE)
    vocabulary: AddedVocabulary | None = None  # of the student


TABLE, FUNCTION = ".parquet", ".py:"


def is_table(name: str) -> bool:
    """Whether a teacher is a table of texts and vectors."""
    return name.endswith(TABLE)


def is_external(name: str) -> bool:
    """Whether a teacher is a table, or a function in a file (FILE.py:FUNCTION): it has no model folder."""
    return is_table(name) or FUNCTION in name


def external_file(name: str) -> Path:
    """The file of an external teacher."""
    return Path(name if is_table(name) else f"{name.rpartition(FUNCTION)[0]}.py").expanduser().absolute()


def model_name(model: NamedModel | str) -> str:
    """The name or folder of a model."""
    return model if isinstance(model, str) else model.model


def _vectors_file(value: Any) -> Any:
    """`{vectors: FILE}` is the teacher FILE, as `FILE` alone is where it ends in .parquet."""
    if isinstance(value, dict) and value.keys() == {"vectors"} and isinstance(value["vectors"], str):
        if not is_table(value["vectors"]):
            raise ValueError(f"vectors: {value['vectors']!r}: expected a Parquet file (.parquet)")
        return value["vectors"]
    return value


class StudentShape(Strict):
    """The student: layers cut from the assistant and the width of its token table, or `scratch` without either."""

    takes: ClassVar[str] = (
        " - student takes the name or folder of a model (`student: msdc-mini`, `{model:, pooling:, head:, "
        "vocabulary:}`), a shape cut from the assistant (bottleneck, layers, ...), or "
        "`scratch: {layers:, hidden:, ...}`"
    )

    scratch: Scratch | None = None  # random weights instead of a cut

    bottleneck: Width | None = 128  # width of the token table; None: that of the layers
    # the bottleneck is widened per word, or after positions and normalisation (a stock AlbertModel)
    place: Literal["word", "embedding"] = "word"
    unit: Layers | None = None  # first M layers of the assistant; None takes all
    layers: tuple[int, ...] | None = None  # these layers of the assistant, instead of unit; []: a table and a mean
    repeats: Layers | None = None  # None: assistant layers / unit, as in the paper
    base_rows: int | None = Field(default=None, gt=0, lt=2**24)  # fit a coded table, unless the assistant's is coded
    nonzeros: Nonzeros | None = None  # with base_rows: each row is a sum of this many base rows
    max_length: Length = 128  # tokens of a text
    dropout: Fraction = 0.0  # during training
    # teacher: a linear map to the teacher's width is part of the student, so that its vectors can be compared with the
    # teacher's; ridge: the same with a bias, at any width, fitted to the teacher's vectors before the first step
    head: Literal["teacher", "ridge"] | None = None

    @model_validator(mode="after")
    def _code_is_whole(self) -> StudentShape:
        if (self.base_rows is None) != (self.nonzeros is None):
            raise ValueError("base_rows and nonzeros describe a coded table together: set both or neither")
        if self.layers == () and (self.place != "word" or self.unit is not None or self.repeats not in (None, 1)):
            raise ValueError("layers: [] is a table and a mean: place, unit and repeats cannot be set with it")
        return self


def _member(value: Any) -> str:
    """Which member of a union of models is meant, so that errors name only that one."""
    if isinstance(value, NamedModel) or (isinstance(value, dict) and "model" in value):
        return "=named"
    return "=made" if isinstance(value, (dict, BaseModel)) else "=name"


def _as_it_is(model: NamedModel) -> NamedModel:
    """A model that is not the student keeps its vocabulary."""
    if model.vocabulary is not None:
        raise ValueError("only the student's vocabulary can be extended")
    return model


_Named = Annotated[NamedModel, AfterValidator(_as_it_is), Tag("=named")]
_Name = Annotated[str, Tag("=name")]
_Teacher = Annotated[_Named | _Name, Discriminator(_member), BeforeValidator(_vectors_file)]
_Assistant = Annotated[Annotated[Assistant, Tag("=made")] | _Named | _Name, Discriminator(_member)]
_Student = Annotated[
    Annotated[StudentShape, Tag("=made")] | Annotated[NamedModel, Tag("=named")] | _Name, Discriminator(_member)
]


class ObjectiveUse(Strict):
    """One objective with its weight in the sum and its own options."""

    name: str  # a shipped one, FILE.py:FUNCTION, or the name of an installed package's
    weight: float = 1.0  # in the sum
    # the objective's, and `bank`: vectors of the memory bank, `layers`: compared layers
    options: dict[str, Any] = Field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name without the folder of its file."""
        return PurePath(self.name).name

    @field_validator("options")
    @classmethod
    def _bank_fits(cls, options: dict[str, Any]) -> dict[str, Any]:
        bank = options.get("bank", 1)
        if type(bank) is not int or not 0 < bank <= BANK:
            raise ValueError(f"bank: {bank}: expected 1 to {BANK} vectors")
        return options


class Stage(Strict):
    """One training stage: the model, its teacher, the objective, the length and the optimizer's settings."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")  # of its folder, and in overrides
    # all of a model, or the student's token table alone
    train: Literal["assistant", "student", "student.embedding"] = "student"
    # teacher, assistant, assistant.embedding, or another teacher, as in a recipe; several with weights:
    # `{teacher: 2, MODEL: 1}`
    teacher: str | Annotated[dict[str, PositiveFloat], Field(min_length=1)] | None = "teacher"
    objective: tuple[ObjectiveUse, ...] = Field(min_length=1)  # also one name, or a list of names
    start: Literal["keep", "svd", "random"] = "keep"  # keep the embedding, or reset it
    epochs: Epochs = 1.0  # of as many rows as all corpora have together, whatever the balance
    steps: Steps | None = None  # instead of epochs
    batch: Batch = 64  # pairs per step (paper: 64)
    batch_tokens: BatchTokens | None = None  # token budget per side; pairs per step vary
    # Sentences whose activations are kept at once; the backward pass recomputes them, so a large batch needs the memory
    # of a small one (GradCache, Gao et al. 2021).
    mini_batch: Count | None = None
    dimensions: tuple[Width, ...] = ()  # prefixes of a vector that are trained as vectors too (Matryoshka)
    # Negatives per pair that the teacher finds in the same chunk, at least mine_margin further than the pair's target.
    mined_negatives: int | None = Field(default=None, gt=0, le=1000)
    mine_margin: Fraction = 0.0  # in cosine
    max_length: Length = 128  # tokens of a text
    # Texts before the student's sources, and before its targets and negatives, such as ["query: ", "passage: "]. The
    # student gets them as prompts `query` and `passage`, in place of those it started with; two equal ones are its
    # default, two empty ones leave it without prompts. None: its default prompt
    prompts: tuple[Prompt, Prompt] | None = None
    teacher_prompts: tuple[Prompt, Prompt] | None = None  # the same of the teacher; None: its default prompt
    learning_rate: PositiveFloat = 2e-5  # at the end of the warm-up
    table_learning_rate: PositiveFloat | None = None  # of the token table; None: learning_rate
    code_learning_rate: PositiveFloat | None = None  # of a coded table's weights; None: learning_rate
    schedule: Literal["linear", "cosine", "constant"] = "linear"  # of the learning rate after the warm-up
    warmup_ratio: Fraction = 0.1  # share of the steps
    warmup_steps: int | None = Field(default=None, ge=0, le=10**8)  # instead of warmup_ratio
    weight_decay: float = Field(default=0.01, ge=0)  # AdamW's; biases, norms and token tables have none
    clip: PositiveFloat = 1.0  # largest norm of the gradient
    freeze: tuple[str, ...] = ()  # prefixes of the names of parameters that are not trained
    source_share: Share = 1.0  # share of steps that also train the source side
    # proportional to the rows of each language, or to their square root; equal: the same for each language; sources:
    # the same for each file (MKD)
    balance: Literal["proportional", "equal", "root", "sources"] = "root"
    # What chooses the weights: auto is the graded pairs and the distance from the teacher on held-out pairs together,
    # heldout the distance alone; retrieval: how often a held-out text finds its pair.
    choose: Literal["auto", "graded", "heldout", "retrieval"] = "auto"
    corpora: tuple[Corpus, ...] | None = None  # instead of the recipe's
    sample: Share | None = None  # instead of the recipe's
    evaluate_every: Count | None = None  # steps; None: four times per stage
    patience: Count | None = None  # stop after this many epochs without gain; with `steps`, this many validations
    quantize: str | None = None  # fake-quantize to this precision while training (QAT)
    start_share: Fraction = 0.0  # kept weights are interpolated back by this fraction to those at the start

    @property
    def role(self) -> str:
        """`assistant` or `student`: the model that this stage trains."""
        return self.train.split(".")[0]

    @property
    def teachers(self) -> dict[str, float]:
        """Weights by `teacher`, `assistant` (also for `assistant.embedding`), or the name of another model."""
        weights = (
            self.teacher if isinstance(self.teacher, dict) else {} if self.teacher is None else {self.teacher: 1.0}
        )
        return {"assistant" if name.split(".")[0] == "assistant" else name: weight for name, weight in weights.items()}

    def ineffective(self) -> list[str]:
        """What has no effect next to other keys of the stage, one sentence each."""
        changed = {key for key in self.model_fields_set if getattr(self, key) != type(self).model_fields[key].default}
        steps, validations = self.steps, 4
        if steps is not None and self.evaluate_every is not None:
            validations = -(-steps // self.evaluate_every)
        table_is_frozen = any("embedding.table.weight".startswith(prefix) for prefix in self.freeze)
        sentences = {
            "batch has no effect: batch_tokens cuts the batches": self.batch_tokens is not None and "batch" in changed,
            "warmup_ratio has no effect with warmup_steps": self.warmup_steps is not None and "warmup_ratio" in changed,
            f"mini_batch has no effect: a batch has {self.batch} pairs": self.batch_tokens is None
            and (self.mini_batch or 0) >= self.batch,
            f"evaluate_every has no effect: the stage has {steps} steps, and is validated at the end": steps is not None
            and (self.evaluate_every or 0) > steps,
            f"patience has no effect: the stage has {validations} validations": steps is not None
            and (self.patience or 0) >= validations,
            "patience has no effect: it has fewer epochs": steps is None and (self.patience or 0) >= self.epochs,
            "an objective of weight 0 has no effect": any(use.weight == 0 for use in self.objective),
            "table_learning_rate has no effect: the table is frozen": bool(self.table_learning_rate)
            and table_is_frozen,
            "mine_margin has no effect without mined_negatives": self.mined_negatives is None
            and bool(self.mine_margin),
        }
        return [sentence for sentence, applies in sentences.items() if applies]

    @field_validator("teacher", mode="before")
    @classmethod
    def _table(cls, value: Any) -> Any:
        return _vectors_file(value)

    @field_validator("dimensions", mode="after")
    @classmethod
    def _different(cls, dimensions: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(dimensions)) < len(dimensions):
            raise ValueError(f"dimensions repeat: {list(dimensions)}")
        return dimensions

    @field_validator("objective", mode="before")
    @classmethod
    def _objective(cls, value: Any) -> Any:
        items = value if isinstance(value, (list, tuple)) else [value]
        return tuple({"name": item} if isinstance(item, str) else item for item in items)


MOST_HELD_OUT = 0.05


class HeldOut(Strict):
    """Validation data: parallel sentences excluded from training, and graded development sets."""

    pairs: Count = 200  # per language
    share: float = Field(default=0.004, gt=0, lt=0.5)  # of source sentences set aside, by hash
    # Of little text more: for this many pairs per language (at most `pairs`), up to 0.05 of it. 0: never more
    min_pairs_per_language: int = Field(default=50, ge=0, le=10**6)
    graded: tuple[str, ...] = ()  # development files (score, sentence, sentence), not test sets
    graded_pairs: Count | None = Field(default=None, gt=1)  # of each graded file, evenly spaced; None: all

    def enough(self, rows: Mapping[str, int]) -> HeldOut:
        """With a share that gives each language, of so many `rows`, its minimum of pairs, but at most MOST_HELD_OUT."""
        # By hash a language gets a few more or fewer.
        needed_share = max(
            (1.2 * min(self.min_pairs_per_language, self.pairs) / count for count in rows.values() if count),
            default=0.0,
        )
        return self.model_copy(update={"share": max(self.share, round(min(needed_share, MOST_HELD_OUT), 4))})


class Recipe(Strict):
    """One run: from teacher and text to a student folder."""

    # of the run: in its default folder and in the model card
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    about: str = ""  # what it trains, for `msdc distill --list`
    # name at the hub, folder, `{vectors: FILE.parquet}` (columns `vector` and `text`), or FILE.py:FUNCTION
    teacher: _Teacher = "all-MiniLM-L6-v2"
    assistant: _Assistant | None = Assistant()  # what the student is cut from; None: there is none
    # what is trained: a shape, or an existing model; None: the assistant is the result
    student: _Student | None = StudentShape()
    languages: tuple[str, ...] = ()  # only text of these languages, and text of one language; empty: all
    corpora: tuple[Corpus, ...] = Field(min_length=1)  # the text of all stages that list none
    stages: tuple[Stage, ...] = Field(min_length=1)  # in the order of training
    # Files (paths or globs) whose sentences, and near duplicates of them, are removed from all training text.
    exclude: tuple[str, ...] = ()
    heldout: HeldOut = HeldOut()  # what the weights are chosen on
    seed: int = Field(default=1, ge=0, lt=2**32)  # of all random numbers
    threads: int | None = Field(default=None, gt=0, le=1024)  # of the processor; None: all that this machine grants
    # of the forward pass; auto: bfloat16 where the hardware multiplies it
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    # Folder of tables and teacher outputs; None: the user's cache; False: outputs are computed in every epoch and not
    # stored
    cache: str | Literal[False] | None = None
    sample: Share = 1.0  # share of source sentences used, with all translations
    report: tuple[str, ...] = ()  # graded files scored once after training; test sets are allowed
    stock_twin: bool = True  # also write an equal model of stock classes (`stock/`)
    data_sources: tuple[str, ...] = ()  # for the model card
    licenses: tuple[str, ...] = ()  # of the text, for the model card
    paper: dict[str, Any] = Field(default_factory=dict)  # the row of the paper's table that it reproduces
    differs: tuple[str, ...] = ()  # differences from the paper's row: `WHAT: why`

    @property
    def all_corpora(self) -> tuple[Corpus, ...]:
        """The corpora of the recipe, then those of its stages."""
        return (*self.corpora, *(corpus for stage in self.stages for corpus in stage.corpora or ()))

    @property
    def cut_shape(self) -> StudentShape | None:
        """The shape of a student that is cut from the assistant; None for a named model or random weights."""
        return self.student if isinstance(self.student, StudentShape) and self.student.scratch is None else None

    @property
    def texts(self) -> list[tuple[Corpus, ...]]:
        """The different lists of corpora: the recipe's, then those of its stages."""
        return list(dict.fromkeys([self.corpora, *(plan.corpora for plan in self.plans)]))

    @property
    def plans(self) -> tuple[StagePlan, ...]:
        """The stages, each with what it takes from the recipe."""
        absent = tuple(role for role in ("assistant", "student") if getattr(self, role) is None)
        return tuple(
            StagePlan(
                number, stage, self.corpora if stage.corpora is None else stage.corpora,
                self.sample if stage.sample is None else stage.sample,
                {name: self.teacher if name == TEACHER else name for name in stage.teachers if name != "assistant"},
                self.heldout, absent, self.cut_shape,
            )
            for number, stage in enumerate(self.stages)
        )  # fmt: skip

    @field_validator("corpora", mode="after")
    @classmethod
    def _select_corpora(cls, corpora: tuple[Corpus, ...], info: ValidationInfo) -> tuple[Corpus, ...]:
        """Those with a language that the recipe trains, translated into no other; the others need not be there."""
        languages = set(info.data.get("languages", ()))
        corpora_read = []
        for corpus in corpora if languages else ():
            codes = tuple(code for code in corpus.word_by_word if code in languages)
            if languages.intersection(corpus.languages or languages) and bool(codes) == bool(corpus.word_by_word):
                corpora_read.append(corpus.model_copy(update={"word_by_word": codes}))
        if languages and not corpora_read:
            raise ValueError(f"no corpus has text in any of languages ({', '.join(sorted(languages))})")
        return tuple(corpora_read) if languages else corpora

    @field_validator("stages", "corpora", mode="after")
    @classmethod
    def _unique(cls, entries: Any, info: ValidationInfo) -> Any:
        names = [entry.name for entry in entries if entry.name is not None]
        if len(set(names)) < len(names):
            raise ValueError(f"names of {info.field_name} repeat: {names}")
        return entries


@dataclass(frozen=True)
class StagePlan:
    """A stage with what it takes from its recipe: what checks, counts or trains a stage reads nothing else of that."""

    number: int  # from 0
    stage: Stage
    corpora: tuple[Corpus, ...]  # its own, else the recipe's
    sample: float  # likewise
    teachers: dict[str, NamedModel | str]  # by their names in the stage, without the assistant
    heldout: HeldOut
    absent: tuple[str, ...]  # which of assistant and student the recipe does not have
    cut_shape: StudentShape | None

    @property
    def kinds(self) -> set[CorpusKind]:
        """The kinds of its corpora."""
        return {corpus.kind for corpus in self.corpora}
