"""SVG: well-formed, nothing overlaps, every word is there, and nothing in it runs or loads."""

import itertools
import re
import xml.etree.ElementTree as ET
from xml.etree.ElementTree import Element

import pytest

from support.bundled import BUNDLED_DOCUMENTS
from support.json_values import Json, JsonObject
from support.make import document, loop, step
from support.narrowing import not_none
from workflowlookup.authoring.graph import draw
from workflowlookup.authoring.svg import as_fragment, as_svg, measure, wrap
from workflowlookup.language.document.building import build
from workflowlookup.language.model import Workflow

NS = "{http://www.w3.org/2000/svg}"
LARGE = {"var": "size", "equals": "large"}

Box = tuple[int, int, int, int]
"""Left, top, right, bottom."""


def picture(*steps: JsonObject, context: JsonObject | None = None, **fields: Json) -> Element:
    return ET.fromstring(as_svg(draw(build(document(*steps, **fields)), context)))


def rects(root: Element, style: str) -> list[Box]:
    """The rectangles of a class, without the sheets under a card: left, top, right, bottom."""
    classes = [(rect, not_none(rect.get("class")).split()) for rect in root.iter(f"{NS}rect")]
    rects = [rect for rect, names in classes if style in names and "sheet" not in names]
    boxes = [[int(not_none(rect.get(name))) for name in ("x", "y", "width", "height")] for rect in rects]
    return [(x, y, x + width, y + height) for x, y, width, height in boxes]


def overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def holds(outer: Box, inner: Box) -> bool:
    return outer[0] <= inner[0] and outer[1] <= inner[1] and inner[2] <= outer[2] and inner[3] <= outer[3]


def words(root: Element) -> str:
    return "".join("".join(text.text or "" for text in root.iter(f"{NS}text")).split())


def assert_sound(root: Element, workflow: Workflow) -> None:
    paper, cards, frames = rects(root, "paper")[0], rects(root, "card"), rects(root, "frame")
    solid = [*cards, *rects(root, "question")]
    assert not [pair for pair in itertools.combinations(solid, 2) if overlap(*pair)]
    assert all(holds(paper, box) for box in [*solid, *frames])
    assert all(holds(frame, box) or not overlap(frame, box) for frame in frames for box in solid)
    assert all(holds(*pair) or not overlap(*pair) for pair in itertools.combinations(frames, 2))  # outer ones first
    shown = words(root)
    assert [one.title for one in workflow.steps.values() if "".join(one.title.split()) not in shown] == []


NESTED = [
    step("plan-it"),
    loop(
        "outer",
        [
            step("change", runCondition=LARGE),
            loop("inner", [step("review"), step("mend", runCondition=LARGE)], type="for", count=2)
            | {"runCondition": {"var": "strict"}},
        ],
        type="forEach",
        items="files",
    ),
    {"id": "ask-all", "type": "parallel", "title": "Ask", "parallelDelegations": [{"workflowId": "a-b"}]},
    step("report", runCondition=LARGE),
]


@pytest.mark.parametrize("context", [None, {}, {"size": "large", "files": [1, 2], "strict": True}])
def test_nothing_overlaps_and_every_title_is_there(context: JsonObject | None) -> None:
    workflow = build(document(*NESTED))

    assert_sound(ET.fromstring(as_svg(draw(workflow, context))), workflow)


@pytest.mark.parametrize("made", BUNDLED_DOCUMENTS.values(), ids=BUNDLED_DOCUMENTS)
def test_the_bundled_workflows(made: JsonObject) -> None:
    workflow = build(made)

    assert_sound(ET.fromstring(as_svg(draw(workflow, {}))), workflow)


HOSTILE = {
    "script": "<script>alert(1)</script>",
    "attribute": '" onload="alert(1)',
    "entity": "&lt; &amp; ]]> <!-- -->",
    "control": "a\x00b\x1b[2J\x9bc",
    "rtl": "مراجعة الشيفرة قبل الدمج",
    "override": "\u202eabc",
    "wide": "変更を慎重に確認してから" * 10,
    "one word": "W" * 128,
    "emoji": "🚀👩‍👩‍👧 ship",
}


def test_nothing_in_a_picture_turns_text_around() -> None:
    turned = "".join(map(chr, (0x200B, *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF)))
    title = f"a{turned}b"
    workflow = build(document(step("one", title=title, runCondition={"var": title, "equals": title}), name=title))

    for shown in (as_svg(draw(workflow, {})), as_fragment(draw(workflow, {}), "step")):
        assert not set(turned) & set(shown)


@pytest.mark.parametrize("title", HOSTILE.values(), ids=HOSTILE)
def test_hostile_texts_stay_text(title: Json) -> None:
    root = picture(step("one", title=title[:128], runCondition={"var": title, "equals": title}), name=title[:128])

    assert {element.tag for element in root.iter()} <= {
        NS + name for name in ("svg", "title", "style", "rect", "circle", "path", "text", "g")
    }
    assert {name for element in root.iter() for name in element.attrib} <= {
        *("class", "x", "y", "width", "height", "rx", "d", "cx", "cy", "r", "id", "role", "viewBox"),
        *("aria-labelledby", "direction"),
    }
    shown = re.sub("[\x00-\x1f\x7f-\x9f\u202e]", "\ufffd", title[:128])
    assert "".join(shown.split()) in words(root)


def test_nothing_comes_from_elsewhere() -> None:
    source = as_svg(draw(build(document(*NESTED))))

    assert source.count("http") == 1  # the namespace
    assert not [word for word in ("url(", "@import", "href", "<script", "<foreignObject") if word in source]
    assert "prefers-color-scheme:dark" in source


def test_it_has_a_name_and_each_node_a_tooltip_with_the_reason_of_a_skip() -> None:
    root = picture(step("one", runCondition=LARGE), context={})

    titles = [title.text for title in root.iter(f"{NS}title")]
    assert titles == [
        "Sample workflow",
        'size equals "large"',
        'Title one\none\nskipped: not true: size equals "large" (size is not set)',
    ]


def test_the_path_taken_and_what_is_skipped_are_classes() -> None:
    root = picture(step("one", runCondition=LARGE), step("two"), context={})

    nodes = [element.get("class") for element in root.iter(f"{NS}g") if element.get("class")]
    assert nodes == ["node skipped", "node taken"]


def test_the_subtitle_counts_the_steps_of_the_document_and_the_repetitions_apart() -> None:
    steps = [step("one", runCondition=LARGE), loop("each", [step("two")], type="for", count=3)]

    subtitles = [element.text for element in picture(*steps, context={}).iter(f"{NS}text")]

    assert "1 of 2 steps taken in this context, 3 with repetitions" in " ".join(filter(None, subtitles))


def test_a_huge_condition_is_cut_and_its_tooltip_is_whole() -> None:
    root = picture(step("one", runCondition={"var": "x", "equals": "y" * 100_000}))

    box = rects(root, "question")[0]
    assert box[3] - box[1] < 100
    assert len(not_none(next(itertools.islice(root.iter(f"{NS}title"), 1, None)).text)) > 100_000


@pytest.mark.parametrize("text", ["", "word", "a few words that need more than one line", "W" * 99, "é" * 40])
def test_wrapped_lines_fit_and_lose_nothing(text: str) -> None:
    lines = wrap(text, 12, 100)

    assert all(measure(line, 12) <= 100 for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_what_is_over_the_most_lines_is_cut_with_an_ellipsis() -> None:
    lines = wrap("word " * 100, 12, 100, 3)

    assert len(lines) == 3
    assert lines[-1].endswith("…")
    assert measure(lines[-1], 12) <= 100


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a_name_that_goes_on", ["a_name_", "that_goes_", "on"]),
        ("see src/core/svg.py", ["see", "src/core/", "svg.py"]),
        ("wwwwwwwww", ["wwwwww", "www"]),
    ],
)
def test_a_word_that_does_not_fit_is_broken_at_a_seam_if_it_has_one(text: str, lines: list[str]) -> None:
    assert wrap(text, 12, 80) == lines


DEJAVU_SANS_BOLD = {"i": 0.34, " ": 0.35, "-": 0.42, "r": 0.49, "e": 0.68, "n": 0.71, "{": 0.71, "w": 0.92, "m": 1.04}
"""One of the widest faces that a picture is shown in."""


@pytest.mark.parametrize("title", ["Refine Hypothesis {{hypothesis.id}}", "Review name-server winner", "{{mine}} " * 4])
def test_titles_fit_in_wide_faces_too(title: str) -> None:
    wide = sum(DEJAVU_SANS_BOLD.get(character, 0.68) for character in title) * 14

    assert measure(title, 14, bold=True) > 0.95 * wide, "a card has 16 pixels to spare"


def test_text_that_reads_from_right_to_left_starts_at_the_right() -> None:
    root = picture(step("one", title="\u0631\u0627\u062c\u0639"), step("two", title="Check \u0631\u0627\u062c\u0639"))

    titles = [text for text in root.iter(f"{NS}text") if text.get("class") == "title"]
    assert [(text.get("direction"), float(not_none(text.get("x"))) > 0) for text in titles] == [
        ("rtl", True),
        (None, False),
    ]


def test_a_step_with_proofs_has_a_tick() -> None:
    root = picture(step("one"), step("two", proof=[{"kind": "file", "path": "a"}]))

    nodes = [element for element in root.iter(f"{NS}g") if element.get("class") == "node"]
    ticks = [[path for path in node.iter(f"{NS}path") if path.get("class") == "proved"] for node in nodes]
    assert [len(marks) for marks in ticks] == [0, 1]
