"""The HTML page: complete, self-contained, escaped; and honest about what is missing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from html.parser import HTMLParser

import msgspec
import pytest
import report_builder as build

from advisor.model import Answer, Lane, NumberKind, Verdict
from advisor.report import html
from advisor.report.content import RunContent

HOSTILE = "</script><img src=x onerror=alert(1)>&<!-- \u2028 'quoted' \"double\""
SECTIONS = ("verdict", "waterfall", "timeline", "source", "regions", "launches", "findings", "provenance")
NAMED = {
    "full": build.full(),
    "estimated": build.full(verification=None),
    "blocked, with fix": build.full(
        verification=build.verification(build.blocked(), build.with_fix(), build.differs())
    ),
    "bare": build.bare(),
    "two devices": build.full(analysis=build.analysis(devices=(build.device(), build.device(rank=1, item_count=9)))),
    "nothing": build.nothing(),
}


class Page(HTMLParser):
    """Tags, ids, scripts and attribute values of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[str, str]] = []
        self.text = ""
        self._script: str | None = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self._script = dict(attrs).get("type") or "javascript"
            self.scripts.append((self._script, ""))

    def handle_endtag(self, tag):
        if tag == "script":
            self._script = None

    def handle_data(self, data):
        if self._script is not None:
            self.scripts[-1] = (self._script, self.scripts[-1][1] + data)
        else:
            self.text += data

    def ids(self) -> list[str]:
        return [value for _, attrs in self.tags if (value := attrs.get("id"))]


@pytest.mark.parametrize("name", NAMED)
def test_every_section_is_there_whatever_is_missing(name):
    page = Page(html.render(NAMED[name]))
    sections = [attrs["id"] for tag, attrs in page.tags if tag == "section"]
    assert tuple(sections) == SECTIONS
    ids = page.ids()
    assert len(ids) == len(set(ids))
    for _, attrs in page.tags:
        for key in ("aria-labelledby", "aria-controls", "aria-describedby"):
            for target in (attrs.get(key) or "").split():
                assert target in ids


def test_the_section_list_is_pinned():
    assert tuple(section.id for section in html.all_sections()) == SECTIONS


@pytest.mark.parametrize("name", NAMED)
def test_nothing_is_loaded_from_anywhere(name):
    page = Page(html.render(NAMED[name]))
    for tag, attrs in page.tags:
        assert "src" not in attrs, (tag, attrs)
        if tag == "link":
            assert attrs["href"] == "data:,"
        assert not any(key.startswith("on") for key in attrs)
    style = re.search(r"<style>(.*?)</style>", html.render(NAMED[name]), re.DOTALL)
    assert "url(" not in style[1] and "@import" not in style[1]


def test_the_policy_admits_exactly_the_scripts_of_the_page():
    page = Page(html.render(build.full()))
    policy = next(attrs["content"] for tag, attrs in page.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'")
    scripts = [text for kind, text in page.scripts if kind == "javascript"]
    assert len(scripts) == 5
    for text in scripts:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert policy.count("sha256-") == len(scripts) + 1  # and plotly, once inflated


def hostile() -> RunContent:
    """A run in which every text a user or a trace can choose is an attack."""
    base = build.analysis()
    lane = Lane(id="cpu-1", label=HOSTILE, kind="cpu", start_ns=(0,), duration_ns=(5,), name_ids=(0,))
    cut = msgspec.structs.replace(base.timeline, names=(HOSTILE,) * len(base.timeline.names), label=HOSTILE)
    cut = msgspec.structs.replace(cut, lanes=(*cut.lanes, lane))
    rows = tuple(msgspec.structs.replace(row, name=HOSTILE + str(i)) for i, row in enumerate(base.kernels))
    series = tuple(msgspec.structs.replace(one, names=(HOSTILE,) * len(one.x)) for one in base.series)
    location = msgspec.structs.replace(build.span(8, 13), file=HOSTILE)
    region = build.region(label=HOSTILE, how=HOSTILE, location=location)
    line = msgspec.structs.replace(base.lines[0], text=HOSTILE, location=location)
    finding = msgspec.structs.replace(
        base.findings[0], title=HOSTILE, detail=HOSTILE, fix=HOSTILE, url="javascript:alert(1)"
    )
    blocker = msgspec.structs.replace(
        build.SYNC, title=HOSTILE, evidence=HOSTILE, fix=HOSTILE, library_location=HOSTILE
    )
    verdict = Verdict(answer=Answer.PROBABLY, sentence=HOSTILE, reasons=(HOSTILE,), next_step=HOSTILE, region_id="step")
    trace = msgspec.structs.replace(base.trace, files=(HOSTILE,), gpu_names=(HOSTILE,), torch_version=HOSTILE)
    note = msgspec.structs.replace(base.quality[0], message=HOSTILE, forbids=(HOSTILE,))
    fix = msgspec.structs.replace(build.CAPTURABLE, title=HOSTILE, diff=f"+{HOSTILE}\n-{HOSTILE}")
    words = {"message": HOSTILE, "log": HOSTILE, "region_label": HOSTILE}
    attempt = build.verified(fixes=(fix,), side_effects=(HOSTILE,), frozen=(HOSTILE,), **words)
    manifest = msgspec.structs.replace(
        build.manifest(), script=HOSTILE, command=(HOSTILE,), notes=(HOSTILE,), options={HOSTILE: HOSTILE},
        source_files={HOSTILE: build.SOURCE.replace("losses = []", f"losses = []  # {HOSTILE}")},
    )  # fmt: skip
    return build.full(
        analysis=msgspec.structs.replace(
            base, timeline=cut, kernels=rows, series=series, regions=(region,), lines=(line,), findings=(finding,),
            blockers=(blocker,), verdict=verdict, trace=trace, quality=(note,),
        ),
        manifest=manifest, verification=build.verification(attempt, build.blocked(blocker=blocker, id="a9")),
    )  # fmt: skip


def test_hostile_names_stay_text():
    text = html.render(hostile())
    clean = Page(html.render(build.full()))
    page = Page(text)
    assert "<img" not in text
    assert {tag for tag, _ in page.tags} <= {tag for tag, _ in clean.tags}
    assert [kind for kind, _ in page.scripts] == [kind for kind, _ in clean.scripts]
    assert "</script><img src=x onerror=alert(1)>" in page.text
    assert not any((attrs.get("href") or "").startswith("javascript:") for _, attrs in page.tags)
    data = [json.loads(body) for kind, body in page.scripts if kind == "application/json"]
    assert data[0]["names"][0] == HOSTILE


def test_script_json_cannot_end_its_element():
    made = html.script_json({"a": "</script><!--\u2028\u2029&"})
    assert not set("<>&\u2028\u2029") & set(made)
    assert json.loads(made) == {"a": "</script><!--\u2028\u2029&"}


def test_a_verified_run_leads_with_its_number_and_its_proof():
    page = Page(html.render(build.full()))
    text = " ".join(page.text.split())
    assert "One graph over train.py:8-13 makes a step 7.1× faster, 3.19 ms → 449 µs, results bit-identical" in text
    for proof in (
        "95 % interval 7.0× to 7.2×",
        "0.4 % between two eager runs",
        "42 tensors at each of 105 steps",
        "34.0 MiB",
    ):
        assert proof in text
    assert "torch.cuda.CUDAGraph()" in text


def test_a_blocked_run_shows_the_fix_and_what_it_gains():
    text = html.render(NAMED["blocked, with fix"])
    assert "Blocked as written at train.py:13; with one change (capturable=True)" in text
    assert '<span class="add">+opt = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)' in text
    assert "<code>torch/optim/optimizer.py:432</code>" in text
    assert "site-packages" not in text
    assert "results differ" in text


def test_no_code_is_offered_for_a_capture_that_failed():
    failed = build.full(verification=build.verification(build.differs()))
    text = html.render(failed)
    assert "Do not graph it as written" in text
    assert "Graph code for train.py:10-12" not in text


def test_what_is_missing_names_the_command_that_adds_it():
    text = " ".join(Page(html.render(NAMED["bare"])).text.split())
    for sentence in (
        "the script was not clocked without the profiler",
        "No step was cut from this recording",
        "marks every statement of the hot loop",
        "No region was found",
        "The recording was made elsewhere",
        "estimates use documented defaults",
        "no region was captured",
    ):
        assert sentence in text


def test_saying_no_is_said_in_full():
    verdict = Verdict(
        answer=Answer.NOT_WORTH_IT, sentence="Not worth it: the step is busy 98 % of the time; a graph would save 0.4 %.",
        next_step="Look at the kernels: precision, fusion, batch size.", kind=NumberKind.PROFILED,
    )  # fmt: skip
    text = " ".join(
        Page(
            html.render(build.full(analysis=build.analysis(verdict=verdict, findings=()), verification=None))
        ).text.split()
    )
    assert "Not worth it" in text and "leave the code as it is" in text and "Look at the kernels" in text
    assert "torch.cuda.CUDAGraph()" not in text.split("Where the time goes")[1].split("Regions")[0]


def test_every_estimate_is_called_one_even_on_the_profiled_clock():
    made = build.analysis(estimates=(build.estimate(kind=NumberKind.PROFILED),))
    text = html.render(build.full(analysis=made, verification=None, clock=None))
    bar = text.split("Step graphed")[1].split("</div>")[0]
    assert "kind-estimated" in bar and "kind-profiled" not in bar
    assert "by a profiled trace" in text


def test_fifty_thousand_events_stay_small_and_quick():
    content = build.full(analysis=build.analysis(timeline=build.cut(50_000)))
    events = sum(len(lane.start_ns) for lane in content.analysis.timeline.lanes)
    assert events >= 45_000
    html.render(build.full())  # plotly is deflated once a process
    started = time.perf_counter()
    text = html.render(content)
    assert time.perf_counter() - started < 2.0
    assert len(text.encode()) <= 6_000_000


def test_the_same_content_gives_the_same_bytes():
    assert html.render(build.full()) == html.render(build.full())
