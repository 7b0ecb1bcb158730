"""`msdc bench emulator create`: make the emulated phone's disk image now instead of at the first run."""

from __future__ import annotations

import click


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """The emulated phone of `--device emulator`."""


@command.command()
@click.option("--force", is_flag=True, help="Make it again from the mirror's current packages.")
def create(force: bool) -> None:
    """Put the disk image together from Debian packages (60 MB, ten seconds) and print where it is."""
    from bench.devices.emulator_image import create_image

    click.echo(create_image(force=force).root.parent)
