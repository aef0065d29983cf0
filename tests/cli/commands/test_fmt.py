"""`workflowlookup fmt`: one layout for all documents, without changing their meaning or losing comments."""

import itertools
import json
from collections import Counter
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.commands.test_convert import documents
from support.command_line import Cli
from support.json_values import JsonObject
from support.make import document, write
from workflowlookup.cli.commands.fmt import formatted
from workflowlookup.language.field_order import ordered
from workflowlookup.language.formats.syntax import parse_json, parse_yaml
from workflowlookup.language.formats.yaml_layout import YamlNode, comments_of, tree_of, yaml_text
from workflowlookup.language.forms import JSON, YAML

BEFORE = """\
# About this file.

steps: # the steps
- prompt: "Look.\\n\\nThen leap."
  title: First

  # why this id
  id: first-step   # the first
  # left out: guidance

# the second
-   {title: Second, id: second-step,
     prompt: Do it., validationCriteria: [{message: m, type: length, min: 3}]}  # short
-     title: Third
      prompt: >
        folded
        text

      id: third-step
      runCondition: {equals: '1:30', var: size}
x-mine: 017
name: no
description: plain
  text  # on two lines
id: sample-workflow
# the end
"""

AFTER = """\
# About this file.

id: sample-workflow
name: no
description: plain text  # on two lines
steps:  # the steps
  # why this id
  - id: first-step  # the first
    title: First
    prompt: |-
      Look.

      Then leap.
    # left out: guidance

  # the second
  # short
  - id: second-step
    title: Second
    prompt: Do it.
    validationCriteria: [{type: length, message: m, min: 3}]
  - id: third-step
    title: Third
    runCondition: {var: size, equals: '1:30'}
    prompt: >
      folded
      text
x-mine: 017
# the end
"""


def test_the_bundled_documents_are_formatted(cli: Cli) -> None:
    done = cli("fmt", "--check", str(files("workflowlookup") / "bundled"))

    assert (done.returncode, done.stdout) == (0, "10 documents, 0 would change\n")


def test_json_gets_the_order_of_the_schema_and_short_things_on_one_line(cli: Cli, tmp_path: Path) -> None:
    rule = {"min": 5, "x-why": 1, "message": "m", "type": "length"}
    first = {"x-a": {"title": 1, "id": 2}, "prompt": "p" * 80, "validationCriteria": [rule], "title": "T", "id": "abc"}
    write(
        tmp_path, {"steps": [first], "x-b": 1, "name": "N", "id": "abc", "$schema": "s", "description": "D"}, "a.json"
    )

    done = cli("fmt", "a.json")

    assert (done.returncode, done.stdout) == (0, "formatted a.json\n1 document, 1 formatted\n")
    assert (tmp_path / "a.json").read_text() == (
        "{\n"
        '  "$schema": "s",\n'
        '  "id": "abc",\n'
        '  "name": "N",\n'
        '  "description": "D",\n'
        '  "steps": [\n'
        "    {\n"
        '      "id": "abc",\n'
        '      "title": "T",\n'
        f'      "prompt": "{"p" * 80}",\n'
        '      "validationCriteria": [{"type": "length", "message": "m", "min": 5, "x-why": 1}],\n'
        '      "x-a": {"title": 1, "id": 2}\n'
        "    }\n"
        "  ],\n"
        '  "x-b": 1\n'
        "}\n"
    )
    assert [file.name for file in tmp_path.glob("a.json*")] == ["a.json"]


def test_yaml_keeps_its_comments_in_place(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(BEFORE)

    first, second = cli("fmt", "a.yaml"), cli("fmt", "--check", "a.yaml")

    assert (tmp_path / "a.yaml").read_text() == AFTER
    assert (first.returncode, second.returncode) == (0, 0)


def test_check_and_diff_write_nothing(cli: Cli, tmp_path: Path) -> None:
    file = write(tmp_path, document())
    before = file.read_text()

    checked, shown = cli("fmt", "--check", "sample-workflow.json"), cli("fmt", "--diff", "sample-workflow.json")

    assert (checked.returncode, shown.returncode, file.read_text()) == (1, 0, before)
    assert checked.stdout == "would change sample-workflow.json\n1 document, 1 would change\n"
    assert '\n+  "id": "sample-workflow",\n' in shown.stdout


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.json", '{"id": "abc", "id": "abd"}', "because the field 'id' is written twice"),
        ("a.yaml", "? [a, b]\n: 1\n", "a list or an object is used as the name of a field"),
        ("a.yaml", "id: &a\n  - 1\n", "because"),
        ("a.yaml", 'id: "a\u2028 b"\n', "because it has line breaks other than LF"),
        ("a.yaml", "5\n", "because it holds no workflow"),
        ("a.yaml", "", "the document is empty"),
        ("a.yaml", "# to do\n", "the document is empty"),
        ("a.json", "[1]", "because it holds no workflow"),
        ("a.json", "{", "JSON syntax error"),
        ("a.test.yaml", "cases: []\n", "does not have the name of a workflow document"),
    ],
)
def test_a_document_that_would_lose_something_is_not_formatted(
    cli: Cli, tmp_path: Path, name: str, text: str, reason: str
) -> None:
    (tmp_path / name).write_text(text)

    done = cli("fmt", name)

    assert (done.returncode, (tmp_path / name).read_text(), reason in done.stderr) == (1, text, True)


def test_a_broken_document_does_not_stop_formatting_of_others(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path / "flows", document(), "b.json")
    (tmp_path / "flows" / "a.json").write_text("{")

    done = cli("fmt", "flows")

    assert (done.returncode, done.stdout) == (1, "formatted flows/b.json\n2 documents, 1 formatted\n")
    assert "flows/a.json: JSON syntax error" in done.stderr


def test_anchors_stay_above_their_aliases() -> None:
    text = "x-one: &one {title: T, prompt: p}\nsteps:\n- <<: *one\n  id: abd\nid: abc\n"

    data = formatted(text.encode(), YAML, parse_yaml(text.encode()))

    assert data.decode() == text.replace("- <<", "  - <<").replace("  id: abd", "    id: abd")


def decorate(node: YamlNode, numbers: Any) -> None:
    """Put comments above and beside some entries of a tree."""
    for entry in node.entries:
        entry.above = [*entry.above, f"# above {next(numbers)}"] if next(numbers) % 3 == 0 else entry.above
        entry.beside = f"# beside {next(numbers)}" if next(numbers) % 4 == 0 else ""
        decorate(entry.value, numbers)
    if node.entries and next(numbers) % 5 == 0:
        node.tail = [f"# below {next(numbers)}"]


@given(documents(), st.lists(st.integers(0, 1000), min_size=1))
@settings(deadline=None)
def test_formatting_any_document_keeps_meaning_and_comments_and_is_idempotent(
    made: JsonObject, numbers: list[int]
) -> None:
    tree = tree_of(made)
    decorate(tree, itertools.cycle(numbers))
    text = yaml_text(tree)
    assert parse_yaml(text.encode()) == made

    once = formatted(text.encode(), YAML, made)

    assert parse_yaml(once) == made
    assert Counter(comments_of(once.decode())) == Counter(comments_of(text))
    assert formatted(once, YAML, made) == once


@given(documents())
@settings(deadline=None)
def test_formatting_json_is_idempotent(made: JsonObject) -> None:
    once = formatted(json.dumps(made).encode(), JSON, made)

    assert (parse_json(once), formatted(once, JSON, made)) == (made, once)
    assert list(parse_json(once)) == list(ordered(made))


def test_a_proof_begins_with_its_kind_and_name() -> None:
    proof = {"message": "m", "against": {"with": ["a"], "base": "run"}, "use": "test", "name": "t", "kind": "command"}
    content = ordered(document({"proof": [proof], "validationCriteria": ["x"], "id": "one"}, whenUnproved="ask"))

    assert list(content["steps"][0]) == ["id", "validationCriteria", "proof"]
    assert list(content["steps"][0]["proof"][0]) == ["kind", "name", "message", "use", "against"]
    assert list(content["steps"][0]["proof"][0]["against"]) == ["base", "with"]
