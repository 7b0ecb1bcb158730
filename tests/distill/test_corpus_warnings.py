"""`msdc corpus` warns of columns in another language, and of graded pairs of a recipe inside its text."""

import yaml
from click.testing import CliRunner

from msdc.distill.corpus import command, describe_corpus
from msdc.text.quickstart import PARALLEL


def test_swapped_columns(tmp_path):
    (part,) = describe_corpus(str(PARALLEL), {"columns": (2, 1), "languages": ("de",)})
    assert [line.split(" texts read as ")[1][:16] for line in part.warnings] == ["en look like de:", "de look like en:"]
    (right,) = describe_corpus(str(PARALLEL), {"columns": (1, 2), "languages": ("de",)})
    assert right.warnings == []
    shown = CliRunner().invoke(command, [str(PARALLEL), "--columns", "2,1", "--languages", "de"]).stdout
    assert "  warning: 34" in shown


def test_report_pairs_inside_the_text_of_a_recipe(tmp_path):
    (tmp_path / "text.tsv").write_text("".join(f"A cat {n}.\tEine Katze {n}.\n" for n in range(30)))
    (tmp_path / "sts.tsv").write_text("".join(f"{n % 6}\tA cat {n}.\tA dog {n}.\n" for n in range(20, 40)))
    tree = {
        "name": "r", "corpora": [{"path": "text.tsv", "languages": ["de"]}], "report": ["sts.tsv"],
        "stages": [{"name": "s", "objective": "multilingual_mse"}],
    }  # fmt: skip
    file = tmp_path / "r.yaml"
    file.write_text(yaml.safe_dump(tree))
    (part,) = describe_corpus(str(file), {})
    assert any(line.startswith("graded file sts: 10 of its 20 pairs have a sentence") for line in part.warnings)
