"""Texts, timelines and plots: untrusted content is shown as text only."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.make import document, loop, step
from workflowlookup.authoring.graph import draw
from workflowlookup.authoring.svg import as_fragment
from workflowlookup.console import plots
from workflowlookup.console.rendering import ago, iso, one_line, visible
from workflowlookup.console.timeline import TimelineEntry, TimelineView, groups
from workflowlookup.language.document.building import build
from workflowlookup.language.formats.patterns import Budget
from workflowlookup.language.text import plural
from workflowlookup.runs import advance
from workflowlookup.runs.draft import Draft, Moment
from workflowlookup.runs.run import Run
from workflowlookup.store.journal import now


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<b>&\"'", "&lt;b&gt;&amp;&#34;&#39;"),
        ("a\tb\nc\r\nd", "a\tb\nc\nd"),
        ("\x1b[31m", '<span class="mark" title="U+001B">␛</span>[31m'),
        ("\u202eexe", '<span class="mark" title="U+202E">RLO</span>exe'),
        ("\u2067exe", '<span class="mark" title="U+2067">RLI</span>exe'),
        ("a\u2063b", 'a<span class="mark" title="U+2063">U+2063</span>b'),
        (
            "\ufeff\x7f\x85",
            "".join(
                f'<span class="mark" title="U+{n}">{m}</span>'
                for n, m in (("FEFF", "BOM"), ("007F", "␡"), ("0085", "U+0085"))
            ),
        ),
        ("\u05e9\u05dc\u05d5\u05dd \u200f!", "\u05e9\u05dc\u05d5\u05dd \u200f!"),
        ("\U000e0041", '<span class="mark" title="U+E0041">U+E0041</span>'),
    ],
    ids=["markup", "white space", "escape", "override", "isolate", "invisible", "others", "right to left", "tags"],
)
def test_invisible_characters_are_marked(text: str, shown: str) -> None:
    assert str(visible(text)) == shown


@given(st.text())
def test_any_text_is_rendered_as_text_with_marks(text: str) -> None:
    shown = str(visible(text))

    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", shown)
    assert "<" not in re.sub(r'<span class="mark" title="U\+[0-9A-F]+">[^<]+</span>', "", shown)
    shown.encode()


def test_times_and_numbers_are_formatted() -> None:
    assert [ago(now() - time) for time in (0, 61_000, 7_200_000, 172_800_000)] == [
        "just now",
        "1 min ago",
        "2 h ago",
        "2 d ago",
    ]
    assert (iso(0), iso(10**18)) == ("1970-01-01T00:00:00Z", "")
    assert (plural(1, "run"), plural(2_000, "run")) == ("1 run", "2,000 runs")
    assert one_line("a\n b" * 100, 10) == "a ba ba ba…"


def test_every_kind_of_event_has_words() -> None:
    flow = build(
        document(
            step("plan", validationCriteria=[{"type": "length", "min": 3, "message": "Short."}]),
            step("large", runCondition={"var": "size", "equals": "large"}),
            loop("each", [step("look")], type="forEach", items="files"),
            step("sign", requireConfirmation=True),
        )
    )
    draft = advance.begin("r", flow, {"ticket": 1}, {"files": ["a", "b"]}, Moment(time=0, by="agent"))
    records = list(draft.records)
    moves: list[Callable[[Run, Moment], Draft]] = [
        lambda run, at: advance.submit(run, "plan", "no", {}, at),
        lambda run, at: advance.submit(run, "plan", "long", {"size": "small"}, at),
        lambda run, at: advance.submit(run, "look@1", "x", {}, at),
        lambda run, at: advance.submit(run, "look@2", "x", {}, at),
        lambda run, at: advance.submit(run, "sign", "x", {}, at),
        lambda run, at: advance.deny(run, "sign", at, how="relayed", note="no"),
        lambda run, at: advance.submit(run, "sign", "y", {}, at),
        lambda run, at: advance.confirm(run, "sign", at, how="console"),
    ]
    for time, move in enumerate(moves, 1):
        draft = move(draft.run, Moment(time=time * 1_000, by="agent" if time != 6 else "person"))
        records += draft.records

    def entries(view: TimelineView) -> list[TimelineEntry]:
        return [entry for group in groups(draft.run, records, Budget(), view) for entry in group.entries]

    timeline = entries(TimelineView())

    assert [one.words.title for one in timeline] == [
        "Run started",
        "Offered",
        "Output refused",
        "Offered again",
        "Output accepted",
        "Context changed",
        "Skipped",
        "Loop entered, 2 times",
        "Offered",
        "Output accepted",
        "Iteration 2",
        "Offered",
        "Output accepted",
        "Loop left",
        "Offered",
        "Output accepted",
        "A person is asked",
        "Not confirmed, relayed by the agent",
        "Offered again",
        "Output accepted",
        "A person is asked",
        "Confirmed in the console",
        "Completed",
    ]
    assert [timeline[number].words.subject for number in (8, 9, 11)] == [
        *("Title look, a, 1 of 2", "Title look, a, 1 of 2", "Title look, b, 2 of 2"),
    ]
    skipped = timeline[6].words
    assert (skipped.lines, skipped.hints) == (
        ('not true: size equals "small"'.replace("small", "large"),),
        ('size is "small"',),
    )
    assert [one.by for one in timeline if one.by] == ["agent", "person", "agent"]
    assert entries(TimelineView(after=20)) == timeline[20:]
    assert entries(TimelineView(newest_first=True)) == timeline[::-1]


def test_a_fragment_links_to_its_steps_with_details() -> None:
    graph = draw(build(document(step("one"), loop("again", [step("in<ner")], type="for", count=2), name='A & "B"')))
    drawn = as_fragment(graph, "why", {"one": ["took 3 s", "x" * 500], "again": ["left"]})
    root = ET.fromstring(drawn)

    assert "<style" not in drawn
    assert root.attrib["aria-label"] == 'Flow of A & "B"'
    assert [link.attrib["href"] for link in root.iter("a")] == ["#why-one", "#why-again", "#why-in<ner"]
    assert next(text.text for text in root.iter("text") if "more" in text.attrib["class"]) == "took 3 s"


def test_a_flow_is_coloured_and_not_resized_by_other_styles() -> None:
    """In a page a rule for a bar of a plot would stretch a mark of that name, and one without a fill would be black."""
    call = {"id": "call", "title": "Call", "call": {"server": "a", "tool": "b"}}
    body = loop("again", [step("in")], type="for", count=2)
    graph = draw(build(document(call, step("asks", runCondition={"var": "x"}), body)))
    drawn = {mark.attrib["class"].split()[0] for mark in ET.fromstring(as_fragment(graph, "why")).iter("rect")}
    rules = (files("workflowlookup.console") / "static" / "console.css").read_text()

    assert drawn == {"card", "own", "disc", "question", "frame"}
    for name in drawn:
        assert f".flow .{name} {{ fill:" in rules
        assert not re.search(rf"^\.{name} \{{[^}}]*(width|height):", rules, re.MULTILINE)


# ── plots ───────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.integers(0, 10**9), max_size=5), st.integers(0, 10**10))
def test_bars_have_a_label_and_visible_parts(sizes: list[int], whole: int) -> None:
    root = ET.fromstring(plots.bar([(size, "completed") for size in sizes], whole, '<"&>'))

    assert root.attrib["aria-label"] == '<"&>'
    assert all(float(mark.attrib["width"]) > 0 for mark in root)


@given(st.lists(st.integers(0, 10**12), max_size=6))
def test_times_stay_on_their_scale_in_order(times: list[int]) -> None:
    scale = plots.Scale(times)
    positions = [scale.position(time) for time in sorted(times)]

    assert positions == sorted(positions)
    assert all(0 <= place <= 100 for place in positions)
    ET.fromstring(scale.span(min(times, default=1), max(times, default=1), "x"))
    ET.fromstring(scale.axis())


def test_a_label_cannot_reverse_text() -> None:
    drawn = str(plots.bar([(1, "completed")], 1, "Runs of \u202eexe\u2066\x1b"))

    assert 'aria-label="Runs of \ufffdexe\ufffd\ufffd"' in drawn


def test_days_without_runs_have_a_base_mark() -> None:
    root = ET.fromstring(plots.columns([[(2, "completed"), (1, "failed")], [(0, "completed")]], "days"))

    assert [mark.attrib["class"] for mark in root] == ["completed", "failed", "ground"]
