"""A recipe that carries the name of a paper's row is that row, or says how it differs; every table has its rows."""

from pathlib import Path

import pytest
import yaml

from msdc.bench.accuracy.paper_tables import TABLES, read_published
from msdc.distill.catalog import listing, load_recipe, read_file, recipe_facts, shipped
from msdc.distill.recipe import TEACHER, model_name
from msdc.distill.sweep import points

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
    common, own = dict(FACTS[name]["facts"]), {}
    for part in chosen.split("+"):
        change = dict(FACTS[name]["parts"][part])
        left_out = change.pop("without", ())
        own |= change
        if left_out:
            own["stages"] = [one for one in own.get("stages", common["stages"]) if one not in left_out]
    stages = own.get("stages", common["stages"])
    wide = {f"stages.{stage}.{k[2:]}": v for k, v in common.items() if k.startswith("*.") for stage in stages}
    common = wide | {k: v for k, v in common.items() if not k.startswith("*.")}
    return tuple(
        {k: v for k, v in facts.items() if not k.startswith("stages.") or k.split(".")[1] in stages}
        for facts in ({k: v for k, v in common.items() if k not in own}, own)
    )


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_the_papers(row, tmp_path):
    name, chosen = row.split(":")
    recipe = load_recipe(row, data=tmp_path)
    facts = recipe_facts(recipe)
    for stage in recipe.stages:
        facts[f"stages.{stage.name}.corpora"] = [c.origin.replace(f"{tmp_path}/", "") for c in recipe.corpora_of(stage)]
    facts["languages"] = len({code for corpus in recipe.corpora for code in corpus.languages})
    file = read_file(name)
    own = [text for part in chosen.split("+") for text in file.variants[part].differs]
    for wanted, differs in zip(expected(name, chosen), (file.tree["differs"], own), strict=True):
        said = {text.partition(":")[0] for text in differs}
        for key, value in wanted.items():
            if facts.get(key) != value:
                excused = said & {key, *key.split(".")[1:], key.removeprefix("stages.")}
                assert excused, f"{key}: {facts.get(key)!r}, the paper has {value!r}"


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
        (found,) = (r for r in rows if r["system"] == entry.get("csv", table.get("prefix", "") + row))
        published = {c: float(found[c]) for c in columns[1:] if found[c].strip()}
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
        file, found = read_file(name), points(f"{name}:small", f"table={number}", data=tmp_path)
        assert len(found) >= least and set(found) <= set(file.tables[number].rows)
        for row, recipe in found.items():
            assert recipe.paper == file.paper_row(row), row
            assert all(one.steps for one in recipe.stages), row
            local = [corpus.path for corpus in recipe.all_corpora]
            assert all(path and path.startswith(str(tmp_path)) for path in local), (row, local)
