"""Named sets of labelled texts: MLDoc, FLORES topics, SentEval."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from msdc.bench.accuracy.readers.labelled import read_flores_topics, read_mldoc
from msdc.bench.accuracy.readers.senteval import NAMES, read_senteval
from msdc.bench.accuracy.sets.languages import flores
from msdc.bench.accuracy.sets.named_set import DataFolder, NamedSet, Part
from msdc.bench.accuracy.tasks import classification, transfer

# SentEval keeps SST2 in SST/binary
SENTEVAL_FOLDERS = {name: "SST/binary" if name == "SST2" else name for name in NAMES}


def _topics(data: DataFolder) -> Iterator[Part]:
    metadata = data.first("flores200/metadata_dev.tsv")
    codes = [flores(code) for code in data.codes()]
    codes = [code for code in codes if data.first(f"flores200/dev/{code}.dev.gz")]
    load = partial(read_flores_topics, metadata.parent, codes) if metadata and codes else None
    yield Part("flores-topics", load, "flores200/metadata_dev.tsv and flores200/dev/*.dev.gz")


def _mldoc(data: DataFolder) -> Iterator[Part]:
    for code in ("en", "de", "fr", "es", "it"):
        if data.languages and code not in data.languages:
            continue
        word = {"en": "english", "de": "german", "fr": "french", "es": "spanish", "it": "italian"}[code]
        looked = f"[Mm][Ll][Dd]oc*/{word}.train.1000"
        file = data.first(looked)
        yield Part(f"mldoc/{code}", partial(read_mldoc, file.parent, code) if file else None, looked)


def _senteval(data: DataFolder) -> Iterator[Part]:
    for name, folder in SENTEVAL_FOLDERS.items():
        looked = f"**/[Ss]ent[Ee]val/**/{folder}"
        found = data.first(f"[Ss]ent[Ee]val/{folder}", f"[Ss]ent[Ee]val/data/downstream/{folder}")
        yield Part(f"senteval/{name}", partial(read_senteval, found) if found else None, looked)


SETS = (
    NamedSet("flores-topics", classification.TASK, "topics of FLORES, English to the others", _topics),
    NamedSet("mldoc", classification.TASK, "MLDoc, from each language to the others (needs its licence)", _mldoc),
    NamedSet("senteval", transfer.TASK, "SentEval transfer tasks", _senteval),
)
