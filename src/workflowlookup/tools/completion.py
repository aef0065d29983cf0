"""Completions: ids of workflows and of recent runs, wherever a client completes one."""

from collections.abc import Mapping
from typing import Any, Final

from workflowlookup.errors import InvalidParams
from workflowlookup.language.values import Json, brief
from workflowlookup.tools.contract import Services

RUN_SCHEME: Final = "run://"
MOST_VALUES: Final = 100
MAX_VALUE: Final = 300
"""How much of a value is compared; no id is that long."""


def complete(services: Services, params: Mapping[str, Any]) -> Mapping[str, Json]:
    ref, argument = params["ref"], params["argument"]
    match ref.get("type"):
        case "ref/resource":
            wanted = argument.get("name") in ("id", "uri", "workflowId")
        case "ref/prompt":
            wanted = argument.get("name") in ("id", "workflowId")
        case other:
            raise InvalidParams(f"ref.type must be ref/resource or ref/prompt; found {brief(other)}")
    value = argument.get("value")
    if not isinstance(value, str):
        raise InvalidParams("argument.value is required, as text")
    value = value[:MAX_VALUE]
    if not wanted:
        ids = []
    elif str(ref.get("uri")).startswith(RUN_SCHEME):
        ids = [run.id for run in services.runs.recent(MOST_VALUES)]
        value = value.removeprefix(RUN_SCHEME)
    else:
        ids = [summary.id for summary in services.catalog.snapshot().summaries]
        value = value.casefold().removeprefix("workflow://")
    typed = value
    found = [item for item in ids if item.startswith(typed)] + [
        item for item in ids if typed in item and not item.startswith(typed)
    ]
    return {"completion": {"values": found[:MOST_VALUES], "total": len(found), "hasMore": len(found) > MOST_VALUES}}
