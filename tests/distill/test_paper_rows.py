"""A recipe that carries the name of a paper's row is that row, or says how it differs; every table has its rows."""

import re
from collections.abc import Iterable
from inspect import signature
from pathlib import Path

import pytest
import yaml

from msdc.bench.accuracy.paper_tables import TABLES, read_published
from msdc.distill.catalog import listing, load_recipe, read_file, recipe_facts, shipped
from msdc.distill.objectives.registry import find_objective
from msdc.distill.recipe import TEACHER, Corpus, Recipe, StudentShape, model_name
from msdc.distill.sweep import points
from msdc.distill.tasks.sentence import BANK_SIZE

HERE = Path(__file__).parent
FACTS = yaml.safe_load((HERE / "paper_facts.yaml").read_text(encoding="utf-8"))
WHY = FACTS.pop("why")
NAMES = yaml.safe_load((HERE / "names.yaml").read_text(encoding="utf-8"))
PRINTED = [  # paper, number of the table, the table, its row
    (paper, number, table, row)
    for paper, facts in FACTS.items() for number, table in facts.get("tables", {}).items() for row in table["rows"]
]  # fmt: skip


def models_of(table: dict, row: str) -> dict[str, dict[str, str]]:
    """The recipes that make a row, each with the cells of its columns."""
    entry = table["rows"][row]
    return entry.get("models") or ({entry["recipe"]: table.get("shown", {})} if "recipe" in entry else {})


ROWS = sorted({name for _, _, table, row in PRINTED for name in models_of(table, row)})


def expected(name: str, chosen: str) -> tuple[dict, dict]:
    """The paper's facts of all rows and those of this one's parts; `*.KEY` is that key in every stage."""
    common, specific = dict(FACTS[name]["facts"]), {}
    for part in chosen.split("+"):
        change = dict(FACTS[name]["parts"][part])
        left_out = change.pop("without", ())
        specific |= change
        if left_out:
            specific["stages"] = [stage for stage in specific.get("stages", common["stages"]) if stage not in left_out]
    stages = specific.get("stages", common["stages"])
    wide = {f"stages.{stage}.{k[2:]}": v for k, v in common.items() if k.startswith("*.") for stage in stages}
    common = wide | {k: v for k, v in common.items() if not k.startswith("*.")}
    return tuple(
        {k: v for k, v in facts.items() if not k.startswith("stages.") or k.split(".")[1] in stages}
        for facts in ({k: v for k, v in common.items() if k not in specific}, specific)
    )


# Settings that change no result of a row, with the values that leave a mechanism of this library unused.
UNUSED = {"source_share": 1.0, "start": "keep", "sample": 1.0, "weight": 1.0, "train": "student"}
READING = {"kind", "source", "languages", "on_bad", "most_bad", "columns", "header", "scale", "subset", "tokenized"}
OF_A_RUN = {
    "precision",
    "seed",
    "cache",
    "stock_twin",
    "min_pairs_per_language",
}  # heldout.min_pairs_per_language: of little text only


def settings(recipe: Recipe) -> dict[str, object]:
    """All that a resolved recipe sets, defaults too, in the names of `recipe_facts` and of the recipe's own keys."""
    facts = recipe_facts(recipe)
    parts = {"": recipe.model_dump(include={"sample", "exclude", *OF_A_RUN})} | {
        "heldout.": recipe.heldout.model_dump()
    }
    if isinstance(recipe.student, StudentShape):
        no_place = {"scratch"} if recipe.student.bottleneck else {"scratch", "place"}
        parts["student."] = recipe.student.model_dump(exclude=no_place)
    for plan in recipe.plans:
        stage, corpora = plan.stage, plan.corpora
        prefix = f"stages.{stage.name}."
        # A stage's warm-up and objective are in its facts; options that it leaves to the objective are not.
        parts[prefix] = stage.model_dump(exclude={"name", "objective", "warmup_ratio", "warmup_steps"})
        facts[f"{prefix}evaluate_every"] = stage.evaluate_every or "four times per stage"
        for key in Corpus.model_fields.keys() - {"name", "path", "files", "hub", "opus", "manual_download", "join"}:
            values = list(dict.fromkeys(getattr(corpus, key) for corpus in corpora))
            parts[prefix].setdefault(key, values[0] if len(values) == 1 else values)
        for use in stage.objective:
            objective = find_objective(use.name)
            defaults = {key: parameter.default for key, parameter in signature(objective.function).parameters.items()}
            options = {option: defaults[option] for option in objective.options}
            options |= {"bank": BANK_SIZE} if "bank_KD" in objective.inputs else {}
            parts[f"{prefix}{use.name}."] = {key: value for key, value in options.items() if key not in use.options}
        if len({code for corpus in corpora for code in corpus.languages}) < 2 and stage.balance != "sources":
            facts.pop(f"{prefix}balance", None)  # shares of languages: there is one
            parts[prefix].pop("balance")
        facts[f"{prefix}corpora"] = [corpus.origin for corpus in corpora]
    for prefix, part in parts.items():
        facts |= {f"{prefix}{key}": value for key, value in part.items() if f"{prefix}{key}" not in facts}
    return facts | {"languages": len({code for corpus in recipe.corpora for code in corpus.languages})}


def departures(label: str, recipe: Recipe) -> dict[str, tuple[object, object]]:
    """The settings of a row that are not the paper's, each with the recipe's value and the paper's.

    What the paper does not state is a departure too, unless it changes no result.
    """
    common, specific = expected(*label.split(":"))
    facts, actual = common | specific, settings(recipe)
    # A fact about an option is one of the stages whose objective has it.
    facts = {key: value for key, value in facts.items() if key in actual or key.count(".") < 3}
    away = {key: (actual.get(key), value) for key, value in facts.items() if actual.get(key) != value}
    covered = {*facts, "student", "languages", *([] if any(stage.teacher for stage in recipe.stages) else ["teacher"])}
    for key, value in actual.items():
        last = key.rpartition(".")[2]
        used = value not in (None, False, 0, "", (), [], {}) and value != UNUSED.get(last)
        used = used and (last != "limit" or any(value))
        if used and key not in covered and last not in READING | OF_A_RUN:
            away[key] = (value, "not named")
    return away


def declared(texts: Iterable[str]) -> dict[str, str]:
    """Entries of `differs:`, `WHAT, WHAT: why`, by each setting that they are about."""
    return {name: text for text in texts for name in text.partition(":")[0].split(", ")}


def states(text: str, value: object) -> bool:
    """Whether an entry states the number, or all numbers, that a setting has."""
    values = set(value) - {None} if isinstance(value, list) else {value}
    forms = [
        (f"{number:g}", str(number), f"{number:,}", f"{100 * number:g} %")
        for number in values
        if type(number) in (int, float) and number
    ]
    return all(any(re.search(rf"(?<![\d.,]){form}(?!\d|[.,]\d)", text) for form in spellings) for spellings in forms)


def judge(label: str, recipe: Recipe) -> tuple[dict[str, str], set[str]]:
    """The departures that nothing declares, and the names of those that are declared.

    A departure from what a variant of the paper's is has to be declared by the variant.
    """
    name, chosen = label.split(":")
    file, undeclared, used = read_file(name), {}, set()
    of_all, of_variant = declared(file.tree["differs"]), expected(name, chosen)[1]
    of_chosen = declared(text for part in chosen.split("+") for text in file.variants[part].differs)
    for key, (ours, paper) in departures(label, recipe).items():
        declarations = of_chosen if key in of_variant else of_all | of_chosen
        last = key.rpartition(".")[2]
        # The whole key, with or without `stages.`, or a part below its first, such as the stage.
        names = declarations.keys() & {key, *key.split(".")[1:], key.removeprefix("stages.")}
        if not names or (last in names and not states(declarations[last], ours)):
            undeclared[key] = f"{ours!r}, the paper has {paper!r}"
        used |= names
    return undeclared, used


def resolved(label: str, folder: Path, overrides: tuple[str, ...] = ()) -> Recipe:
    """A row, with paths relative to the data folder."""
    text = load_recipe(label, overrides, folder).model_dump_json()
    return Recipe.model_validate_json(text.replace(f"{folder}/", ""))


@pytest.mark.parametrize("name", sorted({row.split(":")[0] for row in ROWS}))
def test_the_rows_are_the_papers(name, tmp_path):
    """A departure from the paper's row is declared with its number, and nothing else is declared."""
    file, needed = read_file(name), set()
    for row in (row for row in ROWS if row.startswith(f"{name}:")):
        undeclared, used = judge(row, resolved(row, tmp_path))
        assert not undeclared, row
        needed |= used
    assert needed == declared([*file.tree["differs"], *(t for v in file.variants.values() for t in v.differs)]).keys()


@pytest.mark.parametrize("change", [
    "stages.contrast.mined_negatives=3", "corpora.TED2020.max_characters=99", "stages.contrast.freeze=[embedding]",
    "stages.train-student.table_learning_rate=0.01", "student.dropout=0.2", "heldout.graded=[a.tsv]",
    "stages.contrast.clip=2.0", "corpora.WikiMatrix.limit=200000", "sample=0.5",
    "stages.contrast.objective=[{name: multilingual_contrastive, options: {labels: soft}}, multilingual_mse]",
])  # fmt: skip
def test_a_changed_setting_is_not_declared(change, tmp_path):
    assert judge("msd:ours", resolved("msd:ours", tmp_path, (change,)))[0]


@pytest.mark.parametrize(("paper", "number", "table", "row"), PRINTED, ids=[f"{p}:{n}:{r}" for p, n, _, r in PRINTED])
def test_the_figures_of_a_row_are_the_papers(paper, number, table, row):
    entry = table["rows"][row]
    cells = dict(zip(table.get("columns", ()), entry.get("cells", ()), strict=bool(entry.get("cells"))))
    assert models_of(table, row) or entry["why"] in WHY, "neither a recipe nor a reason"
    for model, shown in models_of(table, row).items():
        name, chosen = model.split(":")
        of_recipe = read_file(name).tables[number if name == paper else f"{paper}-{number}"]
        figures = dict(zip(of_recipe.columns, of_recipe.rows[chosen], strict=False))
        figures = {column: figure for column, figure in figures.items() if figure is not None}
        assert figures == {column: cells[cell] for column, cell in shown.items() if cells.get(cell) is not None}
        paper_row = read_file(name).paper_row(chosen)
        assert figures.items() <= paper_row.items(), "another table has another figure of this row"
    if "csv" in table:
        _, columns, rows = read_published(table["csv"])
        (printed,) = (r for r in rows if r["system"] == entry.get("csv", table.get("prefix", "") + row))
        published = {c: float(printed[c]) for c in columns[1:] if printed[c].strip()}
        assert {c: published.get(c) for c in cells if c in columns} == {c: v for c, v in cells.items() if c in columns}


def test_every_table_of_a_recipe_and_every_published_row_is_a_papers():
    printed = {(model, paper, number) for paper, number, table, row in PRINTED for model in models_of(table, row)}
    for name in shipped():
        for number, table in read_file(name).tables.items():
            paper, _, of = number.rpartition("-") if number[:3] in ("mkd", "msd") else (name, "", number)
            assert of in FACTS[paper]["tables"], (name, number)
            for row in table.rows:
                assert (f"{name}:{row}", paper, of) in printed, (name, number, row)
    for name, facts in FACTS.items():
        assert set(facts.get("tables", ())) <= set(read_file(name).tables), name
    shown = {
        (table["csv"], table["rows"][row].get("csv", table.get("prefix", "") + row))
        for _, _, table, row in PRINTED if "csv" in table
    }  # fmt: skip
    for file, *_ in TABLES:
        assert {(file, row["system"]) for row in read_published(file)[2]} <= shown


def test_a_test_set_is_no_training_text(tmp_path):
    """Where Tatoeba or Europarl is the test, no stage of the row reads it."""
    for label in ROWS:
        recipe = recipe_facts(load_recipe(label, data=tmp_path))
        read = [name for key, names in recipe.items() if key.endswith(".corpora") for name in names]
        kept_out = {"lightweight": "Europarl", "mkd": "Tatoeba" if "no-tatoeba" in label else "none"}
        assert read, label
        assert not any(name.startswith(kept_out.get(label.split(":")[0], "none")) for name in read), label
    assert any(name.startswith("Tatoeba") for name in recipe_facts(load_recipe("mkd"))["stages.train.corpora"])


def test_names_of_corpora_and_models_are_known(tmp_path):
    """A misspelled OPUS or hub name is found here, not after hours of downloads."""
    for label in (row["name"] for name in shipped() for row in listing(name)):
        recipe = load_recipe(label, data=tmp_path)
        for corpus in recipe.all_corpora:
            if corpus.opus is not None and not label.endswith((":de", ":ar")):  # of one language, no set is chosen yet
                assert set(corpus.languages) <= set(NAMES["opus"].get(corpus.opus, ())), (label, corpus.opus)
            assert corpus.hub is None or corpus.hub in NAMES["hub"], (label, corpus.hub)
        for model in (recipe.teacher, recipe.assistant, recipe.student):
            if (isinstance(model, str) and model != TEACHER) or hasattr(model, "model"):
                assert model_name(model) in NAMES["models"], (label, model)


def test_tables_at_small_size_resolve(tmp_path):
    """A sweep of a table at small size has the rows that fit it, with the paper's figures."""
    for name, number, least in (
        ("msd", "8", 4),
        ("lightweight", "6", 5),
        ("lightweight", "5", 9),
        ("distilcse", "2", 9),
    ):
        file, recipes = read_file(name), points(f"{name}:small", f"table={number}", data=tmp_path)
        assert len(recipes) >= least
        assert set(recipes) <= set(file.tables[number].rows)
        for row, recipe in recipes.items():
            assert recipe.paper == file.paper_row(row), row
            assert all(stage.steps for stage in recipe.stages), row
            local = [corpus.path for corpus in recipe.all_corpora]
            assert all(path and path.startswith(str(tmp_path)) for path in local), (row, local)
