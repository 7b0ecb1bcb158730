"""The front of `msdc compress`: help without torch, one-line errors, exit codes, as a user sees them."""

import subprocess
import sys

import pytest

from msdc.cli import main


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("plan", "--shape", "huge"), 2, "error: shape 'huge' is unknown"),
        (("plan", "--shape", "minilm", "--unit", "0"), 2, "error: --unit 0: must be at least 1"),
        (("plan", "--shape", "minilm", "--budget", "1KB"), 2, "error: no student of this model fits 1000 bytes"),
        (("student", "./nowhere", "-o", "out"), 2, "error: ./nowhere: no such model folder"),
        (("plan",), 2, "error: expected either MODEL or --shape NAME"),
        (("quantize",), 2, "Missing option '-o'"),
        (("vocabulary", "x"), 2, "Missing option '-o'"),
    ],
)
def test_errors_are_one_line(arguments, code, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["compress", *arguments])
    shown = capsys.readouterr()
    assert ended.value.code == code and said in shown.err and not shown.out
    assert sum(line.lower().startswith("error") for line in shown.err.splitlines()) == 1


def test_front_door_is_the_command_line():
    """Every verb of `msdc compress` is a documented function, found without loading torch."""
    code = (
        "import sys, msdc.compress as c\n"
        "assert 'torch' not in sys.modules and 'pydantic' not in sys.modules\n"
        "assert all('msdc.compress import' in getattr(c, name).__doc__ for name in c.__all__)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
