"""The JSON Schema of workflow documents, `workflow.schema.json`, and the validators that are compiled from it."""

import functools
from typing import Final

import msgspec

from workflowlookup.language.formats.schemas import Validator, compile_schema
from workflowlookup.language.values import Json

WORKFLOW_SCHEMA_FILE: Final = __file__.removesuffix("workflow_schema.py") + "workflow.schema.json"


def workflow_schema() -> dict[str, Json]:
    """The schema of workflow documents: a new copy each time, because callers may change it."""
    schema: dict[str, Json] = msgspec.json.decode(workflow_schema_text())
    return schema


@functools.cache
def workflow_schema_text() -> str:
    """The schema of workflow documents as text."""
    with open(WORKFLOW_SCHEMA_FILE, encoding="utf-8") as file:
        return file.read()


@functools.cache
def workflow_validator() -> Validator:
    return compile_schema(workflow_schema(), is_ours=True)


@functools.cache
def step_validator() -> Validator:
    """The validator for one step of a document."""
    schema = workflow_schema()
    return compile_schema({**schema["$defs"]["step"], "$defs": schema["$defs"]}, is_ours=True)
