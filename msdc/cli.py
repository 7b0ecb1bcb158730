"""The `msdc` command line: subcommands are imported when they are called; every failure is one line."""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, cast

import click

from msdc import __version__
from msdc.errors import MsdcError, did_you_mean, named_shortage, printable
from msdc.extras import named_extras
from msdc.lazy import load
from msdc.progress import print_messages

# subcommand -> (module:attribute, help line). The help lines are here so that `msdc --help` imports no subcommand.
VERBS = {
    "encode": ("msdc.commands.encode:command", "Print or write the vectors of texts."),
    "compare": ("msdc.commands.encode:compare", "Print the similarity of texts."),
    "search": ("msdc.commands.search:command", "Find the lines of a text file closest in meaning to a query."),
    "models": ("msdc.commands.models:command", "List the models of this package: what each is for, and its size."),
    "quickstart": (
        "msdc.bench.cli:quickstart",
        "The whole workflow on the embedded corpus and teacher, in minutes.",
    ),
    "corpus": ("msdc.distill.corpus:command", "Show what training would read from files: languages, rows, examples."),
    "build-data": ("msdc.distill.build_data:command", "Download a recipe's public sources and build its data."),
    "distill": ("msdc.commands.distill:command", "Train a small student from a recipe."),
    "compress": ("msdc.compress.cli:command", "Plan sizes; create, trim or quantize a student."),
    "export": (
        "msdc.export.cli:command",
        "Write the bundle for a target: ExecuTorch, ONNX, tokenizer, golden vectors.",
    ),
    "inspect": ("msdc.export.cli:inspect", "Show what is inside an artifact."),
    "bench": ("msdc.bench.cli:command", "Measure a bundle on a device: latency, memory, parity, accuracy."),
    "evaluate": ("msdc.bench.evaluate_cli:command", "Measure the accuracy of any encoder or bundle."),
    "report": ("msdc.bench.report.cli:command", "Write one page from many results."),
    "doctor": ("msdc.commands.doctor:command", "Check packages, kernels and devices; list what is missing."),
}
# Section of the help page -> its first subcommand.
SECTIONS = {"Use": "encode", "Train": "quickstart", "Ship": "export", "Measure": "bench"}
# The last lines of each help page.
EXAMPLES = {
    "encode": 'msdc encode "Where is the station?"',
    "compare": 'msdc compare msdc-mini "Where is the station?" "Wo ist der Bahnhof?"',
    "search": 'msdc search notes.txt "Where is the car?"',
    "models": "msdc models",
    "quickstart": "msdc quickstart -o first",
    "corpus": "msdc corpus mine.csv",
    "build-data": "msdc build-data msdc-mini -o data --dry-run",
    "distill": "msdc distill quickstart --dry-run",
    "compress": "msdc compress plan --shape xlmr-base --bottleneck 128 --unit 3",
    "export": "msdc export msdc-mini --target linux --runtime onnx -o mini",
    "inspect": "msdc inspect bundle",
    "bench": "msdc bench bundle --runtime onnx --json results.json",
    "evaluate": "msdc evaluate msdc-mini --tasks graded-pairs",
    "report": "msdc report results.json -o report.html",
    "doctor": "msdc doctor",
}


# How to continue an interrupted command.
RESUMED = {
    "distill": ": the same command with --resume continues (a sweep: the same command)",
    "quickstart": ": the same command continues",
}


class LazyVerbs(click.Group):
    """Click group that imports a subcommand's module only when that subcommand is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the help page."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The subcommand of that name, imported now; None for an unknown name."""
        if name not in VERBS:
            return None
        command = cast(click.Command, load(VERBS[name][0]))
        command.epilog = f"\b\nExample:\n  {EXAMPLES[name]}"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest a similar subcommand for an unknown one."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            ctx.fail(f"no such command {args[0]!r}{did_you_mean(args[0], VERBS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing them."""
        names = list(VERBS)
        ends = [*map(names.index, SECTIONS.values()), len(names)]
        for title, start, end in zip(SECTIONS, ends, ends[1:], strict=False):
            with formatter.section(title):
                formatter.write_dl([(name, VERBS[name][1]) for name in names[start:end]])


@click.group(cls=LazyVerbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="msdc")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def msdc(debug: bool) -> None:
    """Multilingual sentence encoders for phones: distill, compress, export, bench."""


def quiet_libraries() -> None:
    """Switch off the progress bars and warnings of libraries, unless the user's environment sets them."""
    # Python children of any library start without the working directory on their path.
    os.environ["PYTHONSAFEPATH"] = "1"

    for name, value in (
        ("HF_HUB_DISABLE_PROGRESS_BARS", "1"),
        ("TRANSFORMERS_VERBOSITY", "error"),
        ("TQDM_DISABLE", "1"),
        ("TOKENIZERS_PARALLELISM", "false"),
    ):
        os.environ.setdefault(name, value)
    for name in ("torchao", "torch.utils._pytree", "torch.distributed"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _keep_quota() -> None:
    """In a container with a quota of processor time, libraries start no more threads than it grants."""
    from msdc.machine import quota_threads

    if (threads := quota_threads()) is not None:
        for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):
            os.environ.setdefault(name, str(threads))


# Signals that were to end this process.
_received = list[int]()


def _end_by_signals() -> None:
    """Turn SIGTERM, and SIGHUP of a closed terminal, into an exception, so that child processes are stopped.

    Otherwise a browser, an emulator or a server would outlive this process.
    """

    def end(number: int, frame: object) -> None:
        _received.append(number)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        signal.signal(number, signal.SIG_IGN)  # a second signal must not interrupt the clean-up
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        return
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # A signal that is ignored (nohup) or has a handler keeps its setting.
        if number is not None and signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, end)


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """End by the signal that was received where its exception became another one, as inside an import of a compiled
    library, or none, as inside a destructor. Commands that go on after Ctrl-C do."""
    del _received[:]
    try:
        yield
    except Exception as error:
        if signal.SIGINT in _received:
            raise KeyboardInterrupt from error
        if not _received:
            raise
    for number in _received:
        if number != signal.SIGINT:
            raise SystemExit(128 + number)


def _write_utf8() -> None:
    """Write redirected output as UTF-8, also on Windows, whose code pages lack most scripts."""
    if "PYTHONIOENCODING" in os.environ:
        return
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper) or stream.isatty():
            continue
        if stream.encoding.lower().replace("-", "") != "utf8":
            stream.reconfigure(encoding="utf-8", errors="backslashreplace" if stream is sys.stderr else "strict")


def with_options(text: str, words: list[str]) -> str:
    """An error's text with its arguments as options of the command in `words`: `` `warmup` `` becomes --warmup.

    Library functions name their arguments, also as `` `exporter="generic"` ``.
    """
    command: click.Command = msdc
    context = click.Context(msdc)
    for word in words:
        if isinstance(command, click.Group) and (inner := command.get_command(context, word)) is not None:
            command = inner
    names = {}
    for param in command.params:
        is_option = isinstance(param, click.Option)
        names[param.name] = max(param.opts, key=len) if is_option else param.make_metavar(context).strip("[].")

    def option(match: re.Match[str]) -> str:
        name, value = match.groups()
        if name not in names:
            return match[0]
        return f"{names[name]}" if value in (None, "True", "False") else f"{names[name]} {value.strip(chr(34))}"

    return re.sub(r"`(\w+)(?:=([^`]+))?`", option, text)


def _one_line(error: BaseException | str) -> str:
    text = " ".join(printable(str(error)).split())
    return text or type(error).__name__


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exit code 0, 1 (an error or a failed gate), 2 (usage or bad input) or 3 (inconclusive)."""
    arguments = sys.argv[1:] if arguments is None else arguments
    # --debug is accepted anywhere on the line, not only before the subcommand.
    debug, words = "--debug" in arguments, [word for word in arguments if word != "--debug"]
    verb = next((word for word in words if word in VERBS), "")
    _end_by_signals()
    print_messages()
    quiet_libraries()
    _keep_quota()
    _write_utf8()
    try:
        with named_extras(called := f"msdc {verb}".strip(), verb), named_shortage(called), _ended_by_signals():
            code: Any = msdc.main(words, prog_name="msdc", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        usage = f" (msdc {verb} -h shows the usage)" if verb and isinstance(error, click.UsageError) else ""
        click.echo(f"error: {_one_line(error.format_message())}{usage}", err=True)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo(f"interrupted{RESUMED.get(verb, '')}", err=True)
        sys.exit(130)
    except MsdcError as error:
        if debug:
            raise
        click.echo(f"error: {_one_line(with_options(str(error), words))}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except BaseException as error:
        # Panics of Rust libraries are not an `Exception`.
        if debug or isinstance(error, SystemExit | GeneratorExit):
            raise
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            # Files have messages of their own (msdc.files), so this is a redirected standard output.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter writes its buffer once more at exit
            click.echo("error: disk full while writing standard output: free some space and run again", err=True)
            sys.exit(1)
        click.echo(f"error: {type(error).__name__}: {_one_line(error)[:300]} (--debug shows the traceback)", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
