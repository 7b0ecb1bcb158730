"""The front of `msdc compress`: help without torch, one-line errors, exit codes, as a user sees them."""

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
