"""An index of the Python package, and its answers, for the search of the phones' modules."""

import json
import re
import shutil
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import native_core

from msdc.loading import open_index
from msdc.search.documents import Hit, as_document

# Documents whose words are not spelled as a query spells them.
SPELLED = [
    {
        "id": "d10",
        "title": "IĞDIR'DA KAR",
        "text": "Die STRASSE ist lang. \U0001f534 Park\u00adplatz, nai\u0308ve 20\u0660",
    },
    {"id": "d11", "text": "मुझे यह किताब पसंद है", "author": "Smith, John", "stars": 4.0, "day": "2025-01-31"},
    {
        "id": "d12",
        "author": "Smith",
        "stars": "4",
        "lang": ["hi", "zh"],
        "text": "कल तब कब बात कट बस कम तक. 东京的夏天很热。",
    },
    {"id": "d13", "text": "我住在北京，天气很好。 كِتَابٌ جمـــيل"},
    {"id": "d14", "text": "한국어를 배웁니다. \u1112\u1161\u11ab\u1100\u116e\u11a8"},
]
SPELLINGS = ["ığdır", "Straße", "किताब", "北京", "茶 京", "كتاب جميل", "🔴", "parkplatz", "NAÏVE 200", "한국"]
# Documents for operators, codes, other spellings, names that are misspelled, equal entries and times.
ASKED = [
    {
        "id": "d15",
        "text": "Frau Müller wohnt in Køge. A fast car, \U0001f697 and a slow one.",
        "when": "2031-05-31T10:00+02:00",
    },
    {
        "id": "d16",
        "text": "Call O'Brien about the Wi-Fi. The car was not fast.",
        "when": "2031-05-31T08:30:00Z",
        "lang": "",
    },
    {
        "id": "d17",
        "text": "Error E-4711 in getUserAddress(): see v1.2.3 and C++ there.",
        "when": "2031-06-01",
        "lang": None,
    },
    {"id": "d18", "text": "The conference in Moskva was moved.", "when": "2031-05-31T23:30:00-05:00"},
    {"id": "d19", "text": "Everything is sold out!"},
    {"id": "d20", "text": "everything is, sold OUT", "title": "", "lang": "en"},
]
DOCUMENTS = [
    {"id": "d1", "title": "Parking", "text": "The car is on level 2. The ticket is in the glove box.", "year": 2026},
    {"id": "d2", "text": "La reunión empieza a las nueve. Trae el informe.", "year": 2025, "lang": "es"},
    {"id": "d3", "text": "Der Zug nach München fährt um acht.\nGleis 3! (Nicht Gleis 4.) Danach: Taxi", "lang": "de"},
    {"id": "d4", "title": "A title that is much longer than a third of what the model reads " * 5, "text": "Milk."},
    {"id": "d5", "text": "word " * 400 + "The needle is at the end of a long text.", "year": 2024.5, "lang": "en"},
    {"id": "d6", "text": "会議は九時に始まります。切符は箱の中です。", "done": True},
    {"id": "d7", "text": "\U00012000\U00012001 \U000103a0\U000103a1", "lang": "en"},
    {"id": "d8", "text": "\U0001f600 smile. Emoji before the ticket!  “Quoted.” And after… the end", "lang": "en"},
    {"id": "d9", "text": "Reunion without its accent", "lang": "en", "quote": 'it\'s "so"', "day": "2024-05-01"},
    *SPELLED,
    *ASKED,
]
QUERIES = [
    ("both", 5, "", "Where is the ticket?"), ("words", 5, "", "the ticket, the REUNIÓN"), ("vectors", 3, "", "parking"),
    ("both", 9, "", "needle in a long text"), ("both", 5, "lang=en", "ticket"), ("both", 5, "year>2025.5", "train car"),
    ("vectors", 9, "year<2025", "train"), ("words", 5, "lang=de|es", "Gleis reunion taxi"), ("words", 5, "", "???"),
    *(("words", 5, "", query) for query in SPELLINGS),
    ("both", 5, "done=1", "九時"),
    ("both", 2, "", "\U0001f600"),
    ("vectors", 2, "", "\U00012000"), ("both", 5, "author=Smith, John", "ticket"), ("both", 5, "stars=4", "ticket"),
    ("vectors", 5, "stars=4.0", "ticket"), ("both", 5, "lang=hi", "ticket"), ("both", 5, "day>2024-12-31", "ticket"),
    ("both", 5, "day<2024-06", "reunion"), ("both", 5, "lang=nothing", "ticket"), ("both", 9, "done=true", "ticket"),
    *(("words", 9, "", query) for query in (
        '"fast car"', "car -slow", 'car -"fast car"', "-slow", "conf", "conf ", "E-4711", "4711", "v1.2", "C++",
        "get user",
        "getuseraddr", "OBrien", "o\u2019brien", "wifi", "wi-fi", "Mueller", "Muller", "Koege", "confrence adress",
        "Москва", "the", '"is sold" car', "\U0001f697 car",
    )),
    ("both", 9, "", 'car -slow "level 2"'), ("vectors", 9, "", "car -slow"), ("vectors", 5, "", "sold out"),
    ("words", 9, "", "-slow car", "plain"), ("words", 9, "", "sold out", "each"), ("words", 9, "", "sold out"),
    ("both", 3, "", "the ticket of the car", "offset=2"), ("both", 20, "", "the ticket of the car", "each offset=9"),
    ("both", 9, "lang!en|de", "car"), ("both", 20, "lang-", "car"), ("both", 20, "lang+", "car"),
    ("words", 9, "when>2031-05-31T08:30:00Z", "car error conference"), ("words", 9, "when<2031-05-31",
    "car conference"),
    ("words", 9, "when=2031-06-01", "error conference"), ("words", 9, "when>2031-06-01T06:00+02:00",
    "error conference"),
    ("words", 9, "", "car", "order=-when"), ("words", 9, "", "the ticket", "order=lang,-year offset=1"),
    ("both", 9, "", "the ticket", "order=day"), ("vectors", 9, "", "the ticket", "each order=-stars,quote"),
    ("both", 9, "", "the ticket", "boost=lang=en@2.5"),
    ("words", 9, "lang+", "car ticket", "boost=when+@-3 order=done"),
    ("words", 2, "", "car ticket", "group=lang@1 offset=1"), ("both", 3, "", "the ticket", "group=lang@2 order=-day"),
    ("vectors", 9, "", "the ticket", "group=when@1"),
    ("like", 3, "", "d1"), ("like", 5, "lang=en", "d8", "group=day@2"), ("like", 9, "", "d19", "order=-year offset=1"),
]  # fmt: skip


def filter_of(where: str) -> dict[str, object]:
    """NAME=ONE|OTHER, NAME!ONE|OTHER (none of them), NAME>LEAST, NAME<MOST, NAME- (no value), NAME+ (any) as a
    filter."""
    name, sign, text = re.fullmatch(r"(\w*)([=!<>+-]?)(.*)", where).groups()
    value = float(text) if re.fullmatch(r"[0-9.]+", text) else text
    texts = text.split("|")
    return {name: {"=": texts, "!": {"not": texts}, ">": (value, None), "<": (None, value), "-": None,
                   "+": {"not": None}}[sign]} if name else {}  # fmt: skip


def answer(index: Any, mode: str, top: int, where: str, query: str, options: str = "") -> list[Hit]:
    """The hits of one of QUERIES; with the mode "like" those near to a document."""
    arguments = {"where": filter_of(where), **options_of(options)}
    if mode == "like":
        return index.similar(query, top, **arguments).hits
    return index.search(query, top, mode=mode, **arguments).hits


def options_of(text: str) -> dict[str, object]:
    """The options of a query: offset=N, `each` of equal entries, `plain` without operators, order=COLUMN,COLUMN,
    boost=FILTER@NUMBER, group=COLUMN@SIZE."""
    options: dict[str, object] = {}
    for option in text.split():
        name, _, value = option.partition("=")
        where, _, bonus = value.partition("@")
        options |= {
            "offset": lambda number=value: {"offset": int(number)},
            "each": lambda: {"distinct": False},
            "plain": lambda: {"syntax": "plain"},
            "order": lambda columns=value: {"order": columns.split(",")},
            "group": lambda part=(where, bonus): {"group": part[0], "group_size": int(part[1])},
            "boost": lambda part=(where, bonus): {"boost": [[filter_of(part[0]), float(part[1])]]},
        }[name]()
    return options


def shown(hit: Hit) -> str:
    """A hit in the file of answers; spans in code points."""
    spans = ",".join(f"{start}-{end}" for start, end in hit.matches)
    passage = zlib.crc32(hit.passage.encode())
    return f"{hit.id}:{hit.score}:{hit.cosine or 0}:{passage}:{spans}:{hit.count}"


def write_other_model(bundle: Path, target: Path) -> None:
    """The bundle as that of another model: with the same vectors, which an index does not know."""
    shutil.copytree(bundle, target)
    manifest = json.loads((target / "bundle.json").read_text(encoding="utf-8"))
    manifest["model"]["source_sha256"] = "7e" * 32
    (target / "bundle.json").write_text(native_core.seal(manifest), encoding="utf-8")


def write_data(bundle, folder: Path, assets: Path) -> None:
    """An index of the Python package as an asset, and what it answers."""
    with open_index(assets / "desktop.sqlite", bundle) as index:
        index.add(DOCUMENTS)
        lines = []
        for question in QUERIES:
            mode, top, where, query, options = (*question, "")[:5]
            hits = answer(index, *question)
            lines.append("\t".join([mode, str(top), where, query, options, " ".join(map(shown, hits))]))
    folder.mkdir()
    (folder / "answers.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    numbered_documents = [{"id": f"n{row}", "text": f"Number {row} of more texts."} for row in range(300)]
    for name, rows in (("documents", DOCUMENTS), ("more", numbered_documents)):
        cells = [as_document(row, "") for row in rows]
        text = "".join(
            "\t".join([document.id, document.title, document.text.replace("\n", "\\n"), document.metadata]) + "\n"
            for document in cells
        )
        (folder / f"{name}.tsv").write_text(text, encoding="utf-8")
    for name, change, words in (
        ("other-model", "UPDATE facts SET value = 'other' WHERE name IN ('source', 'model')", "made with another tiny"),
        ("broken", "UPDATE blocks SET vectors = zeroblob(length(vectors))", "the vectors of block 1"),
        ("scaled", "UPDATE blocks SET scales = zeroblob(length(scales))", "the vectors of block 1"),
        ("lost", "DELETE FROM passages WHERE document = 1", "parts of documents are missing"),
        ("changed", "DROP TRIGGER kept; UPDATE documents SET metadata = '{}' WHERE key = 'd2'", "document d2"),
        ("no-words", "UPDATE words_data SET block = zeroblob(length(block)) WHERE id > 10", "damaged ("),
        ("words-gone", "DROP TABLE words", "not a search index"),
    ):
        shutil.copyfile(assets / "desktop.sqlite", folder / f"{name}.sqlite")
        with closing(sqlite3.connect(folder / f"{name}.sqlite")) as db:
            db.executescript(change)
        (folder / f"{name}.txt").write_text(words, encoding="utf-8")


def contents(path: Path) -> tuple[list, list, list, list]:
    """What two equal indexes have in common: schema, documents, passages, blocks without vectors."""
    with closing(sqlite3.connect(path)) as db:
        return (
            db.execute(
                "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'words_%' ORDER BY name"
            ).fetchall(),
            db.execute("SELECT id, key, title, text, metadata, crc, form FROM documents").fetchall(),
            db.execute("SELECT id, document, start, end, block, crc FROM passages").fetchall(),
            db.execute("SELECT id, passages, documents FROM blocks").fetchall(),
        )
