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
"""A dotted path into an answer, or several, of which the first that leads to a value counts."""

OF_WORKFLOW: Final = ("id", "name", "description", "category", "version", "inputSchema", "executionType", "metadata")
"""The fields of a workflow in a list."""
OF_RUN: Final = ("runId", "state", "output", "error", "progress")
FIELDS: Final = ("workflows", *OF_WORKFLOW, *OF_RUN)
"""What `fields` can say the place of."""
KEY: Final = "$key"
"""As the place of `runId`: the run is named by the key that was sent to start it."""


class Paging(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a long list comes in pages."""

    next: str = ""
    """Where in an answer the next page stands: a URL, or with `parameter` what to send for it."""
    parameter: str = ""
    """The query parameter; without `next` it counts, until a page is empty or all `total` are there."""
    total: str = ""
    offset: bool = False
    """Whether the parameter counts workflows from 0, and not pages from 1."""


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """How a kind of service is spoken to, unless the settings say otherwise."""

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
            "runId": "workflow_id",  # of the start's answer; "correlation_id" is for tracing
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
"""By endpoint: what its path can have in braces; in its body the same stand after a dollar sign."""


INPUTS: Final[Mapping[str, Callable[[Mapping[str, Json]], Json]]] = {
    "input": dict,
    "inputText": lambda arguments: text_or_json(dict(arguments)),
    "inputPairs": lambda arguments: [f"{name}={text_or_json(value)}" for name, value in arguments.items()],
}
"""How the arguments of a run stand in the body that starts it: as an object, as JSON in a text, as `name=value`."""
NULL: Final = "null"
"""`$null` stands for null, which TOML has no word for."""


def fill_path(path: str, values: Mapping[str, str]) -> str:
    from urllib.parse import quote  # noqa: PLC0415 - the settings are read before any request is made

    for name, value in values.items():
        path = path.replace("{" + name + "}", quote(value, safe=""))
    return path


def fill_body(body: Json, values: Mapping[str, Json]) -> Any:
    """The body with the values in it; "$$" at the beginning of a text is a dollar sign."""
    if isinstance(body, str) and body.startswith("$"):
        return body[1:] if body.startswith("$$") else values[body[1:]]
    if isinstance(body, Mapping):
        return {name: fill_body(item, values) for name, item in body.items()}
    return [fill_body(item, values) for item in body] if isinstance(body, list) else body


class UnknownName(NamedTuple):
    """A name that means nothing where it stands."""

    what: str
    name: str
    known: Sequence[str]


def unknown_in_path(endpoint: str, path: str) -> Iterator[UnknownName]:
    known = PLACEHOLDERS[endpoint]
    for name in re.findall(r"\{([^{}]*)\}", path):
        if name not in known:
            yield UnknownName("placeholder", name, known)


def unknown_in_body(endpoint: str, body: Json) -> Iterator[UnknownName]:
    if isinstance(body, str):
        known = (*(INPUTS if endpoint == "start" else ()), *PLACEHOLDERS[endpoint], NULL)
        if body.startswith("$") and not body.startswith("$$") and body[1:] not in known:
            yield UnknownName("value", body, [f"${name}" for name in known])
    elif isinstance(body, Mapping | list):
        for item in body.values() if isinstance(body, Mapping) else body:
            yield from unknown_in_body(endpoint, item)


def run_in(endpoint: str, path: str) -> str | None:
    """The run that a path is about, when it is one of the endpoint's paths; None when it is not."""
    _, _, template = endpoint.partition(" ")
    parts = re.split(r"(\{id\}|\{run\})", template)
    known = {"{id}": "[^/?]+", "{run}": "([^/?]+)"}
    pattern = "".join(known.get(part, re.escape(part)) for part in parts)
    found = re.fullmatch(pattern, path) if parts.count("{run}") == 1 else None
    return found[1] if found else None


# ── answers ─────────────────────────────────────────────────────────────────────────────────────────────────────


def value_at(value: Json, path: Path) -> Json:
    """The value at a path; None when there is nothing. A key may have dots itself: `notes.example.org/about`."""
    if not isinstance(path, str):
        return next((found for one in path if (found := value_at(value, one)) not in (None, "")), None)
    while path:
        if not isinstance(value, Mapping):
            return None
        if path in value:
            return value[path]
        part, _, path = path.partition(".")
        value = value.get(part)
    return value


def is_null_at(value: Json, path: Path) -> bool:
    """Whether there is a null at the end of a path, or of one of several; not merely nothing."""
    for one in [path] if isinstance(path, str) else path:
        parent, _, key = one.rpartition(".")
        inner = value_at(value, parent)
        if isinstance(inner, Mapping) and inner.get(key, ...) is None:
            return True
    return False


def name_path(path: Path) -> str:
    """A path, as it is shown."""
    return " or ".join(f"'{one}'" for one in ([path] if isinstance(path, str) else path))


# ── words for states ─────────────────────────────────────────────────────────────────────────────────────────────

RemoteState: TypeAlias = Literal["running", "completed", "failed", "cancelled"]
Meaning: TypeAlias = Literal["running", "waiting", "completed", "failed", "cancelled"]
"""What the settings can say that a word means. A run that waits is not over: it counts as running."""

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
"""By what they mean. Case, spaces, `-` and `_` do not count, so that "TimedOut" is "timed_out"."""

_PREFIX: Final = "workflowexecutionstatus"
"""How Temporal begins its words."""


def _plain(word: str) -> str:
    return re.sub(r"[\s_-]", "", word).lower().removeprefix(_PREFIX)


_MEANINGS: Final[Mapping[str, Meaning]] = {_plain(word): meaning for meaning, words in WORDS.items() for word in words}


def meaning_of(word: Json, own: Mapping[str, Meaning] | None = None) -> Meaning | None:
    """What a system's word for a state means; None when nobody knows it. `own`: what the settings say of its words."""
    if not isinstance(word, str):
        return None
    said = {_plain(name): meaning for name, meaning in own.items()} if own else {}
    return said.get(_plain(word)) or _MEANINGS.get(_plain(word))


def state_of(word: Json, own: Mapping[str, Meaning] | None = None) -> RemoteState:
    """The state that a word stands for; a word that nobody knows means that the run goes on."""
    meaning = meaning_of(word, own)
    return "running" if meaning is None or meaning == "waiting" else meaning
