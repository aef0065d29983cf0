"""Builders: documents that are valid, with what a test is about put in."""

import json
from pathlib import Path
from typing import Any


def step(identifier: str = "first-step", **fields: Any) -> dict[str, Any]:
    return {"id": identifier, "title": f"Title {identifier}", "prompt": f"Do {identifier}.", **fields}


def document(*steps: dict[str, Any], identifier: str = "sample-workflow", **fields: Any) -> dict[str, Any]:
    return {
        "id": identifier,
        "name": "Sample workflow",
        "description": "A workflow for tests",
        "version": "1.0.0",
        "steps": list(steps) or [step()],
        **fields,
    }


def loop(identifier: str, body: Any, **loop_fields: Any) -> dict[str, Any]:
    return {
        "id": identifier,
        "type": "loop",
        "title": f"Loop {identifier}",
        "loop": {"maxIterations": 10, **loop_fields},
        "body": body,
    }


def write(directory: Path, content: dict[str, Any], name: str | None = None) -> Path:
    path = directory / (name or f"{content['id']}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def settings_file(home: Path) -> Path:
    """The user's own settings file, in a directory that is there."""
    file = home / ".config" / "workflowlookup" / "workflowlookup.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    return file
