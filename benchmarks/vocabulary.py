"""What a vocabulary is worth before any training, at equal bytes of program and tokenizer.

    python benchmarks/vocabulary.py --data DATA --work WORK --write docs/results/vocabulary.md

A vocabulary is trained on the recipe's pairs, or taken from WORK/PIECES.model (PIECES/PARTS: so many word parts
beside whole words, WORK/PIECES-PARTS.model), and transplanted once: the assistant, six layers and full rows, is the
best that its words allow. Students are cut from it as the recipe cuts them, with their weights rounded as they are
stored. Rows are kept in WORK/rows.jsonl: a later call goes on with what is missing. Only development sets are read.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from development_sets import SEARCH, DevelopmentSets, Questions
from results_page import KeptRows, options_for, plot_by_bytes, table, write_page
from scipy import sparse

from msdc.bench.report.charts import pareto_line
from msdc.compress.quantization.plan import integers, plan_for
from msdc.compress.size import size_plan
from msdc.compress.student.cut import shrink
from msdc.compress.student.model import Student
from msdc.distill.assistant import load_named, sample_rows, with_table, write_vocabulary
from msdc.distill.catalog import load_recipe
from msdc.distill.data.corpora import open_corpora
from msdc.distill.data.exclusion import read_exclusion
from msdc.distill.data.stream import TextStream
from msdc.distill.recipe import Recipe, VocabularyTraining
from msdc.distill.run import resolve_precision
from msdc.distill.vocabulary_transfer import link_strengths, own_words, strongest
from msdc.encoders.encoder import Encoder
from msdc.files import write_text
from msdc.text.tokenizer import PieceTokenizer

PAIRS = 700  # rows of each STSb dev file
# pieces (/ parts), links, base rows (0: all that are used), bottleneck, precision
DEFAULT = (
    "32000,3,0,128,int8", "32000,3,0,192,int8",
    "64000,3,0,128,int8", "64000,3,0,160,int8", "64000,4,18000,192,int8-embed4",
    "100000,3,0,128,int8", "100000,4,18000,192,int8-embed4",
    "131072/112000,3,20000,192,int8-embed4", "131072/112000,3,0,160,int8-embed4",
    "200000/112000,2,10000,128,int8-embed4", "200000/112000,3,15000,160,int8-embed4",
    "300000/112000,2,10000,128,int8-embed4", "300000/112000,5,0,384,int8",
)  # fmt: skip
LEGEND = (
    "No training step. Vocabularies and rows are made from the recipe's pairs, as in a run. P / Q pieces: Q are "
    "trained, the others are whole words (the teacher's, then frequent ones), marks are apart. Within: Spearman x 100 "
    "on the first 700 rows of STSb dev, mean of seven languages; across: English with each of the six others, both "
    "directions; news (WMT): share of 400 sentences whose nearest neighbour is their translation, mean of five "
    "languages and both directions; search: MRR@10 x 100 of questions to 300 paragraphs by their best sentence, mean "
    "of squad-it and squad-es. Bytes of programs are predicted (`msdc compress plan`), those of tokenizers are "
    "measured; a MB is 1,000,000 bytes. Students have layers 0, 4, 5."
)


class Cut(NamedTuple):
    """One student: pieces (and word parts), links per piece, base rows (0: all used), bottleneck, precision."""

    pieces: str
    links: int
    base_rows: int
    bottleneck: int
    precision: str

    @classmethod
    def parse(cls, text: str) -> "Cut":
        pieces, links, base_rows, bottleneck, precision = text.split(",")
        return cls(pieces, int(links), int(base_rows), int(bottleneck), precision)


class Sweep:
    """Vocabularies, transplants and rows of one working folder."""

    def __init__(self, recipe: Recipe, data: Path, work: Path) -> None:
        self.recipe, self.work = recipe, work
        self.teacher = load_named(recipe.teacher)
        self.sets = DevelopmentSets(data, rows=PAIRS)
        self.search = [Questions(data, name) for name in SEARCH]
        work.mkdir(parents=True, exist_ok=True)
        self.rows = KeptRows(work / "rows.jsonl")

    def scores(self, student: Student, tokenizer: PieceTokenizer) -> dict[str, float]:
        encoder = Encoder(student.eval(), tokenizer, 64, "untaught")
        precision = resolve_precision("auto", torch.device("cpu"))
        encode = partial(encoder.encode, precision=precision)
        found = self.sets.scores(encode)
        return found | {"search": float(np.mean([one.score(encode) for one in self.search]))}

    @cached_property
    def text(self) -> list[Any]:
        """The recipe's pairs and English sentences, without excluded and held-out ones."""
        corpora = open_corpora(self.recipe.corpora, read_exclusion(self.recipe.exclude))
        wanted: Any = self.recipe.assistant
        stream = TextStream(corpora, self.recipe.seed, self.recipe.heldout)
        return sample_rows(stream, wanted.vocabulary.sentences_per_language, self.recipe.seed)

    def transplant(self, pieces: str) -> tuple[PieceTokenizer, sparse.csr_matrix, np.ndarray]:
        """Tokenizer, strongest links and frequencies of a vocabulary; made once per folder."""
        chosen: Any = self.recipe.assistant
        stem = pieces.replace("/", "-")
        model, links = self.work / f"{stem}.model", self.work / f"{stem}.npz"
        if not model.is_file():
            size, _, parts = pieces.partition("/")
            spellings = bool(parts) and chosen.vocabulary.spellings
            wanted = VocabularyTraining(train=int(size), parts=int(parts) if parts else None, spellings=spellings)
            write_vocabulary(wanted, self.text, model, own_words(self.teacher) if parts else ())
        tokenizer = PieceTokenizer(model)
        if not links.is_file():
            score, frequency = link_strengths(self.teacher, tokenizer, self.text, "alignment", 128, chosen.inside)
            score = strongest(score)
            part = links.with_suffix(".part.npz")
            np.savez_compressed(part, data=score.data, indices=score.indices, indptr=score.indptr, shape=score.shape,
                                frequency=frequency)  # fmt: skip
            part.replace(links)
        found = np.load(links)
        score = sparse.csr_matrix((found["data"], found["indices"], found["indptr"]), shape=tuple(found["shape"]))
        return tokenizer, score, found["frequency"]

    def measure(self, cut: Cut) -> None:
        tokenizer, score, frequency = self.transplant(cut.pieces)
        facts = {"vocabulary": cut.pieces, "pieces": tokenizer.size}
        if not self.rows.has(key=cut.pieces):
            assistant = with_table(self.teacher, tokenizer, 128, score, 5)
            self.rows.add({"key": cut.pieces, **facts, **self.scores(assistant, tokenizer)})
        if self.rows.has(key=repr(cut)):
            return
        assistant = with_table(self.teacher, tokenizer, 128, score, cut.links, cut.base_rows or None, frequency)
        student = shrink(
            assistant, layers=[0, 4, 5], repeats=1, bottleneck=cut.bottleneck, frequency_V=torch.from_numpy(frequency)
        )
        plan = plan_for(student, cut.precision)
        rounded = {name: torch.from_numpy(part.dequantize()) for name, part in integers(student, plan).items()}
        student.load_state_dict(rounded, strict=False)
        program = size_plan("student", student.config).bytes[cut.precision]["executorch"]
        facts |= {"base_rows": student.config.base_rows, "program": program,
                  "tokenizer": tokenizer.path.stat().st_size}  # fmt: skip
        self.rows.add({"key": repr(cut), **cut._asdict(), **facts, **self.scores(student, tokenizer)})


def total_mb(row: dict[str, Any]) -> float:
    return float(row["program"] + row["tokenizer"]) / 1e6


def pieces_of(row: dict[str, Any]) -> str:
    """A vocabulary's pieces, and the word parts among them; fewer pieces than asked for where the text has no more."""
    _, _, parts = row["vocabulary"].partition("/")
    return f"{row['pieces']:,}" + (f" / {int(parts):,}" if parts else "")


def name(row: dict[str, Any]) -> str:
    table = f"{row['links']} of {row['base_rows']:,} x {row['bottleneck']}"
    return f"{pieces_of(row)} pieces, {table}, {row['precision']}"


def body(whole: Sequence[dict[str, Any]], students: Sequence[dict[str, Any]]) -> Iterator[str]:
    scores = ("within", "across", "news", "search")
    yield LEGEND
    yield "## Assistants\n\nSix layers, full rows (each a sum of five of the teacher's), float: what the words allow."
    rows = [(pieces_of(row), *(f"{row[key]:.1f}" if key in row else "–" for key in scores)) for row in whole]
    yield table(("pieces", "within", "across", "news (WMT)", "search"), rows)
    yield "## Students by bytes\n\nMarked: no other is smaller and at least as good across."
    best = set(pareto_line([(total_mb(row), row["across"]) for row in students]))
    yield table(
        ("pieces", "links", "base rows", "bottleneck", "precision", "program", "tokenizer", "MB in all", "within",
         "across", "news (WMT)", "search", ""),
        [(pieces_of(row), row["links"], f"{row['base_rows']:,}", row["bottleneck"], row["precision"],
          f"{row['program']:,}", f"{row['tokenizer']:,}", f"{total_mb(row):.2f}",
          *(f"{row[key]:.1f}" if key in row else "–" for key in scores), "x" if i in best else "")
         for i, row in enumerate(students)],
    )  # fmt: skip


def main() -> None:
    parser = options_for(__doc__, "vocabulary")
    parser.add_argument("--data", type=Path, required=True, help="the data folder")
    parser.add_argument("--work", type=Path, required=True, help="vocabularies, links and rows are kept here")
    parser.add_argument("--recipe", default="msdc-mini", help="whose text, teacher and seed (default: msdc-mini)")
    parser.add_argument("--students", nargs="*", default=list(DEFAULT), metavar="PIECES,LINKS,BASE,WIDTH,PRECISION")
    options = parser.parse_args()
    torch.set_num_threads(1)
    sweep = Sweep(load_recipe(options.recipe, data=options.data), options.data, options.work)
    for text in options.students:
        sweep.measure(Cut.parse(text))
    whole = sorted((row for row in sweep.rows if "program" not in row), key=lambda row: row["pieces"])
    students = sorted((row for row in sweep.rows if "program" in row), key=total_mb)
    parts = list(body(whole, students))
    for key, title in (("across", "Spearman x 100, across languages"), ("news", "news (WMT), accuracy x 100")):
        if options.write:
            image = options.write.parent.parent / "images" / f"vocabulary-{key}.svg"
            points = [(total_mb(row), row[key], name(row), f"{pieces_of(row)} pieces") for row in students]
            write_text(image, plot_by_bytes(points, title))
            parts.append(f"![{title}, by bytes](../images/{image.name})")
    write_page(options.write, "Vocabularies by bytes, before training", f"none; {options.recipe}'s text",
               "\n\n".join(parts), "torch sentencepiece scipy")  # fmt: skip


if __name__ == "__main__":
    main()
