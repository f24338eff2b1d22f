"""The templates of the page, filled in with everything escaped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashprof.report import figures
from flashprof.report.site_text import clip

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def environment() -> Environment:
    """Templates beside this file; what is not there is an error, not an empty text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("flashprof.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(percent=figures.percent, seconds=figures.seconds, clip=clip, code=code)
    return made


def code(sentence: str) -> Markup:
    """What a sentence has between backquotes as code; everything escaped."""
    from markupsafe import Markup

    pieces = [
        Markup("<code>{}</code>" if place % 2 else "{}").format(piece)  # noqa: S704 (constants)
        for place, piece in enumerate(sentence.split("`"))
    ]
    return Markup("").join(pieces)
