"""report.md: the same sentences and tables as the console, for a pull request or a wiki."""

from __future__ import annotations

from collections.abc import Iterator

from flashprof.contracts.results import RunSummary
from flashprof.report import figures, sentences
from flashprof.report.pipe_table import escape, pipe_table


def render_markdown(summary: RunSummary) -> str:
    """The whole report as GitHub-flavoured Markdown."""
    sections = (_answer(summary), _phases(summary), _frames(summary), _threads(summary), _facts(summary))
    return "\n\n".join(block for section in sections for block in section if block) + "\n"


def _answer(summary: RunSummary) -> Iterator[str]:
    yield f"# {escape(summary.run_id)}"
    failed = sentences.outcome(summary)
    if failed:
        yield "\n".join(f"> **{escape(line)}**" for line in failed)
    yield escape(sentences.cell(summary))
    yield f"**{sentences.throughput(summary)}** {sentences.token_details(summary)}."
    if limiting := sentences.limiting(summary):
        yield f"**{limiting}.**"


def _phases(summary: RunSummary) -> Iterator[str]:
    blocks = sentences.lane_blocks(summary)
    if not blocks:
        return
    yield "## Phases"
    lanes = [
        (
            block.name + (" ◀ limiting" if block.row.is_limiting else ""),
            *sentences.lane_rates(block.row),
            figures.percent(block.row.covered_share),
        )
        for block in blocks
        if block.row
    ]
    yield pipe_table(("lane", "tok/s", "capacity tok/s", "covered by phases"), lanes, num_text=1)
    titles = ("lane", "phase", "kind", "calls a step", "ms a step p50", "p95", "share of lane")
    rows = [
        (block.name, phase.phase, str(phase.kind), *sentences.phase_cells(phase))
        for block in blocks
        for phase in block.phases
    ]
    yield pipe_table(titles, rows, num_text=3)


def _frames(summary: RunSummary) -> Iterator[str]:
    if summary.frames:
        yield "## Hottest frames"
        rows = [
            (f.role, f"`{f.name}`", f"`{f.where}`", figures.percent(f.self_share), figures.percent(f.total_share))
            for f in summary.frames
        ]
        yield pipe_table(("role", "frame", "where", "self", "total"), rows, num_text=3)


def _threads(summary: RunSummary) -> Iterator[str]:
    if summary.threads:
        yield "## Threads"
        rows = [
            (sentences.thread_name(t), f"{t.usr_pct:.1f}", f"{t.system_pct:.1f}", f"{t.wait_pct:.1f}")
            for t in summary.threads
            if sentences.is_busy(t)
        ]
        yield pipe_table(("thread", "usr %", "sys %", "wait %"), rows, num_text=1)


def _facts(summary: RunSummary) -> Iterator[str]:
    yield "## Run"
    facts = [*sentences.run_facts(summary)]
    facts += sentences.window_lines(summary.windows)
    facts += [*sentences.warnings(summary), *summary.notes]
    facts += [f"{name}: `{path}`" for name, path in summary.paths.items()]
    yield "\n".join(f"- {escape(fact)}" for fact in facts if fact)
