"""calibration.md: whether verdicts can be trusted on this machine, written for somebody who doubts it."""

from __future__ import annotations

from collections.abc import Iterator

from flashprof.contracts.calibration import Calibration
from flashprof.report import calibration_sentences as sentences
from flashprof.report.pipe_table import escape, pipe_table

PICTURE = "calibration.svg"


def render_page(calibration: Calibration) -> str:
    """The whole page as GitHub-flavoured Markdown; the picture lies beside it."""
    sections = (_answer, _errors, _finds, _noise, _settings, _limits)
    return "\n\n".join(block for section in sections for block in section(calibration) if block) + "\n"


def _answer(calibration: Calibration) -> Iterator[str]:
    yield "# Calibration: equal cells compared with themselves"
    yield f"**{_sentence(sentences.headline(calibration))}**"
    yield _sentence(finds) if (finds := sentences.finds(calibration)) else ""
    yield escape(sentences.cell(calibration))
    yield f"Measured: {escape(sentences.run(calibration))}."
    yield f"![Power against minutes, and noise by source]({PICTURE})"


def _errors(calibration: Calibration) -> Iterator[str]:
    yield "## Does it keep its word?"
    rule = calibration.rule
    yield (
        "Both arms were the same, so the truth is 0 and every alarm, for worse or for better, is false. Each "
        "comparison was looked at after every block and stopped as soon as it was clear, as `flashprof compare` does. "
        f"Promised: at most {sentences.pct(rule.alpha)} false alarms, and intervals that hold the truth in about "
        f"{sentences.pct(rule.level)} of comparisons. In brackets: 95 % Clopper–Pearson intervals."
    )
    yield pipe_table(sentences.trial_titles(), sentences.trial_rows(calibration), num_text=1)
    if few := sentences.uncertain(calibration.trials, rule.alpha):
        yield f"Too few to show the promised rate by themselves: {', '.join(few)}."


def _finds(calibration: Calibration) -> Iterator[str]:
    if not calibration.power:
        return
    yield "## What it can find, and how soon"
    yield (
        "A slow-down was planted by taking a constant off the candidate's log tok/s in the data above; found means "
        "called a regression. Minutes include start-up and warm-up. Hot comparisons switch within one launch, cold "
        "ones launch both arms in turn; cold launches are drawn from a Gaussian with the sd measured below."
    )
    yield pipe_table(("within", "smallest found, hot", "cold"), sentences.smallest_rows(calibration), num_text=1)
    titles = ("planted", "hot: 90 % found within", "interval held it", "cold: 90 % found within", "interval held it")
    yield pipe_table(titles, sentences.power_rows(calibration), num_text=1)


def _noise(calibration: Calibration) -> Iterator[str]:
    yield "## Where the noise comes from"
    yield pipe_table(
        ("source", "sd of tok/s", "95 % interval", "remark"), sentences.noise_rows(calibration), num_text=1
    )


def _settings(calibration: Calibration) -> Iterator[str]:
    yield "## Recommended settings"
    yield pipe_table(("setting", "value", "why"), sentences.setting_rows(calibration), num_text=3)


def _limits(calibration: Calibration) -> Iterator[str]:
    yield "## What this does not cover"
    lines = (*sentences.limits(calibration), *calibration.notes)
    yield "\n".join(f"- {escape(line)}" for line in lines)
    yield "Facts that must be equal for `compare` and `gate` to use it:"
    yield "\n".join(f"- `{name}`: {escape(text)}" for name, text in sorted(calibration.facts.items()))


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{escape(text[1:])}."
