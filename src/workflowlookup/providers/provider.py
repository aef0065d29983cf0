"""The contract of a provider: it lists workflows; most can also start one, report its state, and cancel it.

Everything runs on the worker's loop. A failure raises `ProviderError`; an operation that a provider lacks raises
`NotSupported`. A provider never sends a start twice: only the caller knows whether that is safe.
"""

import math
import sys
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeGuard

import msgspec

from workflowlookup.language.text import redact
from workflowlookup.language.values import Json, Progress, text_or_json
from workflowlookup.providers.config import Options, ProviderConfig
from workflowlookup.providers.shapes import RemoteState
from workflowlookup.runs.events import RemoteError

if TYPE_CHECKING:
    from workflowlookup.providers.upstream import Upstreams

OnProgress: TypeAlias = Callable[[Progress], None]

MAX_DIGITS: Final = 300
"""Longer integers are read as text, because no double can hold them."""
MAX_RETRY_AFTER: Final = 60.0
"""Upper bound in seconds for the `Retry-After` of another system."""


class ProviderError(Exception):
    """A request to the provider failed; the message is a sentence for people."""

    def __init__(  # noqa: PLR0913 - keywords
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
        """Of a start: whether the run may exist, because no clear refusal came back."""
        self.status = status
        """The HTTP status of a refusal."""
        self.error = error
        """The error in the answer, if there is one."""
        self.retry_after = retry_after
        """Seconds until the next request, as the provider asks; at most `MAX_RETRY_AFTER`."""
        self.is_unreadable = is_unreadable
        """Whether the request succeeded, but its answer is too long to be read."""


class RemoteRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a provider has started."""

    remote_id: str
    """Empty if the answer is already the result, or if the run's state cannot be requested."""
    result: "RemoteStatus | None" = None
    """The final status, if the provider answers when the run is over."""


class RemoteStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a run, as its provider reports it."""

    state: RemoteState
    output: Json = None
    error: RemoteError | None = None
    """Set if the run failed."""
    progress: Progress | None = None
    word: str = ""
    """The provider's own word for the state."""
    is_known_word: bool = True
    """Whether that word is in `shapes.WORDS` or in the settings."""
    retry_after: float | None = None
    """Seconds until the next request, as the provider asks."""


class Provider(Protocol):
    """A system that has workflows."""

    @property
    def name(self) -> str: ...

    @property
    def options(self) -> Options:
        """Its options from the settings."""

    @property
    def can(self) -> frozenset[str]:
        """Which of "start", "status" and "cancel" it supports."""

    async def list(self) -> Json:
        """The workflows, as `definition.read_definitions` takes them."""

    async def start(
        self, workflow_id: str, arguments: Mapping[str, Json], key: str, on_progress: OnProgress | None = None
    ) -> RemoteRun:
        """Start a run; the request is never sent twice. `on_progress` is for providers that answer with the result."""

    async def status(self, workflow_id: str, remote_id: str) -> RemoteStatus: ...

    async def cancel(self, workflow_id: str, remote_id: str) -> RemoteState | None:
        """Request that a run be cancelled. Returns its state from the answer, None if the answer has none.

        An empty `remote_id` means the work of a `start` that has just been cancelled.
        """

    async def aclose(self) -> None: ...


def read_json(data: bytes) -> Json:
    """Parse JSON leniently, so that a job with a slightly invalid result still ends. Raises `ValueError`.

    A byte order mark is skipped, NaN and numbers out of range become text, and invalid Unicode is replaced.
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
    """Progress in any of its usual forms: a number, or an object with done, total and message."""
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
    """Whether the value is a number that a float can hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


_CODES: Final = ("code", "errorCode", "error_code", "status", "type")
_MESSAGES: Final = ("message", "reason", "detail", "error", "title")
_DETAILS: Final = ("details", "detail", "data", "errors", "stack", "trace")


def read_error(raw: Json) -> RemoteError | None:
    """The error in an answer, in any of its usual forms; None if there is none."""
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


def redact_error(error: RemoteError, secrets: Collection[str]) -> RemoteError:
    """The error of another system with our secrets replaced."""
    if not secrets:
        return error

    def clean(value: Json) -> Json:
        if isinstance(value, str):
            return redact(value, secrets)
        if isinstance(value, Mapping):
            return {redact(name, secrets): clean(item) for name, item in value.items()}
        return [clean(item) for item in value] if isinstance(value, list) else value

    return RemoteError(
        code=redact(error.code, secrets),
        message=redact(error.message, secrets),
        detail=clean(error.detail),
        output=clean(error.output),
    )


# ── the kinds of providers ───────────────────────────────────────────────────────────────────────────────────────


def _mcp(config: ProviderConfig, upstreams: "Upstreams") -> Provider:
    from workflowlookup.providers.mcp import McpProvider  # noqa: PLC0415 - loaded when needed

    return McpProvider(config, upstreams)


def _http(config: ProviderConfig, _: "Upstreams") -> Provider:
    from workflowlookup.providers.http import HttpProvider  # noqa: PLC0415

    return HttpProvider(config)


PROVIDER_KINDS: Final[Mapping[str, Callable[[ProviderConfig, "Upstreams"], Provider]]] = {"mcp": _mcp, "http": _http}
"""A new kind is a module, its options in `config.OPTIONS`, and one line here."""


def make_provider(config: ProviderConfig, upstreams: "Upstreams") -> Provider:
    """The provider that the settings describe; nothing is sent to it yet."""
    return PROVIDER_KINDS[config.kind](config, upstreams)
