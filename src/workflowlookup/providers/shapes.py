"""What other systems expect and answer: endpoints and bodies of an HTTP service, fields of answers, words for states.

No I/O. A path has placeholders such as `{id}`; a text in a body that is nothing but `$input` stands for a value. Both
are checked when the settings are read, so that a typo is found before anything is sent.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from workflowlookup.language.values import Json, text_or_json

Path: TypeAlias = str | Sequence[str]
"""A dotted path into an answer, or several; the first one with a value is used."""

OF_WORKFLOW: Final = ("id", "name", "description", "category", "version", "inputSchema", "executionType", "metadata")
"""The fields of a workflow in a list."""
OF_RUN: Final = ("runId", "state", "output", "error", "progress")
FIELDS: Final = ("workflows", *OF_WORKFLOW, *OF_RUN)
"""The keys of `fields` in the settings."""
RUN_ID_IS_KEY: Final = "$key"
"""As the path of `runId`: the id of the run is the idempotency key of its start."""


class Paging(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a long list comes in pages."""

    next: str = ""
    """Path to the next page in an answer: a URL, or with `parameter` the value to send."""
    parameter: str = ""
    """The query parameter. Without `next` it counts up until a page is empty or `total` workflows are listed."""
    total: str = ""
    offset: bool = False
    """Whether the parameter counts workflows from 0 instead of pages from 1."""


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """The defaults for a kind of service; settings override them."""

    endpoints: Mapping[str, str]
    bodies: Mapping[str, Json]
    fields: Mapping[str, Path]
    paging: Paging


_PLAIN_FIELDS: Final[Mapping[str, Path]] = {**{name: name for name in FIELDS}, "workflows": "", "state": "status"}

PRESETS: Final[Mapping[str, Preset]] = {
    "plain": Preset(
        endpoints={
            "list": "GET /workflows",
            "start": "POST /workflows/{id}/runs",
            "status": "GET /workflows/{id}/runs/{run}",
            "cancel": "POST /workflows/{id}/runs/{run}/cancel",
        },
        bodies={"start": {"input": "$input"}},
        fields=_PLAIN_FIELDS,
        paging=Paging(next="next"),
    ),
    "simplified": Preset(
        endpoints={
            "list": "GET /api/v1/service/workflows/mcp",
            "start": "POST /api/v1/service/workflows/{id}/start",
            "status": "GET /api/v1/service/workflows/{id}/runs/{run}/status",
            "cancel": "",
        },
        bodies={"start": {"input": "$input", "source": "application"}},
        fields={
            **_PLAIN_FIELDS,
            "workflows": "results",
            "name": "title",
            "inputSchema": "inputs",
            "runId": "workflow_id",  # in the answer to the start; "correlation_id" is for tracing
            "error": ("output.error", "output.message"),
        },
        paging=Paging(parameter="page", total="count"),
    ),
}


# ── requests ────────────────────────────────────────────────────────────────────────────────────────────────────

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
PLACEHOLDERS: Final[Mapping[str, tuple[str, ...]]] = {
    "list": (),
    "start": ("id", "key"),
    "status": ("id", "run"),
    "cancel": ("id", "run"),
}
"""By endpoint: the placeholders of its path, in braces; in its body they are written with a dollar sign."""


INPUTS: Final[Mapping[str, Callable[[Mapping[str, Json]], Json]]] = {
    "input": dict,
    "inputText": lambda arguments: text_or_json(dict(arguments)),
    "inputPairs": lambda arguments: [f"{name}={text_or_json(value)}" for name, value in arguments.items()],
}
"""Forms of a run's arguments in the body of its start: an object, JSON as text, or a list of `name=value`."""
NULL: Final = "null"
"""`$null` stands for null, which TOML cannot express."""


def fill_path(path: str, values: Mapping[str, str]) -> str:
    from urllib.parse import quote  # noqa: PLC0415 - not needed to read settings

    for name, value in values.items():
        path = path.replace("{" + name + "}", quote(value, safe=""))
    return path


def fill_body(body: Json, values: Mapping[str, Json]) -> Any:
    """The body with its placeholders replaced; a leading "$$" stands for a dollar sign."""
    if isinstance(body, str) and body.startswith("$"):
        return body[1:] if body.startswith("$$") else values[body[1:]]
    if isinstance(body, Mapping):
        return {name: fill_body(item, values) for name, item in body.items()}
    return [fill_body(item, values) for item in body] if isinstance(body, list) else body


class UnknownName(NamedTuple):
    """A name in the settings that is not allowed where it is used."""

    kind: str
    name: str
    allowed: Sequence[str]


def unknown_in_path(endpoint: str, path: str) -> Iterator[UnknownName]:
    allowed = PLACEHOLDERS[endpoint]
    for name in re.findall(r"\{([^{}]*)\}", path):
        if name not in allowed:
            yield UnknownName("placeholder", name, allowed)


def unknown_in_body(endpoint: str, body: Json) -> Iterator[UnknownName]:
    if isinstance(body, str):
        allowed = (*(INPUTS if endpoint == "start" else ()), *PLACEHOLDERS[endpoint], NULL)
        if body.startswith("$") and not body.startswith("$$") and body[1:] not in allowed:
            yield UnknownName("value", body, [f"${name}" for name in allowed])
    elif isinstance(body, Mapping | list):
        for item in body.values() if isinstance(body, Mapping) else body:
            yield from unknown_in_body(endpoint, item)


def run_id_in(endpoint: str, path: str) -> str | None:
    """The run id in a path that matches the endpoint; None if it does not match."""
    _, _, template = endpoint.partition(" ")
    parts = re.split(r"(\{id\}|\{run\})", template)
    groups = {"{id}": "[^/?]+", "{run}": "([^/?]+)"}
    pattern = "".join(groups.get(part, re.escape(part)) for part in parts)
    match = re.fullmatch(pattern, path) if parts.count("{run}") == 1 else None
    return match[1] if match else None


# ── answers ─────────────────────────────────────────────────────────────────────────────────────────────────────


def value_at(value: Json, path: Path) -> Json:
    """The value at a path; None if there is none. A key may contain dots: `notes.example.org/about`."""
    if not isinstance(path, str):
        return next((item for one in path if (item := value_at(value, one)) not in (None, "")), None)
    while path:
        if not isinstance(value, Mapping):
            return None
        if path in value:
            return value[path]
        part, _, path = path.partition(".")
        value = value.get(part)
    return value


def is_null_at(value: Json, path: Path) -> bool:
    """Whether a path, or one of several, leads to an explicit null rather than to nothing."""
    for one in [path] if isinstance(path, str) else path:
        parent, _, key = one.rpartition(".")
        container = value_at(value, parent)
        if isinstance(container, Mapping) and container.get(key, ...) is None:
            return True
    return False


def show_path(path: Path) -> str:
    """A path as it appears in messages."""
    return " or ".join(f"'{one}'" for one in ([path] if isinstance(path, str) else path))


# ── words for states ─────────────────────────────────────────────────────────────────────────────────────────────

RemoteState: TypeAlias = Literal["running", "completed", "failed", "cancelled"]
Meaning: TypeAlias = Literal["running", "waiting", "completed", "failed", "cancelled"]
"""What a word can mean, in the settings too. A waiting run is not over, so it counts as running."""

WORDS: Final[Mapping[Meaning, tuple[str, ...]]] = {
    "running": (
        *("active", "canceling", "cancelling", "continued_as_new", "executing", "in_progress", "killing", "preparing"),
        *("processing", "progressing", "restarted", "restarting", "resuming", "retried", "retry", "retrying"),
        *("running", "started", "starting", "stopping", "terminating", "working"),
    ),
    "waiting": (
        *("accepted", "action_required", "awaiting_retry", "blocked", "created", "deferred", "delayed", "enqueued"),
        *("input_required", "late", "manual", "new", "not_started", "paused", "pending", "pending_redrive", "queued"),
        *("requested", "scheduled", "submitted", "suspended", "up_for_retry", "waiting", "waiting_for_resource"),
    ),
    "completed": (
        *("complete", "completed", "done", "finished", "neutral", "ok", "passed", "succeeded", "success", "successful"),
        "warning",
    ),
    "failed": (
        *("crashed", "error", "errored", "expired", "failed", "failure", "rejected", "stale", "startup_failure"),
        *("timed_out", "timeout", "unstable", "upstream_failed"),
    ),
    "cancelled": (
        *("aborted", "canceled", "cancelled", "externally_terminated", "internally_terminated", "killed", "not_built"),
        *("revoked", "skipped", "stopped", "terminated"),
    ),
}
"""By meaning; `docs/providers.md` lists them. Case, spaces, `-` and `_` are ignored: "TimedOut" is "timed_out"."""

_PREFIX: Final = "workflowexecutionstatus"
"""The prefix of Temporal's words."""


def _plain(word: str) -> str:
    return re.sub(r"[\s_-]", "", word).lower().removeprefix(_PREFIX)


_MEANINGS: Final[Mapping[str, Meaning]] = {_plain(word): meaning for meaning, words in WORDS.items() for word in words}


def meaning_of(word: Json, own: Mapping[str, Meaning] | None = None) -> Meaning | None:
    """What a system's word for a state means; None if it is unknown. `own`: words from the settings, which win."""
    if not isinstance(word, str):
        return None
    configured = {_plain(name): meaning for name, meaning in own.items()} if own else {}
    return configured.get(_plain(word)) or _MEANINGS.get(_plain(word))


def state_of(word: Json, own: Mapping[str, Meaning] | None = None) -> RemoteState:
    """The state that a word stands for; an unknown word counts as running."""
    meaning = meaning_of(word, own)
    return "running" if meaning is None or meaning == "waiting" else meaning
