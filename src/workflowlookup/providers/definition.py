"""Definitions of workflows as providers list them (requirement 6 of the spec): defaults, limits and problems.

An invalid definition is skipped, and a sentence names it and says why; the others are used.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from workflowlookup.language.formats.schemas import BadSchema, compile_schema, show
from workflowlookup.language.text import HIDDEN, one_line
from workflowlookup.language.values import DEFAULT_CATEGORY, DEFAULT_VERSION, MAX_TIMEOUT_SECONDS, Json, deeper_than
from workflowlookup.providers.config import LIBRARY

GENERIC_SCHEMA: Final[Mapping[str, Json]] = {"type": "object", "properties": {}, "additionalProperties": True}
"""For a workflow without a usable input schema: any object is accepted."""

MAX_DEFINITIONS: Final = 10_000
MAX_DESCRIPTION: Final = 4_000
MAX_TEXT: Final = 512
MAX_DEPTH: Final = 100
"""Maximum nesting of a schema or metadata: some clients cannot read deeper ones."""
LISTS: Final = ("workflows", "results", "items", "data", "result")
"""Keys that may contain the list, if the answer is an object."""


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow of a provider, as clients see it."""

    id: str
    name: str
    description: str
    provider: str
    category: str = DEFAULT_CATEGORY
    version: str = DEFAULT_VERSION
    input_schema: Mapping[str, Json] = msgspec.field(default_factory=lambda: GENERIC_SCHEMA)
    execution_type: str = "async"
    metadata: Mapping[str, Json] = {}
    needs_agent: bool = False
    """Whether the agent carries out a step: the tool leads the caller, and does not do the work."""

    @property
    def workflow_id(self) -> str:
        """The id that `workflow_start` takes and that the patterns of tokens match."""
        return self.id if self.provider == LIBRARY else document_id(self.provider, self.id)


def read_definitions(raw: Json, provider: str) -> tuple[list[Definition], list[str]]:
    """The workflows in a provider's list, and its problems. Raises `ValueError` if there is no list."""
    definitions: dict[str, Definition] = {}
    problems: list[str] = []
    for position, item in enumerate(_list_in(raw)):
        if len(definitions) >= MAX_DEFINITIONS:
            problems.append(f"only the first {MAX_DEFINITIONS:,} workflows of the list are taken")
            break
        name = _shown_name(item, position)
        reasons = "; ".join(_problems(item))
        if reasons:
            problems.append(f"{name} is skipped: {reasons}")
        elif item["id"] in definitions:
            problems.append(f"{name} is skipped: its id is in the list twice")
        else:
            definitions[item["id"]], remarks = _read(item, provider)
            problems += [f"{name}: {remark}" for remark in remarks]
    return list(definitions.values()), problems


def sync_ids(raw: Json) -> frozenset[str]:
    """The ids of the workflows in a provider's list whose start returns the result."""
    items = _unwrapped(raw)
    return frozenset(
        item["id"]
        for item in (items if isinstance(items, list) else [])
        if isinstance(item, Mapping) and item.get("executionType") == "sync" and isinstance(item.get("id"), str)
    )


def _unwrapped(raw: Json) -> Json:
    if isinstance(raw, Mapping):
        return next((raw[name] for name in LISTS if isinstance(raw.get(name), list)), raw)
    return raw


def _list_in(raw: Json) -> list[Json]:
    raw = _unwrapped(raw)
    if not isinstance(raw, list):
        raise ValueError(f"the answer must be a list of workflows; found {show(raw)}")  # noqa: TRY004 - the value is wrong, not a type of ours
    return raw


def _shown_name(item: Json, position: int) -> str:
    name = item.get("id") or item.get("name") if isinstance(item, Mapping) else None
    return f"workflow {show(name)}" if isinstance(name, str) else f"workflow number {position + 1} of the list"


def _problems(item: Json) -> Iterator[str]:
    if not isinstance(item, Mapping):
        yield f"it must be an object; found {show(item)}"
        return
    for field in ("id", "name", "description"):
        value = item.get(field)
        if value is None:
            yield f"{field} is required"
        elif not isinstance(value, str) or not value.strip():
            yield f"{field} must be text; found {show(value)}"
        elif field != "description" and len(value) > MAX_TEXT:
            yield f"{field} must be at most {MAX_TEXT} characters long"
        elif field == "id" and re.search(f"[\t\n]|{HIDDEN}", value):
            yield f"{field} must be text without control characters; found {show(value)}"


def _read(item: Mapping[str, Json], provider: str) -> tuple[Definition, list[str]]:
    """The definition of an object that has all required fields; an unusable optional field gets its default."""
    remarks: list[str] = []

    def text(field: str, default: str) -> str:
        value = item.get(field)
        if value is None:
            return default
        if isinstance(value, str) and value.strip() and len(value) <= MAX_TEXT:
            return one_line(value)
        remarks.append(f"{field} must be text; found {show(value)}, '{default}' is used")
        return default

    execution = text("executionType", "async")
    if execution not in ("sync", "async"):
        remarks.append(f"executionType must be sync or async; found {show(execution)}, 'async' is used")
        execution = "async"
    schema, remark = usable_schema(item.get("inputSchema"))
    if remark:
        remarks.append(f"inputSchema {remark}; any object is accepted")
    metadata = item.get("metadata")
    if deeper_than(metadata, MAX_DEPTH):
        remarks.append("metadata is nested too deeply and is ignored")
        metadata = None
    definition = Definition(
        id=item["id"],
        name=one_line(item["name"]) or "workflow",
        description=re.sub(HIDDEN, " ", item["description"][:MAX_DESCRIPTION]),
        provider=provider,
        category=text("category", DEFAULT_CATEGORY),
        version=text("version", DEFAULT_VERSION),
        input_schema=schema,
        execution_type=execution,
        metadata=metadata if isinstance(metadata, Mapping) else {},
    )
    return definition, remarks


def usable_schema(schema: Json) -> tuple[Mapping[str, Json], str]:
    """The schema of a tool's arguments: this one if it is usable, else the generic one and the reason."""
    if schema is None:
        return GENERIC_SCHEMA, ""
    if not isinstance(schema, Mapping):
        return GENERIC_SCHEMA, f"must be a JSON Schema; found {show(schema)}"
    if schema.get("type", "object") != "object":
        return GENERIC_SCHEMA, f"must be of type object; found {show(schema['type'])}"
    if deeper_than(schema, MAX_DEPTH):
        return GENERIC_SCHEMA, "is nested too deeply"
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, Mapping | None) or not isinstance(required, list | None):
        return GENERIC_SCHEMA, "is not a JSON Schema: properties must be an object and required a list"
    complete = schema if "type" in schema else {"type": "object", **schema}
    try:
        compile_schema(complete)
    except BadSchema as problem:
        return GENERIC_SCHEMA, f"is not a JSON Schema: {problem}"
    return complete, ""


# ── the document for a run of a remote workflow ──────────────────────────────────────────────────────────────────

_VERSION: Final = re.compile(r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")


def as_document(definition: Definition) -> dict[str, Json]:
    """A workflow of one step, which calls the provider."""
    seconds = definition.metadata.get("timeoutSeconds")
    has_timeout = (
        isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds <= MAX_TIMEOUT_SECONDS
    )
    return {
        "id": document_id(definition.provider, definition.id),
        "name": definition.name[:128],
        "description": definition.description[:512],
        "version": definition.version if _VERSION.fullmatch(definition.version) else DEFAULT_VERSION,
        "category": definition.category[:64],
        "inputSchema": definition.input_schema,
        "executionType": definition.execution_type,
        **({"deadlineSeconds": seconds} if has_timeout else {}),
        **({"metadata": definition.metadata} if definition.metadata else {}),
        "steps": [
            {
                "id": "remote",
                "title": definition.name[:128],
                "call": {"provider": definition.provider, "workflow": definition.id, "saveAs": "result"},
            }
        ],
    }


def document_id(provider: str, workflow_id: str) -> str:
    """The id of a remote workflow in this server: `provider.id`, with a hash if that is not a valid id."""
    plain = f"{provider}.{workflow_id}"
    slug = re.sub(r"[^a-z0-9._-]+", "-", plain.lower()).lstrip("._")
    if slug == plain and 3 <= len(slug) <= 64:
        return slug
    import hashlib  # noqa: PLC0415 - seldom needed

    return f"{slug[:55]}-{hashlib.sha256(plain.encode()).hexdigest()[:8]}"
