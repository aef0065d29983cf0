"""Mermaid: the source of a flowchart that no title can break."""

import re

import pytest

from support.json_values import Json, JsonObject
from support.make import document, loop, step
from workflowlookup.authoring.graph import draw
from workflowlookup.authoring.mermaid import MAX_LABEL, as_mermaid
from workflowlookup.language.document.building import build

LARGE = {"var": "size", "equals": "large"}


def mermaid(*steps: JsonObject, context: JsonObject | None = None, **fields: Json) -> str:
    return as_mermaid(draw(build(document(*steps, **fields)), context))


def test_the_whole_of_a_flowchart() -> None:
    steps = [
        step("one", runCondition=LARGE),
        loop("each", [step("work", requireConfirmation=True)], type="forEach", items="files"),
    ]

    assert mermaid(*steps, context={"files": [1, 2]}).splitlines() == [
        "---",
        'title: "Sample workflow"',
        "config:",
        "  flowchart:",
        "    subGraphTitleMargin: {top: 4, bottom: 40}",
        "---",
        "flowchart TD",
        '  start(["Start"])',
        '  q1{{"size equals #34;large#34;?"}}',
        '  s1["1 Title one"]',
        '  subgraph l2["2 Loop each<br/>repeats for each currentItem of files, at most 10 times<br/>2 iterations"]',
        '    s3["2.1 Title work<br/>asks for confirmation<br/>taken 2 times"]',
        "  end",
        '  finish(["Complete"])',
        "  start --> q1",
        "  q1 -->|yes| s1",
        "  s1 --> l2",
        "  q1 -.->|no| l2",
        "  s3 -.->|again| s3",
        "  l2 --> finish",
        "  classDef question stroke-dasharray:3 3",
        "  classDef taken fill:#dcf5e7,stroke:#1a7f4b,stroke-width:2px,color:#0b3d24",
        "  classDef skipped fill:#f6f6f6,stroke:#b0b0b0,stroke-dasharray:4 4,color:#8a8a8a",
        "  class q1 question",
        "  class l2,s3 taken",
        "  class s1 skipped",
    ]


@pytest.mark.parametrize(
    ("title", "label"),
    [
        ('say "hi"', "1 say #34;hi#34;"),
        ("end", "1 end"),
        ("a] --> b", "1 a#93; --#62; b"),
        ("<script>", "1 #60;script#62;"),
        ("`code` #1;", "1 #96;code#96; #35;1#59;"),
        ("two\nlines\x1b[2J", "1 two lines #91;2J"),
        ("{{name}}", "1 #123;#123;name#125;#125;"),
        ("変更、確認", "1 変更、確認"),
    ],
)
def test_titles_are_escaped(title: str, label: str) -> None:
    assert f'  s1["{label}"]' in mermaid(step("one", title=title)).splitlines()


def test_without_loops_there_is_nothing_to_make_room_for() -> None:
    assert mermaid(step("one")).splitlines()[:4] == ["---", 'title: "Sample workflow"', "---", "flowchart TD"]


def test_a_condition_that_reads_like_a_list_is_none() -> None:
    source = mermaid(step("one", runCondition={"var": "- x"}))

    assert '{{"#45; x is true?"}}' in source


def test_a_long_condition_is_cut() -> None:
    source = mermaid(step("one", runCondition={"var": "x", "equals": "y" * 5000}))

    assert max(map(len, source.splitlines())) < MAX_LABEL + 40


def test_the_name_cannot_leave_the_front_matter() -> None:
    source = mermaid(name='a" \\ \n---\nflowchart LR')

    assert source.splitlines()[1] == r'title: "a\" \\ --- flowchart LR"'


def test_every_name_that_an_edge_uses_is_declared_once() -> None:
    steps = [step(f"step-{index}", runCondition=LARGE) for index in range(20)]
    source = mermaid(*steps, loop("rounds", [loop("inner", [step("deep")], type="for", count=2)], type="for", count=2))

    declared = re.findall(r"^ *(?:subgraph )?(\w+)[\[({]", source, re.MULTILINE)
    used = {name for edge in re.findall(r"^  (\w+) -.*?(\w+)$", source, re.MULTILINE) for name in edge}
    assert len(declared) == len(set(declared))
    assert used <= set(declared)
    assert source.count("subgraph") == len(re.findall(r"^ *end$", source, re.MULTILINE)) == 2


def test_steps_with_proofs_are_marked() -> None:
    lines = mermaid(step("one"), step("two", proof=[{"kind": "file", "path": "a"}])).splitlines()

    assert '  s2["2 Title two<br/>1 proof"]' in lines
    assert lines[-2:] == ["  classDef proved stroke-width:3px", "  class s2 proved"]
