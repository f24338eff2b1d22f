"""
A gate for GitHub Actions: annotations on lines of the code, outputs of the step, and text that holds no commands.

Formats: https://docs.github.com/actions/reference/workflow-commands-for-github-actions; limits: 10 errors and 10
warnings a step are shown, the rest is dropped in silence.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from flashprof.contracts.comparison import Verdict
from flashprof.contracts.gate import GateResult, MetricVerdict
from flashprof.contracts.localisation import FrameChange
from flashprof.report import figures
from flashprof.report import gate_sentences as sentences
from flashprof.report.gate_sentences import Ending
from flashprof.report.gate_sources import Place, Sources
from flashprof.report.gate_text import plain, printable
from flashprof.report.site_text import clip

MOST_OF_A_KIND = 10
MAX_FRAMES = 3
MAX_FAILURES = 4
MAX_TITLE = 200
"""GitHub takes 255 characters."""
MAX_MESSAGE = 4_000
MAX_OUTPUT = 100_000
"""Characters of one value; GitHub takes 1 MiB for all of a job."""
WORDS = MappingProxyType({Ending.FAILED: "failed"})
"""A word that a workflow's `if:` can be written with."""


class Kind(StrEnum):
    """How loud an annotation is."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """A message, on a line of the code where one is known."""

    kind: Kind
    title: str
    message: str
    place: Place | None = None


def annotation_lines(result: GateResult, sources: Sources, *, inconclusive: str | None = None) -> tuple[str, ...]:
    """
    The verdict on the culprit's line, then what else is wrong. None for a gate that passed.

    For stdout or stderr: the runner reads commands from both (actions/runner, Worker/Handlers/ScriptHandler.cs).

    Args:
        result: What was found; anything may be missing.
        sources: Which frames are lines of this repository.
        inconclusive: `fail` makes an open answer an error, as it makes the status 1; it is a warning else.
    """
    found = list(_annotations(result, sources, inconclusive))
    lines: list[str] = []
    for kind in Kind:
        alike = [item for item in found if item.kind is kind]
        if len(alike) > MOST_OF_A_KIND:
            rest = len(alike) - MOST_OF_A_KIND + 1
            more = Annotation(kind=kind, title="flashprof gate", message=f"and {rest} more, in the gate's report")
            alike = [*alike[: MOST_OF_A_KIND - 1], more]
        lines += [_line(item) for item in alike]
    return tuple(lines)


def command(name: str, message: str, properties: Mapping[str, str]) -> str:
    """One workflow command; empty properties are left out."""
    told = ",".join(f"{key}={escape_property(value)}" for key, value in properties.items() if value)
    return f"::{name}{f' {told}' if told else ''}::{escape_data(message)}"


def escape_data(text: str) -> str:
    """A message on one line, so that nothing in it begins another command."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_property(text: str) -> str:
    """The same between commas and colons."""
    return escape_data(text).replace(":", "%3A").replace(",", "%2C")


def without_commands(text: str, token: str) -> str:
    """
    Text for stdout in which the runner looks for no commands: a note of a run may begin with `::add-mask::`.

    Args:
        text: What is printed.
        token: Random, or else the text could hold the line that ends it.
    """
    ends = _unlike(token, text)
    return f"::stop-commands::{ends}\n{text.rstrip()}\n::{ends}::\n"


def without_old_commands(json_text: str) -> str:
    """
    The same JSON, in which the runner finds no command.

    Its lines begin with no `::`, but `##[add-mask]…`, the older form, is one anywhere in a line.
    """
    return json_text.replace("##[", "#\\u0023[")


def outputs(result: GateResult) -> dict[str, str]:
    """What the step tells later ones: `steps.ID.outputs.verdict` and so on. Shares in per cent, no number for NaN."""
    ending = sentences.ending(result)
    told = sentences.speaking(result)
    command_text, _ = sentences.next_step(result)
    frame = next(iter(sentences.frames(result.localisation, 1)), None)
    return {
        "verdict": WORDS.get(ending, str(ending)),
        "answer": plain(sentences.answer(result)),
        "reason": plain(result.reason),
        **(_numbers(told) if told is not None and ending is not Ending.FAILED else {}),
        "where": plain(sentences.where(result)),
        "frame": plain(f"{frame.name} ({frame.where})") if frame else "",
        "culprit": plain(result.culprit),
        "next": command_text,
        "report": plain(dict(result.paths).get("report", "")),
        "failures": "\n".join(map(plain, result.failures)),
        "metrics": json.dumps({sentences.name_of(item): sentences.word_of(item) for item in result.metrics}),
    }


def output_text(values: Mapping[str, str], token: str) -> str:
    """
    Lines to be appended to `$GITHUB_OUTPUT`.

    Args:
        values: By name; any text.
        token: Random, or else a value of several lines could hold the one that ends it.
    """
    return "".join(_output(name, clip(printable(value), MAX_OUTPUT), token) for name, value in values.items())


def _annotations(result: GateResult, sources: Sources, inconclusive: str | None) -> Iterator[Annotation]:
    match sentences.ending(result):
        case Ending.FAIL:
            yield from _failed(result, sources)
        case Ending.FAILED:
            yield _whole(result, Kind.ERROR, "\n".join((result.reason, *sentences.failures(result, MAX_FAILURES))))
            return
        case Ending.INCONCLUSIVE:
            kind = Kind.ERROR if inconclusive == "fail" else Kind.WARNING
            yield _whole(result, kind, f"{sentences.reason(result)}\n{sentences.to_resolve(result)}")
        case Ending.INTERRUPTED:
            yield _whole(result, Kind.WARNING, sentences.interrupted(result))
    for failure in result.failures:
        yield Annotation(kind=Kind.WARNING, title="flashprof gate: a launch failed", message=failure)


def _failed(result: GateResult, sources: Sources) -> Iterator[Annotation]:
    placed = _placed(sentences.frames(result.localisation, MAX_FRAMES), sources)
    lines = (sentences.where(result), sentences.reason(result), sentences.culprit(result))
    _, first = placed[0] if placed else (None, None)
    yield _whole(result, Kind.ERROR, "\n".join(line for line in lines if line), first)
    told = sentences.speaking(result)
    for metric in result.metrics:
        if metric.verdict is Verdict.REGRESSION and metric is not told:
            title = f"flashprof gate: {sentences.name_of(metric)}"
            yield Annotation(kind=Kind.ERROR, title=title, message=f"{sentences.one_line(metric)}\n{metric.reason}")
    for frame, place in placed[1:]:
        change = figures.signed(frame.own.estimate, figures.time_text)
        message = f"{frame.name}: {change} a token from base to head"
        yield Annotation(kind=Kind.WARNING, title="flashprof gate: this became slower", message=message, place=place)


def _placed(frames: Iterable[FrameChange], sources: Sources) -> list[tuple[FrameChange, Place]]:
    return [(frame, place) for frame in frames if (place := sources.place(frame)) is not None]


def _whole(result: GateResult, kind: Kind, message: str, place: Place | None = None) -> Annotation:
    title = f"flashprof gate: {sentences.ending(result)}, {sentences.essence(result)}"
    return Annotation(kind=kind, title=title, message=message, place=place)


def _line(item: Annotation) -> str:
    where = {} if item.place is None else {"file": item.place.path, "line": str(item.place.line)}
    message = clip(printable(item.message).strip(), MAX_MESSAGE)
    return command(item.kind, message, {**where, "title": plain(item.title, MAX_TITLE)})


def _numbers(metric: MetricVerdict) -> dict[str, str]:
    found = metric.change
    shares = (math.nan,) * 3 if found is None else (found.estimate, found.low, found.high)
    names = ("change-pct", "change-low-pct", "change-high-pct")
    changes = {name: _number(100 * share, 2) for name, share in zip(names, shares, strict=True)}
    return {
        "metric": plain(sentences.name_of(metric)),
        "base": _number(metric.base),
        "head": _number(metric.head),
    } | changes


def _number(value: float, num_decimals: int = 4) -> str:
    return f"{value:.{num_decimals}f}" if math.isfinite(value) else ""


def _output(name: str, value: str, token: str) -> str:
    if "\n" not in value:
        return f"{name}={value}\n"
    ends = _unlike(token, value)
    return f"{name}<<{ends}\n{value}\n{ends}\n"


def _unlike(token: str, text: str) -> str:
    """A delimiter that the text does not hold."""
    while token in text:
        token += "_"
    return token
