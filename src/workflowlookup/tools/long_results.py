"""Results that are too long for a model: the answer has the first part, and a resource has all of it.

Nothing is stored. The URI names a tool that only reads, with its arguments, so reading the resource calls the tool
again, with the rights of the reader. The state of a run is in the result of `workflow_status`.
"""

import itertools
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import msgspec

from workflowlookup.errors import ResourceNotFound, RunNotFound, WorkflowNotFound
from workflowlookup.language.values import Json
from workflowlookup.tools.builtin import BUILTIN_TOOLS, workflow_search
from workflowlookup.tools.contract import NO_CLIENT, Services, Tool
from workflowlookup.tools.resources import MAX_URI, RESULT_SCHEME, no_such_resource, split_uri

PART_CHARACTERS: Final = 20_000
"""The length of the first part."""
MIN_CHARACTERS: Final = 40
"""A value is not cut to less than this."""
_ELLIPSIS: Final = "…"
_REMEDY: Final = "Use the link of a result, or call the tool itself."


def uri_of(tool: str, arguments: Mapping[str, Json], result: Mapping[str, Json]) -> str | None:
    """The resource with the whole result of a call; empty if its arguments are too long for a URI, None if the result
    cannot be read again."""
    run_id = result.get("runId")
    if _find(tool) is None:
        if not isinstance(run_id, str):
            return None
        tool, arguments = "workflow_status", {"runId": run_id}
    query = {"arguments": msgspec.json.encode(arguments).decode()} if arguments else {}
    uri = f"{RESULT_SCHEME}{tool}{'?' if query else ''}{urlencode(query)}"
    return uri if len(uri) <= MAX_URI else ""


def run_id_of(uri: str) -> str:
    """The run that the resource is about; empty if it is about none, or there is no such resource."""
    try:
        run_id = _parse(uri)[1].get("runId")
    except ResourceNotFound:
        return ""
    return run_id if isinstance(run_id, str) else ""


def read(services: Services, uri: str) -> str:
    """The whole result as JSON. Raises `ResourceNotFound` and what the tool raises for its arguments."""
    tool, arguments = _parse(uri)
    try:
        outcome = tool.handler(services, tool.arguments.decode(arguments), NO_CLIENT)
    except (RunNotFound, WorkflowNotFound) as problem:
        raise ResourceNotFound(problem.remedy, uri=uri) from problem
    return msgspec.json.encode(outcome).decode()


def _find(name: str) -> Tool | None:
    """A tool that only reads."""
    tool = workflow_search.TOOL if name == workflow_search.TOOL.name else BUILTIN_TOOLS.get(name)
    return tool if tool is not None and tool.read_only else None


def _parse(uri: str) -> tuple[Tool, dict[str, Json]]:
    address = split_uri(uri, _REMEDY)
    query = dict(parse_qsl(address.query))
    tool = _find(address.netloc)
    try:
        arguments = msgspec.json.decode(query.pop("arguments", "{}"), type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        arguments = None
    if tool is None or arguments is None or address.path or query:
        raise no_such_resource(uri, _REMEDY)
    return tool, arguments


# ── the first part ──────────────────────────────────────────────────────────────────────────────────────────────


def first_part(result: Mapping[str, Json], characters: int, uri: str) -> dict[str, Json]:
    """The result with its long texts and lists cut, so that it fits the schema of its tool; and where all of it is."""
    advice = "Read the resource for all." if uri else "Call the tool again with narrower arguments for the rest."
    note = f"This is the first part of a long result: texts that end with … and lists are cut. {advice}"
    resource = {"resource": uri} if uri else {}
    return {**_shorten(result, PART_CHARACTERS), "cut": {"characters": characters, **resource, "note": note}}


def link_to(uri: str, characters: int) -> dict[str, Json]:
    """The link from an answer to the resource with the whole result."""
    return {
        "type": "resource_link",
        "uri": uri,
        "name": uri.removeprefix(RESULT_SCHEME).partition("?")[0],
        "title": f"The whole result, {characters:,} characters",
        "mimeType": "application/json",
    }


def _shorten(value: Any, limit: int) -> Any:
    """The value, cut so that its JSON has about `limit` characters."""
    if _size(value) <= limit:
        return value
    match value:
        case str():
            return _shorten_text(value, limit)
        case list():
            return _shorten_list(value, limit)
        case dict():
            return _shorten_object(value, limit)
    return value


def _shorten_text(text: str, limit: int) -> str:
    while (size := _size(text)) > limit and len(text) > MIN_CHARACTERS:
        text = text[: max(MIN_CHARACTERS, len(text) * limit // size - 1)]  # escapes make the JSON longer than the text
    return text + _ELLIPSIS


def _shorten_list(items: list[Any], limit: int) -> list[Any]:
    """The first items that fit; of the very first, as much as fits."""
    sizes = itertools.accumulate(_size(item) + 1 for item in items)
    fitting = sum(1 for _ in itertools.takewhile(lambda size: size <= limit, sizes))
    return items[:fitting] or [_shorten(items[0], limit)]


def _shorten_object(fields: dict[str, Any], limit: int) -> dict[str, Any]:
    """All fields, the short ones whole; the long ones share what is left."""
    names = sum(len(name) + 4 for name in fields)
    if names > limit // 2:  # a map of many entries
        return _first_entries(fields, limit)
    remaining, shortened = limit - names, dict(fields)
    by_size = sorted(fields, key=lambda name: _size(fields[name]))
    for number, name in enumerate(by_size):
        share = max(remaining // (len(by_size) - number), MIN_CHARACTERS)
        shortened[name] = _shorten(fields[name], share)
        remaining -= min(_size(fields[name]), share)
    return shortened


def _first_entries(fields: dict[str, Any], limit: int) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for name, value in fields.items():
        limit -= _size(name) + MIN_CHARACTERS
        if limit < 0:
            break
        entries[name] = _shorten(value, MIN_CHARACTERS)
    return entries


def _size(value: Any) -> int:
    return len(msgspec.json.encode(value))
