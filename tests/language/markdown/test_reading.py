"""Documents written as Markdown: what each part means, where it is, and what is refused."""

import pytest

from support.json_values import Json, JsonObject
from workflowlookup.language.formats.syntax import SyntaxProblem
from workflowlookup.language.markdown.reading import parse_markdown, read_page
from workflowlookup.language.values import Json as AnyJson

PAGE = """\
---
id: small-fix
description: Fix a small bug.
---

# Small fix

Undo every experiment.

## Reproduce {#reproduce}

```step
agentRole: You observe.
produces: [cause]
```

Show the command.

### Not a step

    ## Neither is this

### Criteria

- at least 80 characters: Say more.
- contains "Symptom"
- one of:
  - matches /^Result/im: Add a result,
    on its own line.
  - does not contain "TODO"
<!-- suggested, from line 41: - contains "Cause" -->

### Proof

* tests: `make test` passes: Fix the code.
* file `CHANGELOG.md` has changed since the run began

## Repeat it

```step
loop: {type: for, count: 2, maxIterations: 9}
```

### Try {#try}

Once more.

#### Criteria

- 1 to 20 characters

### Look

Closely.
"""
DOCUMENT: JsonObject = {
    "id": "small-fix",
    "name": "Small fix",
    "description": "Fix a small bug.",
    "metaGuidance": ["Undo every experiment."],
    "steps": [
        {
            "id": "reproduce",
            "title": "Reproduce",
            "agentRole": "You observe.",
            "produces": ["cause"],
            "prompt": "Show the command.\n\n### Not a step\n\n    ## Neither is this",
            "validationCriteria": [
                {"type": "length", "min": 80, "message": "Say more."},
                {"type": "contains", "value": "Symptom", "message": ""},
                {
                    "or": [
                        {
                            "type": "regex",
                            "pattern": "^Result",
                            "flags": "im",
                            "message": "Add a result, on its own line.",
                        },
                        {"not": {"type": "contains", "value": "TODO", "message": ""}},
                    ]
                },
            ],
            "proof": [
                {"kind": "command", "name": "tests", "run": ["make", "test"], "message": "Fix the code."},
                {"kind": "file", "path": "CHANGELOG.md", "changed": "run"},
            ],
        },
        {
            "id": "repeat-it",
            "title": "Repeat it",
            "type": "loop",
            "loop": {"type": "for", "count": 2, "maxIterations": 9},
            "body": [
                {
                    "id": "try",
                    "title": "Try",
                    "prompt": "Once more.",
                    "validationCriteria": [{"type": "length", "min": 1, "max": 20, "message": ""}],
                },
                {"id": "look", "title": "Look", "prompt": "Closely."},
            ],
        },
    ],
}


@pytest.mark.parametrize("text", [PAGE, "\ufeff" + PAGE, PAGE.replace("\n", "\r\n")], ids=["", "with a BOM", "CRLF"])
def test_a_page_is_a_document(text: str) -> None:
    assert parse_markdown(text.encode()) == DOCUMENT


@pytest.mark.parametrize(
    ("path", "position"),
    [
        (("id",), (2, 1)),
        (("name",), (6, 1)),
        (("metaGuidance", 0), (8, 1)),
        (("steps", 0, "title"), (10, 1)),
        (("steps", 0, "produces", 0), (14, 12)),
        (("steps", 0, "prompt"), (17, 1)),
        (("steps", 0, "validationCriteria", 1, "value"), (26, 1)),
        (("steps", 0, "validationCriteria", 2, "or", 0), (28, 3)),
        (("steps", 0, "proof", 1), (36, 1)),
        (("steps", 1, "loop", "count"), (41, 19)),
        (("steps", 1, "body", 1, "prompt"), (54, 1)),
        (("nowhere",), (1, 1)),
    ],
)
def test_everything_has_a_position(path: tuple[str | int, ...], position: tuple[int, int]) -> None:
    assert read_page(PAGE.encode()).finder()(path) == position


FRONT = "---\nid: small-fix\n---\n"
STEP = FRONT + "## One\n"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", 1, "does not begin with front matter"),
        ("# Title\n", 1, "does not begin with front matter"),
        ("---\nid: a\n", 1, "front matter is never closed"),
        ("---\n---\n## One", 1, "front matter is empty"),
        ("---\n- a\n---\n## One", 2, "front matter holds no fields"),
        ("---\nid: a\nname: b: c\n---\n## One", 3, "mapping values are not allowed"),
        ("---\nid: a\n\tname: b\n---\n## One", 3, "a tab character"),
        ("---\nsteps: []\n---\n## One", 2, "front matter has 'steps'"),
        ("---\nname: A\n---\n# B\n## One", 4, "'name' in the front matter differ"),
        ("---\nmetaGuidance: []\n---\nText.\n## One", 4, "text before the first step"),
        (FRONT + "# A\n# B\n## One", 5, "two headings of level 1"),
        (FRONT + "Text.\n", 5, "has no step"),
        (FRONT + "- ## One\n\n> ## Two\n", 7, "has no step"),
        (STEP + "# Late\n", 5, "level 1 can only stand before the first step"),
        (STEP + "Text\n---\n", 6, "a heading of an older kind"),
        (STEP + "##\n", 5, "The heading has no text"),
        (STEP + "## Two {#two words}\n", 5, "The id in the heading cannot be read"),
        (STEP + "## Two {#two\n", 5, "The id in the heading cannot be read"),
        (STEP + "## ??\n", 5, "No id can be made from the title"),
        (STEP + "## Criteria\n", 5, "A heading of level 2 is a step"),
        (STEP + "```step\na: [\n```\n", 7, "YAML syntax error"),
        (STEP + "```step\na: {b: c, b: d}\n```\n", 6, "written twice at line 6, column 11"),
        (STEP + "```step\n```\n", 5, "step block is empty"),
        (STEP + "```step\na: 1\n", 5, "fence is never closed"),
        (STEP + "Text.\n```step\na: 1\n```\n", 6, "must stand directly under the heading"),
        (STEP + "```step\nprompt: a\n```\nb\n", 8, "The step block has 'prompt'"),
        (STEP + "```step\ntitle: Two\n```\n", 4, "The step block has 'title'"),
        (STEP + "```step\nproof: []\n```\n### Proof\n- `a` passes\n", 8, "The step block has 'proof'"),
        (STEP + "```step\nloop: {}\nbody: a\n```\n### Two\n", 9, "The step block has 'body'"),
        (STEP + "<!-- open\n## Two\n", 5, "never closed"),
        (STEP + "<pre>\n\n## Two\n", 5, "never closed"),
        (STEP + "### Criteria\n- at least one word\n", 6, "cannot be read: at least one word"),
        (STEP + "### Criteria\n- contains \"\\q\"\n", 6, "cannot be read"),
        (STEP + "### Criteria\n- contains \"a\"\n  - contains \"b\"\n", 7, "cannot be read"),
        (STEP + "### Criteria\n\nText.\n", 7, "no item of the list"),
        (STEP + "### Criteria\n- one of:\n", 6, "Nothing stands below"),
        (STEP + "### Criteria\n<!-- a --> b\n", 6, "Text follows a comment"),
        (STEP + "### Criteria\n### Criteria\n", 6, "this section twice"),
        (STEP + "### Proof\n- `make 'test` passes\n", 6, "cannot be read"),
        (STEP + "### Proof\n### Notes\n", 6, "follows the criteria or the proof"),
        (STEP + "- " * 40 + "a\n", 5, "nest deeper than 8 levels"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_its_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(SyntaxProblem) as refused:
        parse_markdown(text.encode())

    assert (refused.value.line, reason in str(refused.value)) == (line, True), str(refused.value)
    assert refused.value.suggestions[0]


@pytest.mark.parametrize(
    "text",
    [
        "```\n## not a step\n```",
        "````\n```step\na: 1\n```\n````",
        "> ## quoted\n\n- ## listed",
        "<!--\n## commented\n-->",
        "<details>\n## in HTML\n</details>",
        "\tcode\n\n  ### indented",
        "Trailing blanks  \nand \\*escapes\\* {{name}}",
    ],
)
def test_a_prompt_is_verbatim(text: str) -> None:
    found: Json = parse_markdown(f"{STEP}\n\n{text}\n\n\n## Two\n".encode())["steps"]

    assert found == [{"id": "one", "title": "One", "prompt": text}, {"id": "two", "title": "Two"}]


@pytest.mark.parametrize(
    ("heading", "fields"),
    [
        ("## Größe prüfen", {"id": "grosse-prufen", "title": "Größe prüfen"}),
        ("## Use `make` {#use}", {"id": "use", "title": "Use `make`"}),
        ("## Check {{page}} ##", {"id": "check-page", "title": "Check {{page}}"}),
        ("## {#use}\n```step\ntitle: '{#x'\n```", {"id": "use", "title": "{#x"}),
        ("##\n~~~yaml step\ntitle: T\nid: a b\n~~~", {"id": "a b", "title": "T"}),
    ],
)
def test_a_heading_has_the_title_and_perhaps_the_id(heading: str, fields: dict[str, AnyJson]) -> None:
    assert parse_markdown(f"{FRONT}{heading}\n".encode())["steps"] == [fields]
