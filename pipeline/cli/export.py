"""Placeholder of a command that is being written."""

from __future__ import annotations

import click


@click.command()
def export() -> None:
    """Not written yet."""
    raise click.ClickException("not written yet")
