"""After all bombs the server is as small as before: what is resident once ordinary requests have been answered again."""

import json
from pathlib import Path

import pytest

from support.bombs import BOMBS
from support.client import Server, Start
from support.make import document, step, write
from support.processes import memory_of
from test_bombs import set_off

MAX_GROWTH_BYTES = 24 << 20
"""Measured twenty times after a round of all bombs: 14 to 24 MB, a third of it in the C library's heap. No cache holds
it: Python returns memory by the megabyte, and one small object keeps one.
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")


def ask_ordinary_things(server: Server, library: Path) -> None:
    """Requests of every kind, so that all that is imported and compiled once is there."""
    for old in library.iterdir():
        old.unlink()
    rules = [
        {"type": "regex", "pattern": "(?=x)x|\u00e9", "flags": "i", "message": "m"},
        {"type": "schema", "schema": {"type": "string", "format": "date"}, "message": "m"},
    ]
    first = step(validationCriteria=rules, produces={"a": {"type": "string"}})
    second = step("second-step", runCondition={"var": "x", "matches": "(?=a)\u00e9"})
    write(library, document(first, second, contextSchema={"properties": {"a": {"type": "string"}}}))
    (library / "other.yaml").write_text("id: other\nname: N\ndescription: D\nsteps: [{id: one, title: T, prompt: P}]\n")
    page = (
        "---\nid: page\nname: P\ndescription: D\n---\n\n## One\n\nDo it.\n\n### Criteria\n\n- at least 3 characters\n"
    )
    (library / "page.workflow.md").write_text(page)
    (library / "broken.json").write_text("{")
    large = json.dumps(document(*[step(f"step-{n}", unknown=1) for n in range(700)]))
    about = {"workflowId": "sample-workflow", "context": {"x": "a\u00e9", "a": "b"}}
    for method, params in (
        ("workflow_list", {}),
        ("workflow_get", {"id": "sample-workflow"}),
        ("workflow_get", {"id": "nowhere"}),
        ("workflow_validate_json", {"workflowJson": large}),
        ("workflow_next", {**about, "completedSteps": []}),
        ("workflow_validate", {**about, "stepId": "first-step", "output": "\u00e9 a: 1"}),
        ("workflow_start", about),
    ):
        server.request(method, params)


def test_all_bombs_leave_little_memory_behind(start: Start, library: Path) -> None:
    server = start(directory=library)
    ask_ordinary_things(server, library)
    before = memory_of(server.process.pid)

    for _ in range(2):
        for name in BOMBS:
            set_off(name, server, library)
        ask_ordinary_things(server, library)

    assert memory_of(server.process.pid) - before < MAX_GROWTH_BYTES
