"""`toggles` and `presets`: what there is to choose from. Light: torch is not imported."""

from __future__ import annotations

import json

import click

from flashprof.contracts.toggles import toggles_to_json
from pipeline.presets import PRESETS
from pipeline.toggles import REGISTRY


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def toggles(*, as_json: bool) -> None:
    """List the toggles."""
    if as_json:
        click.echo(json.dumps(toggles_to_json(REGISTRY)))
        return
    for toggle in REGISTRY:
        kind = "hot" if toggle.hot else "cold"
        click.echo(f"{toggle.name:14} {kind:4} {toggle.allowed:8} default {toggle.default!s:6} {toggle.help}")


@click.command()
def presets() -> None:
    """List the presets."""
    for preset in PRESETS.values():
        click.echo(f"{preset.name:17}{preset.summary}")
