"""The page of `flashprof report` in a real browser, from file://: quiet, offline, at hand by mouse and keyboard."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import study_results
from report_folders import edit, localisation, write_bisect, write_compare, write_run

from flashprof.app.report import make_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
# What a desktop's Chromium does of itself would be network traffic, too.
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update")
HOSTILE = "<img src=x onerror=window.harmed=1><script>window.harmed=1</script>"
TOGGLES = {"amber": "swa", "blue": "none", "coral": HOSTILE}

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt-get install chromium"),
    pytest.mark.timeout(60),
]


@dataclass(frozen=True)
class Opened:
    """A page, and all that it has complained of or asked for."""

    page: Any
    url: str
    complaints: list[str]
    requests: list[str]

    def go(self, hash_: str) -> None:
        """Follow a link within the page."""
        self.page.evaluate("hash => { location.hash = hash; }", hash_)
        self.page.wait_for_function("hash => document.querySelector('.page.shown')?.id === hash", arg=hash_)

    def draw(self) -> None:
        """Until what a script draws at its next frame is there."""
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    @property
    def names(self) -> list[str]:
        """Of the runs that are shown, from the top."""
        return list(self.page.locator("[data-testid=runs] tbody tr:visible th a").all_inner_texts())


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of a page with three runs of one cell, a comparison and a bisect."""
    reports = tmp_path_factory.mktemp("browser") / "reports"
    for number, (name, toggles) in enumerate(TOGGLES.items()):
        run = write_run(reports / name, hours=number, rate=1000.0 - 100 * number)
        edit(run / "summary.json", cell={"preset": "tiny", "toggles": toggles}, notes=[toggles])
    compared = replace(study_results.regression(), localisation=localisation("drafter", HOSTILE))
    edit(write_compare(reports / "compare-1", compared) / "comparison.json", notes=[HOSTILE])
    for arm in ("base", "candidate"):
        write_run(reports / "compare-1" / "explained" / f"{arm}-1")
    write_bisect(reports / "bisect-1")
    return make_report(reports).page.as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def opened(browser: Any, report: str) -> Iterator[Opened]:
    """The page; whatever a test does with it, it must stay quiet and offline."""
    context = browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(8_000)
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(report)
    yield Opened(page, report, complaints, requests)
    is_harmed = page.evaluate("'harmed' in window")
    context.close()

    assert [] == complaints
    assert not is_harmed
    assert {report} == {url.partition("#")[0] for url in requests if not url.startswith("data:")}


def test_every_view_opens_alone_and_quietly(opened: Opened) -> None:
    ids = opened.page.locator("section.page").evaluate_all("sections => sections.map(section => section.id)")
    for id_ in ids:
        opened.go(id_)

        assert [id_] == opened.page.locator("section.page:visible").evaluate_all("all => all.map(one => one.id)")
        assert opened.page.locator(f"[id='{id_}']").inner_text()
    assert {"overview", "compare", "bisect", "run"} == {id_.partition("/")[0] for id_ in ids}


def test_a_deep_link_opens_its_view_and_back_leads_back(browser: Any, report: str) -> None:
    page = browser.new_page()
    page.goto(f"{report}#run/amber")
    before = page.locator("section.page:visible").get_attribute("id")
    page.locator("a.home").click()
    between = page.locator("section.page:visible").get_attribute("id")
    page.go_back()
    after = page.locator("section.page:visible").get_attribute("id")
    page.close()

    assert ["run/amber", "overview", "run/amber"] == [before, between, after]


def test_runs_are_sorted_by_mouse_and_by_keyboard(opened: Opened) -> None:
    head = opened.page.locator("[data-testid=runs] th[data-key=rate]")
    head.locator("button").click()
    by_rate = (head.get_attribute("aria-sort"), opened.names)
    head.locator("button").press("Enter")
    by_key = (head.get_attribute("aria-sort"), opened.names)

    assert ("descending", ["amber", "blue", "coral"]) == by_rate
    assert ("ascending", ["coral", "blue", "amber"]) == by_key


def test_a_filter_leaves_matching_runs_and_is_kept_in_the_address(opened: Opened) -> None:
    opened.page.get_by_test_id("run-filter").fill("amb")
    found = opened.names
    opened.page.reload()

    assert ["amber"] == found
    assert "q=amb" in opened.page.url
    assert ["amber"] == opened.names


def test_the_theme_follows_the_system_and_the_switch(opened: Opened) -> None:
    def background() -> str:
        return str(opened.page.evaluate("getComputedStyle(document.body).backgroundColor"))

    light = background()
    opened.page.emulate_media(color_scheme="dark")
    dark = background()
    switch = opened.page.locator("[data-action=theme]")
    switch.click()
    chosen_light = background()
    switch.click()
    opened.page.emulate_media(color_scheme="light")

    assert light != dark
    assert (light, dark) == (chosen_light, background())


@pytest.mark.parametrize("width", [360, 420, 1400])
def test_no_view_is_wider_than_the_window(opened: Opened, width: int) -> None:
    opened.page.set_viewport_size({"width": width, "height": 800})
    ids = opened.page.locator("section.page").evaluate_all("sections => sections.map(section => section.id)")
    for id_ in ids:
        opened.go(id_)

        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width, id_


def test_a_flamegraph_is_searched_zoomed_and_reset(opened: Opened) -> None:
    opened.go("run/amber")
    figure = opened.page.locator("[id='run/amber'] figure.flame").first
    box = figure.locator("[data-testid=flame-box][data-name*=build_masks]").first
    before = box.bounding_box()
    figure.get_by_test_id("flame-search").fill("build_masks")
    matched = figure.get_by_test_id("flame-matched").inner_text()
    box.click()
    zoomed = box.bounding_box()
    figure.get_by_test_id("flame-reset").click()

    assert "%" in matched
    assert before
    assert zoomed
    assert before["width"] + 20 < zoomed["width"]
    assert pytest.approx(before["width"], abs=1) == (box.bounding_box() or {})["width"]


def test_a_flamegraph_tells_of_its_frames_by_mouse_and_by_keyboard(opened: Opened) -> None:
    opened.go("run/amber")
    figure = opened.page.locator("[id='run/amber'] figure.flame").first
    hover = figure.get_by_test_id("flame-hover")
    figure.locator("[data-testid=flame-box][data-name*=build_masks]").first.hover()
    by_mouse = hover.inner_text()
    opened.page.mouse.move(1, 1)
    graph = figure.get_by_test_id("flame-graph")
    graph.focus()
    opened.page.keyboard.press("ArrowDown")
    opened.page.keyboard.press("ArrowDown")
    by_keyboard = hover.inner_text()
    before = graph.inner_html()
    opened.page.keyboard.press("Enter")
    zoomed = graph.inner_html()
    opened.page.keyboard.press("Escape")

    assert "build_masks" in by_mouse
    assert "step" in by_keyboard
    assert before != zoomed
    assert zoomed != graph.inner_html()


def test_a_differential_flamegraph_shows_the_widths_of_either_arm(opened: Opened) -> None:
    opened.go("compare/compare-1")
    figure = opened.page.locator("[id='compare/compare-1'] figure.flame").first
    figure.locator("[data-testid=flame-box][data-name*=build_masks]").first.hover()
    told = figure.get_by_test_id("flame-hover").inner_text()
    for arm in ("base", "candidate"):
        figure.get_by_test_id(f"flame-widths-{arm}").check()

        assert figure.locator("[data-testid=flame-box][data-name*=build_masks]").first.is_visible()
    assert "build_masks" in told


def test_a_timeline_is_zoomed_moved_and_reset(opened: Opened) -> None:
    opened.go("run/amber")
    timeline = opened.page.locator("[id='run/amber'] [data-testid=timeline]")
    reset = timeline.get_by_test_id("timeline-reset")
    steps = timeline.locator("[tabindex='0']").first
    opened.draw()
    before = steps.inner_html()
    steps.focus()
    for key in ("+", "+", "ArrowRight"):
        opened.page.keyboard.press(key)
    moved = steps.inner_html()
    reset.click()
    opened.draw()

    assert before != moved
    assert before == steps.inner_html()


def test_without_scripts_all_views_can_be_read(browser: Any, report: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report)
    num_sections, num_visible = page.locator("section.page").count(), page.locator("section.page:visible").count()
    context.close()

    assert 4 < num_sections == num_visible


def test_print_shows_the_view_that_is_open(opened: Opened) -> None:
    opened.go("run/blue")
    opened.page.emulate_media(media="print")

    assert ["run/blue"] == opened.page.locator("section.page:visible").evaluate_all("all => all.map(one => one.id)")
