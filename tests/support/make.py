"""Builders: documents that are valid, with what a test is about put in."""

import json
from pathlib import Path
from typing import Any

from support.json_values import Json, JsonObject
from workflowlookup.language.criteria import compile_criteria
from workflowlookup.language.document.building import build
from workflowlookup.language.rules import CriteriaCheck, parse_criteria
from workflowlookup.runs import advance
from workflowlookup.runs.draft import Moment
from workflowlookup.runs.events import Record
from workflowlookup.runs.run import Run

FORM = {
    "type": "object",
    "properties": {
        "size": {"type": "string", "enum": ["small", "large"]},
        "hours": {"type": "integer", "minimum": 1},
        "urgent": {"type": "boolean"},
    },
    "required": ["size"],
}
"""What a person may be asked to fill in: `answers` of a step."""


def step(identifier: str = "first-step", **fields: Json) -> JsonObject:
    return {"id": identifier, "title": f"Title {identifier}", "prompt": f"Do {identifier}.", **fields}


def document(*steps: JsonObject, identifier: str = "sample-workflow", **fields: Json) -> JsonObject:
    return {
        "id": identifier,
        "name": "Sample workflow",
        "description": "A workflow for tests",
        "version": "1.0.0",
        "steps": list(steps) or [step()],
        **fields,
    }


def loop(identifier: str, body: Json, **loop_fields: Any) -> JsonObject:
    return {
        "id": identifier,
        "type": "loop",
        "title": f"Loop {identifier}",
        "loop": {"maxIterations": 10, **loop_fields},
        "body": body,
    }


def check_of(criteria: Json) -> CriteriaCheck | None:
    """Criteria as an author writes them, compiled as a workflow has them."""
    criterion = parse_criteria(criteria)
    return None if criterion is None else compile_criteria(criterion)


def write(directory: Path, content: JsonObject, name: str | None = None) -> Path:
    path = directory / (name or f"{content['id']}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def settings_file(home: Path) -> Path:
    """The user's own settings file, in a directory that is there."""
    file = home / ".config" / "workflowlookup" / "workflowlookup.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def long_run(events: int, run_id: str = "long-run") -> tuple[list[Record], Run]:
    """A run through loops with about so many events, and what they come to."""
    inner = loop("inner", [step("work")], type="for", count=1000, maxIterations=1000)
    outer = loop("outer", [inner], type="for", count=1000, maxIterations=1000)
    draft = advance.begin(run_id, build(document(outer)), {}, {}, Moment(time=1))
    records = list(draft.records)
    while len(records) < events:
        draft = advance.submit(draft.run, draft.run.current, "done", {"last": len(records)}, Moment(time=2))
        records += draft.records
    return records, draft.run
