"""Options that mean the same for every verb: -o/--output, -q/--quiet; typos; completion in the shells."""

from __future__ import annotations

import sys

import click
import pytest
from click.shell_completion import shell_complete
from click.testing import CliRunner

from msdc import progress
from msdc.cli import msdc as cli

# Neither works long nor remarks on anything.
WITHOUT_REMARKS = {"doctor", "compress plan"}


def leaves(command: click.Command, path: str = "") -> dict[str, click.Command]:
    if not isinstance(command, click.Group):
        return {path: command}
    context = click.Context(command)
    found = {}
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        found |= leaves(child, f"{path} {name}".strip())
    return found


def every_verb() -> dict[str, click.Command]:
    return leaves(cli)


def run(*words: str, code: int = 0, text: str | None = None):
    done = CliRunner().invoke(cli, list(words), input=text)
    assert done.exit_code == code, done.output + repr(done.exception)
    return done


def test_quiet_and_output_are_spelled_the_same():
    writes = set()
    for path, verb in every_verb().items():
        spellings = [option for parameter in verb.params for option in parameter.opts]
        assert ("-q" in spellings and "--quiet" in spellings) == (path not in WITHOUT_REMARKS), path
        assert ("-o" in spellings) == ("--output" in spellings), path
        if "-o" in spellings:
            writes.add(path)
            shown = verb.get_help(click.Context(verb, info_name=path))
            assert "--output" in shown and "--out " not in shown, path
    assert writes == {
        "quickstart", "distill", "build-data", "compress student", "compress vocabulary", "compress code",
        "compress quantize", "export", "bench", "evaluate", "report", "encode",
    }  # fmt: skip


def test_quiet_leaves_results_warnings_and_errors(tmp_path):
    lines = tmp_path / "notes.txt"
    lines.write_text("Das Haus ist rot.\nThe car is blue.\n", encoding="utf-8")
    loud, quiet = run("encode", "hello", "--json"), run("encode", "hello", "--json", "-q")
    assert loud.stderr and not quiet.stderr and loud.stdout == quiet.stdout
    done = run("encode", "-q", "-i", str(lines), "-o", str(tmp_path / "out.npy"))
    assert not done.output and (tmp_path / "out.npy").is_file()
    index = ["--index", str(tmp_path / "index")]
    assert "2 lines" in run("search", str(lines), "auto", *index).stderr
    found = run("search", "--quiet", str(lines), "auto", *index)
    assert not found.stderr and "The car is blue." in found.stdout
    (tmp_path / "index" / "keys.u64").write_bytes(b"damaged")
    assert "is damaged" in run("search", "-q", str(lines), "auto", *index).stderr
    # It holds for one command.
    assert run("encode", "hello", "--json").stderr == loud.stderr


def test_quiet_silences_bars_and_lines(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    progress.be_quiet(True)
    try:
        assert not progress.in_terminal() and list(progress.track([1, 2], "label")) == [1, 2]
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


def test_completion_of_verbs_and_options(monkeypatch, capsys):
    for line, wanted in (("msdc enc", "encode"), ("msdc export --targ", "--target"), ("msdc compress qu", "quantize")):
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
        assert shell_complete(cli, {}, "msdc", "_MSDC_COMPLETE", "bash_complete") == 0
        assert wanted in capsys.readouterr().out.replace(",", "\n").split(), line
