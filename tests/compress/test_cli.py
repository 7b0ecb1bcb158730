"""The front of `msdc compress`: help without torch, one-line errors, exit codes, as a user sees them."""

import subprocess
import sys

import pytest


def msdc(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "msdc.cli", "compress", *arguments], capture_output=True, text=True, timeout=300
    )


def test_help_imports_no_torch():
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom msdc.compress.cli import command\n"
        "for name in ('plan', 'student', 'vocabulary', 'quantize'):\n"
        "    assert CliRunner().invoke(command, [name, '--help']).exit_code == 0\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("plan", "--shape", "huge"), 2, "error: shape 'huge' is unknown"),
        (("plan", "--shape", "minilm", "--unit", "0"), 2, "error: --unit 0: must be at least 1"),
        (("plan", "--shape", "minilm", "--budget", "1KB"), 2, "error: no student of this model fits 1000 bytes"),
        (("student", "./nowhere", "-o", "out"), 2, "error: ./nowhere: no such model folder"),
        (("quantize",), 2, "Missing option '-o'"),
        (("vocabulary", "x"), 2, "Missing option '-o'"),
    ],
)
def test_errors_are_one_line(arguments, code, said):
    done = msdc(*arguments)
    assert done.returncode == code and said in done.stderr
    assert "Traceback" not in done.stderr and not done.stdout
    errors = [line for line in done.stderr.splitlines() if line.lower().startswith("error")]
    assert len(errors) == 1
