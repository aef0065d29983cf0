"""The words that other systems have for the state of a run, and what each means. `docs/providers.md` lists them."""

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from workflowlookup.language.values import Json

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
