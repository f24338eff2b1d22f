"""What is between backquotes is code, and nothing is markup."""

from __future__ import annotations

from flashprof.report.site_template import code, environment


def test_backquotes_mark_code() -> None:
    assert code("in `a_b`; so") == "in <code>a_b</code>; so"


def test_everything_is_escaped() -> None:
    assert code("<b> `<i>`") == "&lt;b&gt; <code>&lt;i&gt;</code>"
    assert environment().from_string("{{ it }}").render(it="<b>") == "&lt;b&gt;"
