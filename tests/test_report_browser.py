"""The page in a real browser: no error, no request, and every control does what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import report_builder as build
from browser import CHROMIUM, Browser, Page
from test_report_html import SECTIONS, hostile

from advisor.report import html
from advisor.report.content import RunContent

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def browser():
    with Browser() as started:
        yield started


@pytest.fixture
def show(browser, tmp_path):
    """Open a run's page; the pages close with the test."""
    opened: list[Page] = []

    def show(content: RunContent, **options) -> Page:
        path = Path(tmp_path / "report.html")
        path.write_text(html.render(content), encoding="utf-8")
        page = browser.page(path, **options)
        opened.append(page)
        return page

    yield show
    for page in opened:
        page.close()


CONTENTS = {
    "full": build.full,
    "blocked": lambda: build.full(verification=build.verification(build.blocked(), build.with_fix())),
    "bare": build.bare,
    "nothing": build.nothing,
    "hostile": hostile,
}


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("width", [1440, 380])
def test_no_error_no_request_every_section_and_no_sideways_scroll(show, name, width):
    page = show(CONTENTS[name](), width=width)
    page.run("window.cga.plots ? window.cga.plots.start() : null")
    page.run("document.querySelectorAll('.open').forEach((button) => button.click())")
    assert page.problems() == []
    assert page.requests() == []
    heights = page.run(
        "[...document.querySelectorAll('main > section')].map((s) => [s.id, s.getBoundingClientRect().height])"
    )
    assert [one for one, _ in heights] == list(SECTIONS)
    assert all(height > 40 for _, height in heights)
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("document.images.length") == 0


def test_plots_are_drawn_when_they_come_near_and_not_before(show):
    page = show(build.full())
    assert page.run("typeof window.Plotly") == "undefined"
    page.run("document.getElementById('launches').scrollIntoView()")
    page.wait("document.querySelectorAll('.plot-box .main-svg').length >= 4")
    shown = page.run("[...document.querySelectorAll('.plot-box')].map((box) => box.id)")
    assert shown == ["plot-scatter", "plot-gaps", "plot-depth", "plot-kernels"]
    points = page.run("document.getElementById('plot-scatter').data[1].x.length")
    assert points == 400
    assert page.problems() == []


def _canvas(page: Page) -> tuple[float, float, float]:
    page.run("document.getElementById('timeline').scrollIntoView({ behavior: 'instant' })")
    return tuple(
        page.run(
            "(({ left, top, width }) => [left, top, width])(document.getElementById('tl-canvas').getBoundingClientRect())"
        )
    )


def _place(page: Page, kind: str, index: int) -> tuple[float, float]:
    """Viewport coordinates of the middle of an event of the first lane of a kind."""
    left, top, width = _canvas(page)
    x, y = page.run(
        f"""(() => {{
          const {{ view }} = window.cga.tl, row = view.rows.find((one) => one.lane.kind === {json.dumps(kind)});
          const i = row.index[{index}], lane = row.lane;
          return [(lane.start[i] + lane.duration[i] / 2 - view.start) / (view.end - view.start), row.y + 8];
        }})()"""
    )
    return left + x * width, top + y


def _view(page: Page) -> tuple[float, float]:
    return tuple(page.run("[window.cga.tl.view.start, window.cga.tl.view.end]"))


@pytest.mark.parametrize(("kind", "index"), [("stream", 40), ("launch", 7), ("gap", 20), ("cpu", 3)])
def test_hover_says_name_and_times_of_the_event_under_it(show, kind, index):
    content = build.full()
    page = show(content)
    lane = next(lane for lane in content.analysis.timeline.lanes if lane.kind == kind)
    at = sorted(range(len(lane.start_ns)), key=lambda i: lane.start_ns[i])
    if kind == "cpu":  # the first row of the lane is its outermost level
        at = [i for i in at if lane.depths[i] == 0]
    event = at[index]
    page.run(
        f"window.cga.tl.show({lane.start_ns[event] - 60_000}, {lane.start_ns[event] + lane.duration_ns[event] + 60_000})"
    )
    page.mouse("mouseMoved", *_place(page, kind, index))
    page.wait("!document.getElementById('tl-tip').hidden")
    tip = page.run("document.getElementById('tl-tip').innerText")
    name = content.analysis.timeline.names[lane.name_ids[event]].split(" [cga:")[0]
    assert name in tip
    length = page.run(f"window.cga.ns({lane.duration_ns[event]})")
    start = page.run(f"window.cga.ns({lane.start_ns[event]})")
    assert f"{length}, from {start} to " in tip
    assert lane.label in tip
    if kind == "stream":
        launches = next(one for one in content.analysis.timeline.lanes if one.kind == "launch")
        latency = lane.start_ns[event] - launches.start_ns[lane.links[event]]
        assert f"started {page.run(f'window.cga.ns({latency})')} after the call began" in tip


def test_wheel_zooms_at_the_cursor_once_the_timeline_is_in_use(show):
    page = show(build.full())
    left, top, width = _canvas(page)
    x, y = left + 0.25 * width, top + 60
    before = _view(page)
    page.mouse("mouseMoved", x, y)
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-10)
    assert _view(page) == before  # not in use: the page scrolls
    left, top, width = _canvas(page)
    page.click(x, top + 60)
    page.mouse("mouseWheel", x, top + 60, deltaX=0, deltaY=-300)
    page.wait("window.cga.tl.view.end - window.cga.tl.view.start < window.cga.timeline.length * 0.6")
    after = _view(page)
    quarter = before[0] + 0.25 * (before[1] - before[0])
    assert after[0] + 0.25 * (after[1] - after[0]) == pytest.approx(
        quarter, rel=0.01
    )  # the point under the cursor stayed


def test_keys_buttons_and_dragging_move_the_view(show):
    page = show(build.full())
    page.run("document.getElementById('tl-canvas').focus()")
    whole = _view(page)
    page.key("+")
    page.key("+")
    zoomed = _view(page)
    assert zoomed[1] - zoomed[0] == pytest.approx(0.36 * (whole[1] - whole[0]), rel=0.01)
    page.key("ArrowRight")
    moved = _view(page)
    assert moved[0] == pytest.approx(zoomed[0] + 0.2 * (zoomed[1] - zoomed[0]))
    page.key("-")
    page.key("0")
    assert _view(page) == whole
    page.run("document.querySelector('[data-tl=in]').click()")
    start = _view(page)
    left, top, width = _canvas(page)
    page.mouse("mouseMoved", left + 400, top + 60)
    page.mouse("mousePressed", left + 400, top + 60, button="left", clickCount=1)
    page.mouse("mouseMoved", left + 300, top + 60, button="left")
    page.mouse("mouseReleased", left + 300, top + 60, button="left", clickCount=1)
    dragged = _view(page)
    assert dragged[0] - start[0] == pytest.approx(100 / width * (start[1] - start[0]), rel=0.02)
    assert page.problems() == []


def test_an_arrow_links_a_launch_to_its_item(show):
    page = show(build.full())
    _canvas(page)
    ends = page.run(
        """(() => {
          const lane = window.cga.timeline.lanes.find((one) => one.kind === 'launch');
          const [from, items] = window.cga.timeline.linksOf(lane, 5);
          return [from[1], items.length, items[0][0].kind, items[0][0].link[items[0][1]]];
        })()"""
    )
    assert ends == [5, 1, "stream", 5]
    before = page.run("document.getElementById('tl-canvas').toDataURL()")
    page.mouse("mouseMoved", *_place(page, "stream", 40))
    page.wait("!document.getElementById('tl-tip').hidden")
    page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.run("document.getElementById('tl-canvas').toDataURL()") != before


def test_a_line_shows_its_part_of_the_timeline(show):
    content = build.full()
    page = show(content)
    lane = content.analysis.timeline.lanes[0]
    name = next(i for i, one in enumerate(content.analysis.timeline.names) if one.startswith("train.py:12 "))
    event = lane.name_ids.index(name)
    page.run("[...document.querySelectorAll('.line-no .zoom')].find((one) => one.textContent === '12').click()")
    start, end = _view(page)
    assert start < lane.start_ns[event] < lane.start_ns[event] + lane.duration_ns[event] < end
    assert end - start == pytest.approx(lane.duration_ns[event] * 1.12, rel=0.01)
    page.wait("document.activeElement.id === 'tl-canvas'")


def test_sorting_reorders_rows_and_says_so(show):
    page = show(build.full())

    def column(index: int) -> list[str]:
        return page.run(
            f"[...document.querySelectorAll('#region-table tbody .row')].map((row) => row.cells[{index}].dataset.value)"
        )

    page.run("document.querySelectorAll('#region-table thead button')[3].click()")
    busy = [float(value) for value in column(3)]
    assert busy == sorted(busy, reverse=True) and len(set(busy)) > 4
    page.run("document.querySelectorAll('#region-table thead button')[3].click()")
    assert [float(value) for value in column(3)] == sorted(busy)
    assert page.run("document.querySelectorAll('#region-table thead th')[3].getAttribute('aria-sort')") == "ascending"
    page.run("document.querySelectorAll('#region-table thead button')[0].click()")
    labels = column(0)
    assert labels == sorted(labels, key=lambda label: [int(part) for part in label.split(":")[1].split("-")])
    # A detail row stays under its own row.
    pairs = page.run(
        """[...document.querySelectorAll('#region-table .open')].map(
          (one) => one.closest('tbody').querySelector('.detail').id === one.getAttribute('aria-controls'))"""
    )
    assert all(pairs)


def test_a_row_opens_to_its_evidence(show):
    page = show(build.full())
    assert page.run("document.querySelectorAll('.detail:not([hidden])').length") == 0
    page.run("document.querySelector('.open').click()")
    assert page.run("document.querySelector('.open').getAttribute('aria-expanded')") == "true"
    text = page.run("document.querySelector('.detail:not([hidden])').innerText")
    for evidence in (
        "gap between nodes, 114 × 0.31 µs",
        "eager again (A/A)",
        "n = 61",
        "bit-identical",
        "torch.cuda.CUDAGraph()",
    ):
        assert evidence in text


def test_the_copy_button_copies_the_code(show):
    page = show(build.full())
    page.run(
        """window.copied = null;
        Object.defineProperty(navigator, 'clipboard', { value: { writeText: async (text) => { window.copied = text; } } })"""
    )
    page.run("document.querySelector('.copy').click()")
    page.wait("window.copied !== null")
    assert page.run("window.copied") == page.run(
        "document.querySelector('.copy').parentElement.querySelector('code').textContent"
    )
    page.wait("document.querySelector('.copy').textContent === 'Copied'")
    compile(page.run("window.copied"), "copied", "exec")


def test_the_theme_button_switches_and_the_drawing_follows(show):
    page = show(build.full())
    background = "getComputedStyle(document.body).backgroundColor"
    light, canvas = page.run(background), page.run("document.getElementById('tl-canvas').toDataURL()")
    page.run("document.getElementById('theme').click()")
    assert page.run("document.documentElement.dataset.theme") == "dark"
    assert page.run(background) != light
    page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.run("document.getElementById('tl-canvas').toDataURL()") != canvas


CONTRAST = (Path(__file__).parent / "contrast.js").read_text()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["full", "blocked", "bare"])
def test_text_contrast_is_at_least_four_and_a_half(show, name, dark):
    page = show(CONTENTS[name](), dark=dark)
    page.run("document.querySelectorAll('.open').forEach((button) => button.click())")
    *worst, (_, count) = page.run(CONTRAST)
    assert count > 40
    assert worst[0][0] >= 4.5, worst


def test_fifty_thousand_events_are_usable_within_a_second_and_a_half_and_stay_smooth(show):
    content = build.full(analysis=build.analysis(timeline=build.cut(50_000)))
    page = show(content)
    ready = page.run(
        "(({ domInteractive, loadEventEnd }) => [domInteractive, loadEventEnd])(performance.getEntriesByType('navigation')[0])"
    )
    assert max(ready) < 1_500, ready
    events = page.run("window.cga.timeline.lanes.reduce((sum, lane) => sum + lane.count, 0)")
    assert events >= 45_000
    _canvas(page)
    slowest = page.run(
        """(() => {
          const { tl } = window.cga, length = window.cga.timeline.length;
          let worst = 0;
          for (let k = 0; k < 30; k++) {
            const span = length * 0.8 ** k;
            tl.show(0.4 * (length - span), 0.4 * (length - span) + span);
            const begun = performance.now();
            tl.draw();
            worst = Math.max(worst, performance.now() - begun);
          }
          return worst;
        })()"""
    )
    assert slowest < 100, slowest  # ms a frame, software rendering


def test_the_printed_page_opens_everything(show):
    page = show(build.full())
    page.call("Emulation.setEmulatedMedia", media="print")
    assert page.run("getComputedStyle(document.querySelector('.detail')).display") == "table-row"
    assert page.run("getComputedStyle(document.querySelector('.copy')).display") == "none"
    pdf = page.call("Page.printToPDF", printBackground=True)["data"]
    assert len(pdf) > 50_000
