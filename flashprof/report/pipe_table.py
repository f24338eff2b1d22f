"""Markdown's tables, and text that stays text in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def pipe_table(titles: Sequence[str], rows: Iterable[Sequence[str]], *, num_text: int) -> str:
    """A pipe table, its first *num_text* columns to the left, the others to the right; empty without rows."""
    body = [_row(row) for row in rows]
    rule = _row(["---" if index < num_text else "---:" for index in range(len(titles))])
    return "\n".join((_row(titles), rule, *body)) if body else ""


def escape(text: str) -> str:
    """Keep names such as `<module>` and `a|b` from becoming markup; inside backquotes `<` is safe already."""
    line = text.replace("|", "\\|").replace("\n", " ")
    return line if "`" in line else line.replace("<", "&lt;")


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(escape(cell) for cell in cells) + " |"
