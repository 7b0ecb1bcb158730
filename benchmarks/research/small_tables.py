"""The rows of benchmarks/research/papers.py: recipes at small size, their settings, and the orderings that are looked at."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from msdc.compress.student.stock import to_student, write_stock
from msdc.distill import distill
from msdc.distill.assistant import make_assistant
from msdc.distill.catalog import load_recipe, read_file
from msdc.distill.run import Run
from msdc.encoders.folder import locate_model
from msdc.files import read_json, write_json
from msdc.loading import load_encoder

TEACHER = "all-MiniLM-L6-v2"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")
Settings = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One row: a recipe with variants, and what differs from the table's common settings.

    `set` has the keys of `--set`; those of stages that the recipe does not have are ignored. `model` creates a model
    that is scored as it is, instead of a recipe. `seeds` is the highest seed that is trained. A row that is not
    `published` changes a row of the paper.
    """

    name: str
    label: str
    recipe: str = ""
    set: Settings = field(default_factory=dict)
    model: Callable[[Path, Path], Path] | None = None
    seeds: int = 9
    published: bool = True

    def paper(self, key: str) -> float | None:
        """The paper's figure of the row, as the recipe's tables state it."""
        base, _, chosen = self.recipe.partition(":")
        return read_file(base).paper_row(chosen).get(key) if base and self.published else None

    def settings(self, table: "PaperTable", work: Path, data: Path, seed: int) -> tuple[str, ...]:
        requested = {**table.common(work, data), **self.set}
        have = {stage.name for stage in load_recipe(self.recipe, (), data).stages}
        applicable = {k: v for k, v in requested.items() if not k.startswith("stages.") or k.split(".")[1] in have}
        applicable |= {"seed": seed, "threads": 1}
        return tuple(f"{key}={json.dumps(value)}" for key, value in applicable.items())


@dataclass(frozen=True)
class Measure:
    """A column: the mean over test sets; `paper` is the key of a figure of the paper, of the sets that `of` names.

    `pooled`: the score of all sets as one pool minus that mean (the language bias of Reimers and Gurevych 2020).
    """

    name: str
    sets: tuple[str, ...]
    paper: str = ""
    of: str = ""
    pooled: bool = False


@dataclass(frozen=True)
class PaperTable:
    """Rows that are compared, in the order in which they are trained.

    Orderings, pairs of row names, are judged by the first measure or by the one that they name third, and compared with
    the paper by that measure or by the first that has a figure of the paper. Rows with scores below `floor` learned too
    little to be compared with each other.
    """

    name: str
    title: str
    note: str
    measures: tuple[Measure, ...]
    rows: tuple[Row, ...]
    orderings: tuple[tuple[str, ...], ...]
    common: Callable[[Path, Path], Settings]
    floor: float = float("-inf")

    @property
    def sets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for measure in self.measures for name in measure.sets))

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    def measure(self, name: str | None = None) -> Measure:
        return self.measures[0] if name is None else next(measure for measure in self.measures if measure.name == name)


# --- LXS: generative and sentence losses, from scratch ------------------------------------------------------------

SIM = {"name": "sentence_similarity", "weight": 2.0, "options": {"reduction": "rows"}}


def lxs_settings(work: Path, data: Path) -> Settings:
    """1,000 steps of 128 pairs; a vocabulary of 8,000 tokens. The last weights count: nothing chooses them."""
    return {
        "student.scratch.vocabulary": {"train": 8000, "sentences_per_language": 20000},
        "heldout": {"pairs": 300, "share": 0.008},
        "stages.train.steps": 1000,
        "stages.train.evaluate_every": 1000,
    }


LXS = PaperTable(
    "lxs",
    "LXS (Mao et al. 2021), tables 6 and 7: `lightweight:small`",
    "From scratch, English-German, two layers of 128, a joint vocabulary of 8,000, 1,000 steps of 128 pairs (1.4 "
    "epochs of Tatoeba and captions; the paper: 12 of ParaCrawl), which is not converged; the last weights are scored. "
    "XSR: the nearest of all candidates to a query must be its translation; "
    "queries and candidates are pairs of the Tatoeba Challenge test set with no side in the training text. Cosine, "
    "the paper's measure, punishes a constant offset between the languages; centred: the mean of each side is "
    "subtracted first. Rows below 10 are on the floor of this set-up: no order among them is claimed. In an earlier "
    "version, of 200 steps, only rows with align were above it.",
    (
        Measure("XSR en-de, centred", ("XSR en-de, centred",)),
        Measure("XSR en-de, cosine", ("XSR en-de",), "xsr", "XSR en-fr"),
    ),
    (
        Row("ugt", "UGT (SMLM+XTR)", "lightweight:small+ugt"),
        Row("ugt-align", "UGT+align", "lightweight:small+ugt-align"),
        Row("ugt-sim", "UGT+sim", "lightweight:small",
            {"stages.train.objective": ["unified_generative", SIM]}),
        Row("ugt-align-sim", "UGT+align+sim", "lightweight:small+ugt-align-sim"),
        Row("xtr", "XTR", "lightweight:small+xtr"),
        Row("smlm", "SMLM", "lightweight:small+smlm"),
        Row("mlm", "MLM", "lightweight:small+mlm"),
        Row("mlm-xtr", "MLM+XTR", "lightweight:small+mlm-xtr"),
    ),
    (
        ("ugt-align", "ugt"), ("ugt-sim", "ugt"), ("ugt-align-sim", "ugt-align"), ("ugt-align-sim", "ugt-sim"),
        ("ugt-align-sim", "ugt"), ("ugt", "xtr"), ("ugt", "smlm"), ("smlm", "mlm"), ("xtr", "mlm"), ("xtr", "smlm"),
        ("ugt", "mlm-xtr"),
    ),
    lxs_settings,
    10.0,
)  # fmt: skip


# --- MSD: stages, contrastive settings, repeats -------------------------------------------------------------------


ASSISTANT = {"train": 16000, "sentences_per_language": 20000}


def assistant_folder(work: Path, data: Path) -> Path:
    """The untrained assistant that all seeds start from: the teacher's body with a vocabulary of 16,000 tokens."""
    folder = work / "assistant"
    if not (folder / "config.json").is_file():
        recipe = load_recipe("msd:small", (f"assistant.vocabulary={json.dumps(ASSISTANT)}",), data)
        make_assistant(recipe, Run(recipe, work / "assistant-run").text(), folder)
    return folder


def msd_settings(work: Path, data: Path) -> Settings:
    """Steps of 32 pairs: 100 for the assistant, 60, 120 and 120 for the student; 300 where it has a single stage."""
    stages = {"train-assistant": 100, "align-bottleneck": 60, "train-student": 120, "contrast": 120,
              "pre-distillation": 120}  # fmt: skip
    steps = {f"stages.{name}.steps": count for name, count in stages.items()}
    return {
        "assistant": str(assistant_folder(work, data)),
        "corpora": [
            {"path": f"{data}/tatoeba/*.tsv.gz", "languages": ["de", "es"], "max_characters": 60, "limit": 20000}
        ],
        "heldout.pairs": 60,
        "heldout.graded_pairs": 100,
        "report": [],
        **steps,
        **{key.replace(".steps", ".evaluate_every"): count for key, count in steps.items()},
    }


SINGLE = {"stages.contrast.steps": 300, "stages.contrast.evaluate_every": 300}
SUMMED = {"name": "multilingual_mse", "options": {"reduction": "sum"}}
BOTH = {"stages.contrast.objective": ["multilingual_contrastive", "multilingual_mse"]}
MSD = PaperTable(
    "msd",
    "MSD (Ding et al. 2022), tables 3 to 6: `msd:small`",
    "Teacher all-MiniLM-L6-v2 (384 wide, as the student), English, German, Spanish, Tatoeba pairs of at most 60 "
    "characters, batch 32; steps: assistant 100, bottleneck 60, stage 3 120, stage 4 120; a single stage has the 300 "
    "steps of the student's three. All seeds start from one untrained assistant (16,000 tokens, rows aligned); the "
    "seed decides text order, held-out pairs and new weights. The unit is the first three of six layers, applied "
    "twice except in the row that applies it once. Single-stage rows have neither the assistant's table nor its 100 "
    "steps: that they are far below shows what the table is worth, not what the stages are. Whether applying the unit "
    "twice pays is open: [a set-up that cannot gain from stored layers](../decisions.md) cannot show it. STSb: every "
    "second pair of STSb's test set, across languages.",
    (
        Measure("STSb across languages", ("STSb en-de", "STSb en-es")),
        Measure("STS2017 cross", ("STS2017 es-en",), "cross", "STS2017 cross, 7 pairs"),
        Measure("STS2017 mono", ("STS2017 en-en", "STS2017 es-es"), "mono", "STS2017 mono, 3 sets"),
    ),
    (
        Row("no-mcl", "without MCL: MSE alone in stage 4", "msd:small+no-mcl"),
        Row("ours", "ours: MCL + MSE in stage 4", "msd:small+ours"),
        Row("no-recurrence", "unit once", "msd:small+no-recurrence"),
        Row("single-mse", "single stage, random table: MSE", "msd:small+single-random", SINGLE),
        Row("single-mcl", "single stage, random table: MCL + MSE", "msd:small+single-random", SINGLE | BOTH,
            published=False),
        Row("stages-1-2-3", "stages 1+2+3", "msd:small+stages-1-2-3"),
        Row("ours-sum", "ours, MSE summed over dimensions", "msd:small+ours",
            {"stages.contrast.objective": ["multilingual_contrastive", SUMMED]}, published=False),
        Row("bool", "Bool (hard labels)", "msd:small+bool"),
        Row("ce", "CE (temperature 0.05)", "msd:small+ce"),
        Row("stages-1-2", "stages 1+2", "msd:small+stages-1-2"),
    ),
    (
        ("ours", "no-mcl"), ("ours", "no-mcl", "STS2017 cross"),
        ("ours-sum", "ours"), ("ours-sum", "no-mcl"), ("ours", "bool"), ("ours", "ce"),
        ("ours", "no-recurrence"), ("ours", "single-mse"), ("no-mcl", "single-mse"),
        ("single-mcl", "single-mse"), ("ours", "stages-1-2-3"), ("stages-1-2-3", "stages-1-2"),
    ),
    msd_settings,
)  # fmt: skip


MULTILINGUAL_CODES = ("de", "es", "it", "ru")
STAGE_3 = {"name": "train-student", "train": "student", "teacher": "assistant", "objective": "multilingual_mse",
           "steps": 2000, "batch": 8, "max_length": 64, "learning_rate": 6e-4, "schedule": "constant",
           "warmup_steps": 50, "freeze": ["embedding.table"], "average": 0.998, "evaluate_every": 2000,
           "choose": "heldout"}  # fmt: skip
FULL_WIDTH = {"stages": [STAGE_3]}  # there is no bottleneck to align


def multilingual_corpora(data: Path) -> list[Settings]:
    """Tatoeba, English with four languages."""
    return [
        {"path": f"{data}/tatoeba/tatoeba.en-{code}.tsv.gz", "languages": [code], "max_characters": 100, "limit": 20000}
        for code in MULTILINGUAL_CODES
    ]


def multilingual_settings(work: Path, data: Path) -> Settings:
    """1,000 steps of 32 pairs for the bottleneck, 2,000 of 8 pairs for the student; teacher and assistant: WORK/e5."""
    align = {"name": "align-bottleneck", "train": "student.embedding", "teacher": "assistant.embedding",
             "objective": "embedding_alignment", "start": "svd", "steps": 1000, "batch": 32, "max_length": 64,
             "learning_rate": 5e-4, "evaluate_every": 1000, "choose": "heldout"}  # fmt: skip
    return {
        "teacher": str(work / "e5"),
        "assistant": "teacher",
        "student.head": "ridge",
        "student.max_length": 128,
        "corpora": multilingual_corpora(data),
        "exclude": [f"{data}/stsb/sts-test.tsv.gz", f"{data}/stsb-crosslingual/*.tsv", f"{data}/sts2017/*.tsv"],
        "heldout": {"pairs": 150},
        "report": [],
        "stages": [align, STAGE_3],
    }


MULTILINGUAL = PaperTable(
    "msd-multilingual",
    "MSD (Ding et al. 2022) with a multilingual assistant of twelve layers",
    "Stages 2 and 3 of `msd` with multilingual-e5-small (384 wide, WORK/e5) as teacher and assistant, as it is: the "
    "assistant needs no stage 1, and stage 4 (MCL) is left out, since its labels, cosines of the teacher, are all "
    "high. Tatoeba, English with German, Spanish, Italian and Russian, 20,000 pairs each; bottleneck 1,000 steps of 32 "
    "pairs, student 2,000 of 8 pairs, constant rate, average of the weights, a linear head with a bias fitted by ridge "
    "first. The token table is frozen after its alignment in all rows. All rows have equal steps, not equal time: a "
    "unit applied n times takes about n times as long. The orderings were chosen before the first run.",
    MSD.measures,
    (
        Row("ours", "bottleneck 128, unit 3 four times (the paper's student)", "msd:small+ours"),
        Row("no-recurrence", "bottleneck 128, unit 3 once", "msd:small+no-recurrence"),
        Row("unit-6", "bottleneck 128, unit 6 twice", "msd:small+unit-6"),
        Row("none", "no bottleneck, unit 3 four times", "msd:small+no-bottleneck", FULL_WIDTH),
        Row("none-once", "no bottleneck, unit 3 once", "msd:small+no-bottleneck",
            FULL_WIDTH | {"student.repeats": 1}, published=False),
    ),
    (
        ("ours", "no-recurrence"), ("ours", "no-recurrence", "STS2017 mono"), ("unit-6", "ours"), ("none", "ours"),
        ("none", "ours", "STS2017 cross"), ("none", "none-once"),
    ),
    multilingual_settings,
)  # fmt: skip


# --- MKD: a monolingual teacher's space, carried over --------------------------------------------------------------


def mkd_settings(work: Path, data: Path) -> Settings:
    """100 steps of 32 pairs from the untrained assistant, all six layers, at full width."""
    codes, short = ["de", "es"], {"max_characters": 60, "limit": 20000}
    return {
        "assistant": str(assistant_folder(work, data)),
        "corpora": [
            {"path": f"{data}/tatoeba/*.tsv.gz", "languages": codes, **short},
            *(
                {"path": f"{data}/{name}/*.tsv.gz", "languages": codes, "max_characters": 120}
                for name in ("ntrex", "pud")
            ),
        ],
        "heldout.pairs": 60,
        "heldout.graded_pairs": 100,
        "report": [],
        "stages.train.steps": 100,
        "stages.train.batch": 32,
        "stages.train.max_length": 48,
        "stages.train.evaluate_every": 100,
    }


STS2017 = ("STS2017 es-en", "STS2017 en-en", "STS2017 es-es")
MKD = PaperTable(
    "mkd",
    "MKD (Reimers and Gurevych 2020), tables 1, 2 and 8: `mkd:small`",
    "Teacher all-MiniLM-L6-v2, which reads English. The student starts as the teacher's body with 16,000 tokens of "
    "three languages, rows aligned (the paper: XLM-R), and is trained on 100 batches of 32 English-German and "
    "English-Spanish pairs: Tatoeba (20,000 of each, at most 60 characters), NTREX and PUD (800 and 500 of each, at "
    "most 120). Bias: Spearman of the three STS2017 sets as one pool minus the mean of the sets; the paper has it of "
    "other models.",
    (
        Measure("STS2017 cross", STS2017[:1], "cross", "STS2017 cross, 7 pairs"),
        Measure("STS2017 mono", STS2017[1:], "mono", "STS2017 mono, 3 sets"),
        Measure("STS2017 en-en", STS2017[1:2]),
        Measure("bias", STS2017, pooled=True),
    ),
    (
        Row("teacher", "the teacher", model=lambda work, data: Path(locate_model(TEACHER))),
        Row("start", "the untrained student", model=assistant_folder),
        Row("mkd", "MSE on both sides, sources balanced", "mkd:small+nli"),
        Row("proportional", "MSE on both sides, proportional", "mkd:small+nli",
            {"stages.train.balance": "proportional"}, published=False),
        Row("one-side", "MSE on translations alone", "mkd:small+nli", {"stages.train.source_share": 1e-6},
            published=False),
    ),
    (
        ("mkd", "start"), ("mkd", "start", "bias"), ("mkd", "teacher", "STS2017 en-en"),
        ("mkd", "proportional"), ("mkd", "one-side"), ("mkd", "one-side", "STS2017 en-en"),
    ),
    mkd_settings,
)  # fmt: skip


# --- DistilCSE: a [CLS] + MLP teacher trained here ---------------------------------------------------------------


def write_bare(folder: Path, tokenizer: Path, config: Path, state: dict[str, Any], **changes: Any) -> Path:
    """A transformer as a bare folder, without modules.json: weights, config.json and tokenizer files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in TOKENIZER_FILES:
        if (tokenizer / name).is_file():
            shutil.copyfile(tokenizer / name, folder / name)
    save_file(state, str(folder / "model.safetensors"), metadata={"format": "pt"})
    write_json(folder / "config.json", read_json(config / "config.json") | changes)
    return folder


def bare_folder(folder: Path, layers: tuple[int, ...] | None = None) -> Path:
    """The published teacher's transformer as a bare folder; of `layers` without its pooler."""
    if (folder / "config.json").is_file():
        return folder
    source = locate_model(TEACHER)
    state = load_file(source / "model.safetensors")
    if layers is None:
        return write_bare(folder, source, source, state)
    body = {name: value for name, value in state.items() if not name.startswith(("encoder.layer.", "pooler."))}
    for new, old in enumerate(layers):
        start = f"encoder.layer.{old}."
        body |= {f"encoder.layer.{new}.{k.removeprefix(start)}": v for k, v in state.items() if k.startswith(start)}
    return write_bare(folder, source, source, body, num_hidden_layers=len(layers))


def bare_of(run: Any, start: Path, folder: Path) -> Path:
    """The student of a run, a [CLS] + MLP encoder made from the bare folder `start`, as such a folder again."""
    stock = folder.with_name(f"{folder.name}-stock")
    stock.mkdir(exist_ok=True)
    write_stock(to_student(load_encoder(run.student)), stock)
    state = load_file(stock / "model.safetensors")
    state = {name: value for name, value in state.items() if not name.startswith("pooler.")}
    dense = load_file(stock / "2_Dense" / "model.safetensors")
    state |= {f"mlp.dense.{name.removeprefix('linear.')}": value for name, value in dense.items()}
    return write_bare(folder, start, stock, state)


def trained(folder: Path, recipe: str, settings: Settings, data: Path) -> Any:
    """The run of a recipe with settings, in a folder next to `folder`; a stopped run continues."""
    settings |= {"seed": 1, "threads": 1, "report": []}
    resolved = load_recipe(recipe, tuple(f"{key}={json.dumps(value)}" for key, value in settings.items()), data)
    run = folder.with_name(f"{folder.name}-run")
    return distill(resolved, run, (run / "recipe.yaml").is_file())


def cls_teacher(work: Path, data: Path) -> Path:
    """A SimCSE-like teacher as a bare folder: [CLS] under a dense layer with tanh, trained on NLI triples."""
    folder = work / "cls-teacher"
    if (folder / "config.json").is_file():
        return folder
    start = bare_folder(work / "cls-teacher-start")
    triples = [{"path": f"{data}/nli/snli.{part}.tsv.gz", "kind": "nli"} for part in ("dev", "test")]
    stage = {"name": "supervise", "teacher": None, "objective": "supervised_contrastive", "steps": 100, "batch": 48,
             "max_length": 48, "learning_rate": 5e-5, "weight_decay": 0.0, "evaluate_every": 50, "choose": "graded",
             "corpora": triples}  # fmt: skip
    settings = {"student": {"model": str(start), "pooling": "cls", "head": "mlp"}, "stages": [stage]}
    return bare_of(trained(folder, "distilcse:small", settings, data), start, folder)


def kd_student(work: Path, data: Path) -> Path:
    """Three layers that plain KD trained for 800 steps, as a bare folder."""
    folder = work / "kd-student"
    if (folder / "config.json").is_file():
        return folder
    start = bare_folder(work / "cls-student", (0, 2, 4))
    settings = english(work, data, start) | {"stages.distil.steps": 800, "stages.distil.evaluate_every": 100}
    return bare_of(trained(folder, "distilcse:small+kd+stage-1", settings, data), start, folder)


def english(work: Path, data: Path, student: Path) -> Settings:
    """Teacher, student and 6,000 English sentences; rate 3e-4, bank of 4,096."""
    texts = (("flickr30k-captions", 3000), ("abc-news-lines", 1500), ("asset-wikipedia", 1500))
    return {
        "teacher": {"model": str(cls_teacher(work, data)), "pooling": "cls", "head": "mlp"},
        "student": {"model": str(student), "pooling": "cls", "head": "mlp"},
        "corpora": [{"path": f"{data}/english/{name}.txt.gz", "kind": "text", "limit": limit} for name, limit in texts],
        "heldout.graded_pairs": 300,
        "report": [],
        "stages.distil.learning_rate": 3e-4,
    }


def distilcse_settings(work: Path, data: Path) -> Settings:
    """100 steps of 64 sentences from the student that KD trained for 800 steps."""
    return english(work, data, kd_student(work, data)) | {
        "stages.distil.steps": 100,
        "stages.distil.evaluate_every": 100,
        "stages.supervise.steps": 40,
        "stages.supervise.batch": 64,
        "stages.supervise.learning_rate": 5e-5,
    }


DISTILCSE = PaperTable(
    "distilcse",
    "DistilCSE (Gao et al. 2021), table 2: `distilcse:small` with a [CLS] + MLP teacher",
    "The teacher is a bare folder read with `pooling: cls, head: mlp`: all-MiniLM-L6-v2's transformer, trained for "
    "100 steps on SNLI triples as SimCSE is. Every row continues from one student: three of the original six layers, "
    "trained by plain KD for 800 steps, so that a row shows what its objective adds. Teacher and start are single "
    "runs. PKD's extra term changes nothing here, so that CKD against KD and against PKD would be one result: it is "
    "listed once. 100 steps of 64 of 6,000 English sentences (captions, news, Wikipedia), bank of 4,096; stage 2 is 40 "
    "steps of 64 triples.",
    (Measure("STSb test", ("STSb test",), "avg", "mean of 7 STS sets"),
     Measure("STS2017 en-en", ("STS2017 en-en",))),
    (
        Row("teacher", "the teacher", model=cls_teacher, seeds=1),
        Row("start", "KD, 800 steps: where all rows start", model=kd_student, seeds=1),
        Row("kd", "KD, stage 1", "distilcse:small+kd+stage-1"),
        Row("ckd", "CKD, stage 1", "distilcse:small+ckd+stage-1"),
        Row("ckd-2", "CKD, stages 1 and 2", "distilcse:small+ckd"),
        Row("pkd", "PKD, stage 1", "distilcse:small+pkd+stage-1"),
        Row("metakd", "MetaKD, stage 1", "distilcse:small+metakd+stage-1"),
    ),
    (("ckd", "kd"), ("ckd", "metakd"), ("ckd-2", "ckd"), ("kd", "pkd")),
    distilcse_settings,
)  # fmt: skip

TABLES = (MSD, MULTILINGUAL, MKD, LXS, DISTILCSE)
