"""The options of every verb, frozen: a change of the command line is a change of `command_line.json`.

`make generated` writes the file; read the difference before committing it.
"""

import inspect
import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml
from click.shell_completion import shell_complete
from click.testing import CliRunner
from generated import check_generated
from programs import python

from msdc import compress, progress
from msdc.cli import VERBS, main, msdc, with_options
from msdc.files import user_cache

FROZEN = Path(__file__).with_name("command_line.json")


def _parameter(parameter: click.Parameter) -> str:
    """What a script that calls `msdc` depends on, as one line; help texts and defaults are free to change."""
    spellings = sorted([*parameter.opts, *parameter.secondary_opts])
    words = ["ARGUMENT"] if isinstance(parameter, click.Argument) else spellings
    words = [*words, f"({parameter.type.name})"]
    choices = getattr(parameter.type, "choices", None)
    words += ["|".join(map(str, choices))] if choices else []
    words += [name for name in ("required", "multiple", "is_flag") if getattr(parameter, name, False)]
    return " ".join(words + (["many"] if parameter.nargs != 1 else []))


def commands(command: click.Command = msdc, path: str = "msdc") -> dict[str, click.Command]:
    """Every command by its path."""
    by_path, context = {path: command}, click.Context(command)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            by_path |= commands(command.get_command(context, name), f"{path} {name}")
    return by_path


def test_the_options_are_the_frozen_ones():
    options = {path: sorted(map(_parameter, command.params)) for path, command in commands().items()}
    check_generated(FROZEN, json.dumps(options, indent=1, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("verb", ["vocabulary", "student", "code", "quantize"])
def test_stated_defaults_are_the_functions(verb):
    """`VerbCommand` derives the others; these functions load torch."""
    function = getattr(compress, {"vocabulary": "trim", "student": "cut_student", "code": "code_table"}.get(verb, verb))
    options = {option.name: option for option in commands()[f"msdc compress {verb}"].params}
    for name, argument in inspect.signature(function).parameters.items():
        if argument.default not in (None, inspect.Parameter.empty, (), False):
            assert options[name].default == argument.default, name


def test_defaults_are_derived_from_the_function():
    bench = commands()["msdc bench"]
    bench.make_context("bench", [])
    options = {option.name: option for option in bench.params}
    assert (options["runs"].default, options["timeout_s"].default) == (100, 900.0)
    assert "[default: host]" in CliRunner().invoke(bench, ["--help"]).output


# Both are short and print no remarks.
WITHOUT_REMARKS = {"msdc doctor", "msdc models", "msdc compress plan"}


def run(*words: str, code: int = 0, text: str | None = None):
    done = CliRunner().invoke(msdc, list(words), input=text)
    assert done.exit_code == code, done.output + repr(done.exception)
    return done


def test_quiet_and_output_are_spelled_the_same():
    writes = set()
    for path, verb in commands().items():
        if isinstance(verb, click.Group):
            continue
        spellings = [option for parameter in verb.params for option in parameter.opts]
        assert ("-q" in spellings and "--quiet" in spellings) == (path not in WITHOUT_REMARKS), path
        assert ("-o" in spellings) == ("--output" in spellings), path
        if "-o" in spellings:
            writes.add(path)
            shown = verb.get_help(click.Context(verb, info_name=path))
            assert "--output" in shown and "--out " not in shown, path
    assert {path.removeprefix("msdc ") for path in writes} == {
        "quickstart", "distill", "build-data", "compress student", "compress vocabulary", "compress code",
        "compress quantize", "compress centre", "export", "bench", "evaluate", "report", "encode",
    }  # fmt: skip


def test_quiet_leaves_results_warnings_and_errors(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lines = tmp_path / "notes.txt"
    lines.write_text("Das Haus ist rot.\nThe car is blue.\n", encoding="utf-8")
    loud, quiet = run("encode", "hello", "--json"), run("encode", "hello", "--json", "-q")
    assert loud.stderr
    assert not quiet.stderr
    assert loud.stdout == quiet.stdout
    done = run("encode", "-q", "-i", str(lines), "-o", str(tmp_path / "out.npy"))
    assert not done.output
    assert (tmp_path / "out.npy").is_file()
    assert "2 entries" in run("search", str(lines), "auto").stderr
    outcome = run("search", "--quiet", str(lines), "auto")
    assert not outcome.stderr
    assert "The car is blue." in outcome.stdout
    (cache_file,) = user_cache().rglob("passages-*.sqlite")
    with sqlite3.connect(cache_file) as database:
        database.execute("UPDATE vectors SET crc = 0")
    database.close()
    assert "computed again" in run("search", "-q", str(lines), "auto").stderr
    # It holds for one command.
    assert run("encode", "hello", "--json").stderr == loud.stderr


def test_quiet_silences_bars_and_lines(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    progress.be_quiet(True)
    try:
        assert not progress.in_terminal()
        assert list(progress.track([1, 2], "label")) == [1, 2]
        progress.say("a remark")
        progress.warn("a warning")
    finally:
        progress.be_quiet(False)
    assert capsys.readouterr().err == "a warning\n"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["exprot", "msdc-mini"], "did you mean 'export'"),
        (["export", "msdc-mini", "--tagret", "linux"], "--target"),
        (["compress", "vocabulray", "msdc-mini"], "vocabulary"),
    ],
)
def test_typos_get_what_they_resemble(words, hint):
    assert hint in run(*words, code=2).output


def test_published_shapes_are_listed():
    shown = run("compress", "plan").stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "xlmr-base         250,002     768      12         277.5" in shown
    assert {entry["shape"] for entry in json.loads(run("compress", "plan", "--json").stdout)} >= {"minilm", "labse"}


def test_completion_of_verbs_and_options(monkeypatch, capsys):
    for line, completion in (
        ("msdc enc", "encode"),
        ("msdc export --targ", "--target"),
        ("msdc compress qu", "quantize"),
    ):
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
        assert shell_complete(msdc, {}, "msdc", "_MSDC_COMPLETE", "bash_complete") == 0
        assert completion in capsys.readouterr().out.replace(",", "\n").split(), line


@pytest.fixture
def fails(capsys):
    """Standard error of a command that ends with code 2 and without a traceback."""

    def call(*words: object) -> str:
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, shown = capsys.readouterr()
        assert ended.value.code == 2 and "Traceback" not in shown and not out, shown
        return shown

    return call


def one_error_line(shown: str) -> str:
    (line,) = [line for line in shown.splitlines() if line.startswith("error:")]
    return line


def test_help_of_every_verb_imports_no_torch():
    code = f"""
import sys, msdc.cli
for words in [[], *([verb] for verb in {list(VERBS)!r})]:
    try:
        msdc.cli.main([*words, "--help"])
    except SystemExit as ended:
        assert ended.code == 0, words
    assert "torch" not in sys.modules, words
"""
    shown = python(code)
    assert shown.count("Usage: msdc") == 1 + len(VERBS)
    assert all(verb in shown for verb in VERBS)


@pytest.mark.parametrize(("verb", "expected"), [("distill", "--resume continues"), ("encode", "interrupted\n")])
def test_an_interrupted_command_says_how_to_continue(verb, expected, monkeypatch, capsys):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(msdc, "main", stop)
    with pytest.raises(SystemExit) as ended:
        main([verb])
    assert ended.value.code == 130
    assert expected in capsys.readouterr().err


def test_a_process_ends_with_one_line_and_its_code(tmp_path):
    command = [sys.executable, "-m", "msdc.cli", "encode", str(tmp_path), "x"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and "not a model folder" in one_error_line(done.stderr), done.stderr


def test_names_and_files_that_are_no_model(fails, tiny_teacher, tmp_path):
    assert "no such model folder" in one_error_line(fails("encode", tmp_path / "none", "x"))
    folder = tmp_path / "model"
    shutil.copytree(tiny_teacher, folder)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-64])
    assert "damaged or not a safetensors file" in one_error_line(fails("encode", folder, "x"))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("distill", "RECIPE"),
        ("nonsense", "nonsense"),
        ("export", "Missing option"),
        ("export x --target toaster", "toaster"),
        ("export x --target web --precision int3", "int3"),
        # Refused before the model is loaded.
        ("export no-such-model --target linux -o .", "--force"),
        ("compress plan --budget 9MB", "error: pass either MODEL or --shape"),
        ("compress plan --shape huge", "error: shape 'huge' is unknown"),
        ("compress plan --shape minilm --unit 0", "error: --unit 0: must be at least 1"),
        ("compress plan --shape minilm --budget 1KB", "error: no student of this model fits 1000 bytes"),
        ("compress student ./nowhere -o out", "error: ./nowhere: no such model folder"),
        ("compress quantize", "Missing option '-o'"),
        ("compress vocabulary x", "Missing option '-o'"),
        ("compare msdc-mini one", "needs at least two texts"),
        ("encode a -o vectors.txt", "written as .npy"),
        ("encode ./file x", "./file: a file, not a model folder"),
        ("evaluate msdc-mini --tasks sts", "its sets: sts17, stsb"),
        ("evaluate msdc-mini --tasks sts71", "did you mean 'sts17'"),
    ],
)
def test_usage_errors(fails, line, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    shown = fails(*line.split())
    rows = [row for row in shown.splitlines() if not row.startswith("model: ")]
    assert expected in shown
    assert len(rows) == 1
    assert rows[0].startswith("error: ")


@pytest.mark.parametrize(
    ("command", "error", "shown"),
    [
        ("bench x", "`warmup` 0: must be at least 1", "--warmup 0: must be at least 1"),
        ("search notes.txt x", "`top` and `model`", "--top and --model"),  # not -k and -m
        ("export x", 'pass `exporter="generic"` and `core_ml`', "pass --exporter generic and --core-ml"),
        ("export x", "`gates=False` writes it", "--no-gates writes it"),
        ("compress plan", "`model` or `repeats`", "MODEL or --repeats"),
        ("encode x", "`elsewhere` stays", "`elsewhere` stays"),
        ("", "`warmup`", "`warmup`"),
    ],
)
def test_arguments_in_errors_are_shown_as_options(command, error, shown):
    assert with_options(error, command.split()) == shown


def test_empty_and_one_column_corpora_and_unknown_keys(fails, tmp_path, tiny_tree):
    corpus, recipe = tmp_path / "set.en-de.tsv", tmp_path / "r.yaml"
    tree = tiny_tree | {"corpora": [{"path": str(corpus)}]}
    for text, extra_keys, expected in (
        ("", {}, "no usable sentence"),
        ("one column\nand no more\n", {}, "line 1: 1 columns, expected 2"),
        ("", {"colour": "red"}, "unknown key 'colour'"),
    ):
        corpus.write_text(text)
        recipe.write_text(yaml.safe_dump(tree | extra_keys))
        assert expected in one_error_line(fails("distill", recipe, "-o", tmp_path / "run"))
        assert not (tmp_path / "run").exists()  # checked before any work
