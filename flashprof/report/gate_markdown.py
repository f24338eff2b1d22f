"""A gate as Markdown: the comment of a pull request, and the summary of a job on GitHub. Too much of it is cut."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from flashprof.contracts.comparison import Block
from flashprof.contracts.gate import GateResult
from flashprof.contracts.localisation import FrameChange, Localisation, Ruling
from flashprof.report import compare_sentences, figures
from flashprof.report import gate_sentences as sentences
from flashprof.report import localisation_sentences as localised
from flashprof.report.gate_sentences import Ending
from flashprof.report.gate_sources import Sources
from flashprof.report.gate_text import code, fenced, inline, plain, sentence
from flashprof.report.localisation_rows import scale_of, status
from flashprof.report.pipe_table import pipe_table
from flashprof.report.waterfall_steps import Step, Waterfall, waterfall

MAX_COMMENT_BYTES = 65_536
"""GitHub takes 65,536 characters, and counts some of them as several."""
MAX_SUMMARY_BYTES = 1 << 20
"""Of all that a step writes: beyond it, GitHub shows nothing of it."""
SUMMARY_RESERVE_BYTES = 16 << 10
"""For what else the step writes."""
CUT = "*More did not fit here; the gate's folder has all of it.*"
MAX_FRAMES = 3
MAX_STEPS = 6
MAX_NAME_WIDTH = 40
BAR_WIDTH = 24
MAX_FAILURES = 10
SIGNS = MappingProxyType(
    {
        Ending.PASS: "✓",
        Ending.FAIL: "✕",
        Ending.INCONCLUSIVE: "?",
        Ending.FAILED: "!",
        Ending.INTERRUPTED: "!",
    }
)
FRAME_TITLES = ("frame", "where", "role and phase", "own time a token", "95 % interval", "")
BLOCK_TITLES = ("block", "order", "launches", "site", "left out", "change %", "windows", "s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """Blocks that are shown on a click."""

    title: str
    blocks: tuple[str, ...]


def render_gate_comment(result: GateResult, sources: Sources, *, key: str = "") -> str:
    """
    A comment of at most 64 KiB.

    Args:
        result: What was found; anything may be missing.
        sources: Where frames lead to.
        key: Tells the gates of one pull request apart.
    """
    return fit((marker(key), *_blocks(result, sources)), MAX_COMMENT_BYTES)


def render_gate_summary(result: GateResult, sources: Sources) -> str:
    """The same for `$GITHUB_STEP_SUMMARY` and report.md: at most 1 MiB, less what other commands of a step may need."""
    return fit(_blocks(result, sources), MAX_SUMMARY_BYTES - SUMMARY_RESERVE_BYTES)


def marker(key: str = "") -> str:
    """A line that nobody sees: the comment that begins with it is changed at the next push, no second one made."""
    return f"<!-- flashprof gate {re.sub('[^a-z0-9.]+', '-', key.lower()).strip('-')}".rstrip() + " -->"


def fit(blocks: Iterable[str | Fold], max_bytes: int) -> str:
    """Blocks joined by empty lines, as many as fit; what is left out is said."""
    room = max_bytes - _size(CUT)
    taken: list[str] = []
    for block in blocks:
        whole = _fold(block.title, block.blocks) if isinstance(block, Fold) else block
        if _size(whole) <= room:
            taken += [whole] if whole else []
            room -= _size(whole) if whole else 0
            continue
        part = _cut_fold(block, room) if isinstance(block, Fold) else _cut_lines(block, room)
        return "\n\n".join((*taken, *([part] if part else []), CUT)) + "\n"
    return "\n\n".join(taken) + "\n"


def _size(block: str) -> int:
    """UTF-8 bytes with the empty line."""
    return len(block.encode()) + 2


def _fold(title: str, blocks: Sequence[str]) -> str:
    body = "\n\n".join(block for block in blocks if block)
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>" if body else ""


def _cut_fold(block: Fold, room: int) -> str:
    left = room - _size(_fold(block.title, ("x",)))
    taken: list[str] = []
    for inner in block.blocks:
        part = inner if _size(inner) <= left else _cut_lines(inner, left)
        taken += [part] if part else []
        left -= _size(part)
        if part != inner:
            break
    return _fold(block.title, taken)


def _cut_lines(block: str, room: int) -> str:
    """The first rows of a table, or items of a list; nothing of what makes no sense in part."""
    if not block.startswith(("| ", "- ")):
        return ""
    kept: list[str] = []
    for line in block.split("\n"):
        room -= len(line.encode()) + 1
        if room < 2:
            break
        kept.append(line)
    # A table is a title, a rule, and at least a row.
    return "\n".join(kept) if len(kept) > (2 if block.startswith("| ") else 0) else ""


def _blocks(result: GateResult, sources: Sources) -> Iterator[str | Fold]:
    ending = sentences.ending(result)
    yield f"## {SIGNS[ending]} {ending}: {inline(sentences.essence(result))}"
    yield f"{code(result.base)} → {code(result.head)}"
    yield _list(_facts(result))
    yield pipe_table(sentences.METRIC_TITLES, _metrics(result), num_text=1)
    yield _list(map(inline, sentences.other_reasons(result)))
    yield from _where(result, sources)
    yield inline("; ".join(text for text in (sentences.mode(result), sentences.cost(result)) if text))
    yield Fold(title="Blocks, cell, and notes", blocks=tuple(_details(result)))


def _facts(result: GateResult) -> Iterator[str]:
    yield inline(sentences.reason(result))
    if told := sentences.culprit(result):
        yield f"**{inline(told)}**"
    yield inline(sentences.interrupted(result))
    yield inline(sentences.to_resolve(result))
    yield from map(inline, sentences.failures(result, MAX_FAILURES))
    command, what_for = sentences.next_step(result)
    if command:
        yield f"next: {code(command)} {what_for}"


def _metrics(result: GateResult) -> Iterator[tuple[str, ...]]:
    for metric in result.metrics:
        name, *cells = sentences.metric_row(metric)
        yield code(name), *map(inline, cells)


def _where(result: GateResult, sources: Sources) -> Iterator[str]:
    found = result.localisation
    if told := sentences.where(result):
        yield "### Where"
        yield sentence(told)
    if found is None:
        return
    steps = waterfall(found, max_steps=MAX_STEPS)
    if steps is not None and found.parts:
        yield fenced(list(_waterfall_lines(steps)))
    yield pipe_table(FRAME_TITLES, _frames(found, sources), num_text=3)
    named = [it for it in localised.by_ruling(found.suspects) if it.ruling is Ruling.NAMED]
    yield _list(f"suspect {code(it.name)}, {figures.percent(it.share)} of it: {inline(it.evidence)}" for it in named)


def _waterfall_lines(found: Waterfall) -> Iterator[str]:
    scale = scale_of(ns for step in found.steps for ns in (step.change_ns, found.total_ns))
    rows = [
        (plain(step.name, MAX_NAME_WIDTH), scale.signed(step.change_ns), figures.percent(step.share), _bar(step, found))
        for step in found.steps
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    yield f"{figures.time_text(found.base_ns)} a token, then in {scale.unit} a token"
    for name, change, share, bar in rows:
        # Indented: GitLab runs lines that begin with a slash.
        yield f"  {name:<{widths[0]}}  {change:>{widths[1]}}  {share:>{widths[2]}}  {bar}".rstrip()
    yield f"{figures.time_text(found.base_ns + found.total_ns)} a token"


def _bar(step: Step, found: Waterfall) -> str:
    start, end = sorted(round((BAR_WIDTH - 1) * found.place(ns)) for ns in (step.start_ns, step.end_ns))
    mark = "░" if not step.is_clear else "▒" if step.is_wait else "█"
    return " " * start + mark * (end + 1 - start)


def _frames(found: Localisation, sources: Sources) -> Iterator[tuple[str, ...]]:
    for frame in sentences.frames(found, MAX_FRAMES):
        ends = (figures.signed(end, figures.time_text) for end in (frame.own.low, frame.own.high))
        yield (
            code(frame.name),
            _link(frame, sources),
            inline(f"{localised.lane(frame)} {frame.phase}"),
            figures.signed(frame.own.estimate, figures.time_text),
            " to ".join(ends),
            inline(status(frame)),
        )


def _link(frame: FrameChange, sources: Sources) -> str:
    place = sources.place(frame)
    url = "" if place is None else sources.url(place)
    text = code(frame.where if place is None else f"{place.path}:{place.line}")
    return f"[{text}]({url})" if url else text


def _details(result: GateResult) -> Iterator[str]:
    if result.study is not None:
        yield pipe_table(BLOCK_TITLES, map(_block, result.study.blocks), num_text=5)
    cell = [(code(name), code(value)) for name, value in result.cell.items() if value]
    yield pipe_table(("cell", "value"), cell, num_text=2)
    paths = (f"{inline(name)}: {code(path)}" for name, path in result.paths)
    commits = (
        (name, commit) for name, commit in (("base", result.base_commit), ("head", result.head_commit)) if commit
    )
    told = [f"{name}: commit {code(commit)}" for name, commit in commits]
    yield _list((*told, *map(inline, sentences.notes(result)), *paths))


def _block(block: Block) -> tuple[str, ...]:
    return (
        f"{block.method} {block.number}",
        inline(block.order),
        ", ".join(map(code, block.launches)),
        inline(block.site),
        inline("; ".join(dict.fromkeys(block.disturbances))),
        compare_sentences.change(compare_sentences.block_change(block)),
        str(block.num_windows),
        f"{block.length_s:.1f}",
    )


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items if item)
