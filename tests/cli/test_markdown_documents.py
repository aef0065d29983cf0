"""A document in Markdown at the command line: whatever works on JSON works on it."""

import json
from pathlib import Path

from support.command_line import Cli

PAGE = """\
---
id: small-fix
name: Small fix
description: Fix a small bug.
---
## Look {#look}
```step
produces: {size: {enum: [small, large]}}
```
Find it.
### Criteria
- contains "cause": Name the cause.
## Mend {#mend}
```step
runCondition: {var: size, equals: large}
```
Fix it.
"""
FIXTURE = """\
cases:
  - {name: small, context: {size: small}, steps: [look]}
"""


def test_every_command_for_workflows_works_on_a_page(cli: Cli, project: Path) -> None:
    path, copy = project / "small-fix.workflow.md", project / "other-fix.workflow.md"
    path.write_text(PAGE)
    copy.write_text(PAGE.replace("id: small-fix", "id: other-fix").replace("Find it.", "Find the bug."))
    (project / "small-fix.test.yaml").write_text(FIXTURE)
    (project / "README.md").write_text("## No workflow\n")

    shown = {
        ("list", "--bundled", "false"): "small-fix",
        ("show", "small-fix"): "Find it.",
        ("next", "small-fix"): "Find it.",
        ("graph", "small-fix"): 'size equals "large"',
        ("diff", "small-fix", str(copy)): "~ step look",
        ("check", "small-fix", "look", str(path)): "size is not in the output",
        ("lint", str(path)): "1 document, no problems",
        ("fmt", "--check"): "2 documents, ",
        ("test",): "1 case of 1 fixture, all passed",
        ("watch", "--once", str(path)): "small-fix.workflow.md",
    }
    seen = {words: cli(*words).stdout for words in shown}

    assert {words: seen[words] for words, text in shown.items() if text not in seen[words]} == {}
    assert "README" not in seen["list", "--bundled", "false"]


def test_convert_goes_between_all_three_forms_and_says_which_comments_are_lost(cli: Cli, tmp_path: Path) -> None:
    page = PAGE.replace("produces:", "# why\nproduces:") + "### Proof\n<!-- suggested, from line 4: - `a` passes -->\n"
    (tmp_path / "a.workflow.md").write_text(page)

    first = cli("convert", "a.workflow.md", "--replace")
    second = cli("convert", "a.json", "--to", "markdown", "--replace")
    third = cli("convert", "a.workflow.md", "--to", "yaml", "--output", "-")

    before = json.loads((tmp_path / "a.json.bak").read_text())
    assert [done.returncode for done in (first, second, third)] == [0, 0, 0]
    assert first.stderr == "workflowlookup: 2 comments dropped, because JSON has no comments.\n"
    assert before["steps"][0]["validationCriteria"] == [
        {"type": "contains", "value": "cause", "message": "Name the cause."}
    ]
    assert (
        '### Criteria\n\n- contains "cause": Name the cause.\n\n## Mend {#mend}\n'
        in (tmp_path / "a.workflow.md").read_text()
    )
    assert third.stdout.startswith("id: small-fix\n")
