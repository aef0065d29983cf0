"""What a provider promises: it lists workflows; most can start one, tell its state, and cancel it.

All of it happens on the worker's loop. What goes wrong raises `ProviderError` with a sentence; what a provider cannot
do raises `NotSupported`. A start is never sent twice by a provider: only the caller knows whether that would do harm.
"""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

import msgspec

from workflowlookup.core.progress import Progress
from workflowlookup.core.values import Json
from workflowlookup.providers.states import RemoteState

OnProgress: TypeAlias = Callable[[Progress], None]


class ProviderError(Exception):
    """The provider did not do what it was asked; the text says what, for people."""

    def __init__(self, told: str, *, maybe_started: bool = False, is_lasting: bool = False) -> None:
        super().__init__(told)
        self.maybe_started = maybe_started
        """Of a start: whether a run may be there all the same, because no clear refusal came back."""
        self.is_lasting = is_lasting
        """Whether asking again would be answered the same: the run is not known there, or we may not ask."""


class RemoteRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a provider has begun."""

    remote_id: str
    """Empty when the answer is the result already."""
    result: "RemoteStatus | None" = None
    """The end, when the provider answers only then."""


class RemoteStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run is, as its provider tells it."""

    state: RemoteState
    output: Json = None
    error: str = ""
    progress: Progress | None = None
    said: str = ""
    """The provider's own word for the state."""


class Provider(Protocol):
    """A system that has workflows."""

    @property
    def name(self) -> str: ...

    @property
    def interval(self) -> float:
        """How many seconds are at most between two questions about a run."""

    @property
    def idempotent(self) -> bool:
        """Whether a start with the same key, sent twice, is one run there."""

    @property
    def can(self) -> frozenset[str]:
        """Which of "start", "status" and "cancel" it can."""

    async def list(self) -> Json:
        """The workflows, as `definition.read_definitions` takes them."""

    async def start(
        self, workflow_id: str, arguments: Mapping[str, Json], key: str, on_progress: OnProgress | None = None
    ) -> RemoteRun:
        """Begin a run; sent once, whatever happens. Progress is told by those who answer with the result only."""

    async def status(self, workflow_id: str, remote_id: str) -> RemoteStatus: ...

    async def cancel(self, workflow_id: str, remote_id: str) -> str:
        """Have a run stopped; what came of it, as a sentence. Raises `ProviderError` when it could not be stopped.

        Without a `remote_id`: what was under way in a `start` that has just been cancelled.
        """

    async def aclose(self) -> None: ...


def read_progress(raw: Json) -> Progress | None:
    """Progress in any of the forms in which it comes: a number, or an object with done, total and message."""
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        return Progress(float(raw), 1.0 if isinstance(raw, float) and raw <= 1 else 100.0, "")
    if not isinstance(raw, Mapping):
        return None
    done = next((raw[name] for name in ("done", "current", "completed", "progress", "percent") if name in raw), None)
    if not isinstance(done, int | float) or isinstance(done, bool):
        return None
    total = raw.get("total", 100 if "percent" in raw else None)
    message = raw.get("message")
    is_number = isinstance(total, int | float) and not isinstance(total, bool)
    told = message if isinstance(message, str) else ""
    return Progress(float(done), float(total) if is_number else None, told)


def error_of(raw: Json) -> str:
    """What a provider says went wrong, as text."""
    if isinstance(raw, Mapping):
        raw = next((raw[name] for name in ("message", "reason", "detail", "error") if raw.get(name)), raw)
    if raw is None or raw == "":
        return ""
    return raw if isinstance(raw, str) else msgspec.json.encode(raw).decode()[:2_000]
