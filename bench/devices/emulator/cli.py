"""`msdc bench emulator create`: create the emulated phone once; later runs boot it."""

from __future__ import annotations

import click

from msdc.commands import quiet_option


@click.group()
def command() -> None:
    """The emulated phone: a small arm64 Debian with a real adbd, run by qemu."""


@command.command()
@click.option("--force", is_flag=True, help="Create it again where it exists.")
@quiet_option
def create(force: bool) -> None:
    """Create the image in the user's cache from Debian's packages (tens of seconds, about 60 MB)."""
    from msdc.bench.devices.emulator.image import create_image

    click.echo(str(create_image(force=force).root.parent))
