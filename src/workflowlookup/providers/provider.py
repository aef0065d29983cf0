"""What a provider promises: it lists workflows; most can start one, tell its state, and cancel it.

All of it happens on the worker's loop. What goes wrong raises `ProviderError` with a sentence; what a provider cannot
do raises `NotSupported`. A start is never sent twice by a provider: only the caller knows whether that would do harm.
"""

import math
import sys
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeGuard

import msgspec

from workflowlookup.language.values import Json, Progress, text_or_json
from workflowlookup.providers.config import Options, ProviderConfig
from workflowlookup.providers.secrets import hidden
from workflowlookup.providers.shapes import RemoteState
from workflowlookup.runs.events import RemoteError

if TYPE_CHECKING:
    from workflowlookup.providers.upstream import Upstreams

OnProgress: TypeAlias = Callable[[Progress], None]

MAX_DIGITS: Final = 300
"""The longest whole number that is read as one: a longer one fits no double."""
MAX_RETRY_AFTER: Final = 60.0
"""The longest pause in seconds that another system can ask for."""


class ProviderError(Exception):
    """The provider did not do what it was asked; the text says what, for people."""

    def __init__(  # noqa: PLR0913 - all that is known of a failure
        self,
        message: str,
        *,
        maybe_started: bool = False,
        status: int = 0,
        error: RemoteError | None = None,
        retry_after: float | None = None,
        is_unreadable: bool = False,
    ) -> None:
        super().__init__(message)
        self.maybe_started = maybe_started
        """Of a start: whether a run may be there all the same, because no clear refusal came back."""
        self.status = status
        """The HTTP status of a refusal."""
        self.error = error
        """What the provider said, where it said something."""
        self.retry_after = retry_after
        """How many seconds it asks to be left alone, at most `MAX_RETRY_AFTER`."""
        self.is_unreadable = is_unreadable
        """Whether it did what it was asked, and its answer is more than can be read."""


class RemoteRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a provider has begun."""

    remote_id: str
    """Empty when the answer is the result already, or when nobody can ask about the run."""
    result: "RemoteStatus | None" = None
    """The end, when the provider answers only then."""


class RemoteStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run is, as its provider tells it."""

    state: RemoteState
    output: Json = None
    error: RemoteError | None = None
    """Of a run that failed."""
    progress: Progress | None = None
    said: str = ""
    """The provider's own word for the state."""
    is_known: bool = True
    """Whether that word is one of those that are known here."""
    retry_after: float | None = None
    """How many seconds it asks to be left alone before the next question."""


class Provider(Protocol):
    """A system that has workflows."""

    @property
    def name(self) -> str: ...

    @property
    def options(self) -> Options:
        """What the settings say of it."""

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

    async def cancel(self, workflow_id: str, remote_id: str) -> RemoteState | None:
        """Ask for a run to be stopped; its state as the answer has it, None when the answer does not say.

        Without a `remote_id`: what was under way in a `start` that has just been cancelled.
        """

    async def aclose(self) -> None: ...


def read_json(data: bytes) -> Json:
    """JSON as services write it: the end of a job counts, even if its result is not quite JSON. Raises `ValueError`.

    A byte order mark is skipped; NaN, and numbers that are out of range, become text; what is not Unicode is replaced.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        pass
    import json  # noqa: PLC0415 - rarely needed

    text = data.decode("utf-8-sig", errors="replace")
    try:
        value = json.loads(text, parse_constant=str, parse_int=_whole_number, parse_float=_number)
        plain = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return msgspec.json.decode(plain)
    except RecursionError as problem:
        raise ValueError("nested too deep") from problem


def _whole_number(digits: str) -> int | str:
    return int(digits) if len(digits) <= MAX_DIGITS else digits


def _number(digits: str) -> float | str:
    return number if math.isfinite(number := float(digits)) else digits


def read_progress(raw: Json) -> Progress | None:
    """Progress in any of the forms in which it comes: a number, or an object with done, total and message."""
    if _is_finite(raw):
        return Progress(float(raw), 1.0 if isinstance(raw, float) and raw <= 1 else 100.0, "")
    if not isinstance(raw, Mapping):
        return None
    done = next((raw[name] for name in ("done", "current", "completed", "progress", "percent") if name in raw), None)
    if not _is_finite(done):
        return None
    total = raw.get("total", 100 if "percent" in raw else None)
    message = raw.get("message")
    text = message if isinstance(message, str) else ""
    return Progress(float(done), float(total) if _is_finite(total) else None, text)


def _is_finite(value: Json) -> TypeGuard[int | float]:
    """Whether it is a number that a float can hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


_CODES: Final = ("code", "errorCode", "error_code", "status", "type")
_MESSAGES: Final = ("message", "reason", "detail", "error", "title")
_DETAILS: Final = ("details", "detail", "data", "errors", "stack", "trace")


def read_error(raw: Json) -> RemoteError | None:
    """What a provider says went wrong, in any of the forms in which it comes; None when it says nothing."""
    if raw is None or raw in ("", {}, []):
        return None
    if isinstance(raw, str):
        return RemoteError(message=raw)
    if not isinstance(raw, Mapping):
        return RemoteError(message=text_or_json(raw), detail=raw)
    message = next((raw[name] for name in _MESSAGES if raw.get(name)), None)
    if isinstance(message, Mapping):  # {"error": {"code": …, "message": …}}
        return read_error(message)
    code = next((raw[name] for name in _CODES if isinstance(raw.get(name), str | int)), "")
    detail = next((raw[name] for name in _DETAILS if raw.get(name) and raw[name] is not message), None)
    rest = raw.keys() - {*_CODES, *_MESSAGES}
    return RemoteError(
        code=str(code),
        message=text_or_json(raw if message is None else message),
        detail=detail if detail is not None else {name: raw[name] for name in raw if name in rest} or None,
    )


def hidden_error(error: RemoteError, secrets: Collection[str]) -> RemoteError:
    """What another system said about a failure, without our secrets."""
    if not secrets:
        return error

    def clean(value: Json) -> Json:
        if isinstance(value, str):
            return hidden(value, secrets)
        if isinstance(value, Mapping):
            return {hidden(name, secrets): clean(item) for name, item in value.items()}
        return [clean(item) for item in value] if isinstance(value, list) else value

    return RemoteError(
        code=hidden(error.code, secrets),
        message=hidden(error.message, secrets),
        detail=clean(error.detail),
        output=clean(error.output),
    )


# ── the kinds of providers ───────────────────────────────────────────────────────────────────────────────────────


def _mcp(config: ProviderConfig, upstreams: "Upstreams") -> Provider:
    from workflowlookup.providers.mcp import McpProvider  # noqa: PLC0415 - loaded when there is one

    return McpProvider(config, upstreams)


def _http(config: ProviderConfig, _: "Upstreams") -> Provider:
    from workflowlookup.providers.http import HttpProvider  # noqa: PLC0415

    return HttpProvider(config)


KINDS: Final[Mapping[str, Callable[[ProviderConfig, "Upstreams"], Provider]]] = {"mcp": _mcp, "http": _http}
"""A new kind is a module, its options in `config.OPTIONS`, and one line here."""


def make_provider(config: ProviderConfig, upstreams: "Upstreams") -> Provider:
    """The provider that the settings describe; nothing is asked of it yet."""
    return KINDS[config.kind](config, upstreams)
