"""Makes the calls of runs: a tool of an MCP server, or a workflow of another system. Also stops them.

Nothing here is durable: the driver stores what happens, and makes the call again after a crash. So a tool may be called
twice, with the same key. A workflow is started again only where that cannot start a second run.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from workflowlookup import extras
from workflowlookup.errors import MissingExtra, NotSupported, ProviderUnavailable, Untrusted
from workflowlookup.execution.engine import Slots
from workflowlookup.language.model import ToolCall, WorkflowCall
from workflowlookup.language.text import shorten
from workflowlookup.language.values import Json, Progress
from workflowlookup.providers.provider import OnProgress, Provider, ProviderError, RemoteStatus
from workflowlookup.providers.shapes import RemoteState
from workflowlookup.providers.upstream import StopResult, Upstreams
from workflowlookup.runs.events import RemoteError
from workflowlookup.runs.run import Run
from workflowlookup.runs.server_calls import CallFailure
from workflowlookup.trust import NO_CONSENT, Consent

log = logging.getLogger(__name__)

MIN_POLL_PAUSE: Final = 0.025
MAX_DELAY_SHARE: Final = 0.05
"""The end of a job is noticed after at most this share of the job's duration."""
GONE: Final = frozenset({404, 410})
"""HTTP statuses for a job that does not exist."""
GONE_ANSWERS: Final = 5
GONE_SECONDS: Final = 10.0
"""How often in a row, and for how long, a system must answer so before the job counts as lost: one such answer may come
from a proxy, or from a replica that does not know the job yet."""
START_ATTEMPTS: Final = 5
"""How often a start is sent when that is safe."""
FIRST_PAUSE: Final = 0.5
"""Before a start is sent again; doubled each time, unless the other system asks for more."""
PROVIDER_PAUSE: Final = 0.5
"""Between two checks whether the settings have the provider again."""
STOP_SECONDS: Final = 5.0
"""How long one attempt to stop something may take."""
STOP_PAUSE: Final = 0.1
"""Between two polls of a job that was cancelled and has not ended yet."""
MAX_SHOWN: Final = 1_000
"""Characters of another system's messages in a reason and in the log."""
LATE_SECONDS: Final = 3.0
"""How long to wait for the answer to a start that was cancelled."""

Acknowledge = Callable[[str], Awaitable[None]]


class Outcome(msgspec.Struct, frozen=True):
    """The result of a call: the text that is validated, and the value of its variable."""

    text: str
    value: Json


class CallFailed(Exception):
    """The call failed; `failure` is what the journal stores."""

    def __init__(
        self, reason: str, *, error: RemoteError | None = None, is_final: bool = False, may_run: bool = False
    ) -> None:
        super().__init__(reason)
        self.failure = CallFailure(reason=reason, error=error, is_final=is_final, may_run=may_run)


class OutcomeUnknown(Exception):
    """The call was started, and its outcome cannot be determined."""


class CallRunner:
    """Makes and stops calls. For the worker's loop."""

    def __init__(
        self, upstreams: Upstreams, provider_of: Callable[[str], Provider | None], consent: Consent = NO_CONSENT
    ) -> None:
        """`consent` is checked before every call, so that no call of an untrusted repository is made."""
        self._consent = consent
        self._upstreams = upstreams
        self._provider_of = provider_of
        self._limits: dict[str, Slots] = {}

    async def carry_out(
        self, run: Run, on_progress: OnProgress, acknowledge: Acknowledge, *, is_repeated: bool
    ) -> Outcome:
        """Make the current call of a run, and wait for its end. Raises `CallFailed` and `OutcomeUnknown`.

        `is_repeated`: the call was begun before, by a process that did not finish it.
        """
        if refusal := self._refusal(run):
            raise CallFailed(refusal, is_final=True)
        call = run.step.call
        arguments = run.call_arguments
        key = run.calling.key if run.calling else ""
        if isinstance(call, ToolCall):
            return await self._tool(call, arguments, key, on_progress)
        if isinstance(call, WorkflowCall):
            return await self._workflow(run, call, arguments, on_progress, acknowledge, is_repeated=is_repeated)
        raise CallFailed(f"step '{run.current}' has no call", is_final=True)

    def limit_of(self, call: ToolCall | WorkflowCall | None) -> Slots | None:
        """The slots of the provider of a call; None when it has no limit of its own."""
        provider = self._provider_of(call.provider) if isinstance(call, WorkflowCall) else None
        if provider is None or not provider.options.max_concurrent:
            return None
        limit = self._limits.setdefault(provider.name, Slots(provider.options.max_concurrent))
        limit.set_limit(provider.options.max_concurrent)
        return limit

    def seconds_of(self, call: ToolCall | WorkflowCall | None) -> float | None:
        """The time limit of a call: that of its step, else that of its provider in the settings."""
        if call is None:
            return None
        if call.timeout_seconds is not None:
            return call.timeout_seconds
        provider = self._provider_of(call.provider) if isinstance(call, WorkflowCall) else None
        return provider.options.timeout_seconds if provider is not None else None

    def is_safe_to_repeat(self, call: ToolCall | WorkflowCall | None) -> bool:
        """Whether a call may be repeated while the last attempt may still be running."""
        provider = self._provider_of(call.provider) if isinstance(call, WorkflowCall) else None
        return not isinstance(call, WorkflowCall) or (provider is not None and provider.options.idempotent)

    def _refusal(self, run: Run) -> str:
        """Why the current call of a run may not be made; empty when it may."""
        try:
            extras.require(extras.CALLS)
            self._consent.refuse_untrusted(run.origin, run.workflow.document, run.step.id)
        except (MissingExtra, Untrusted) as refusal:
            return refusal.remedy
        return ""

    async def stop(self, run: Run, remote_id: str = "") -> StopResult:
        """Stop the remote work of a call that was just cancelled here."""
        call = run.step.call
        try:
            async with asyncio.timeout(STOP_SECONDS):
                if isinstance(call, ToolCall):
                    return await self._upstreams.stop(call.server)
                if isinstance(call, WorkflowCall):
                    return await self._stop_workflow(call, remote_id)
        except TimeoutError:
            reason = f"{_target(call)} did not say within {STOP_SECONDS:g} seconds that it stopped"
            return StopResult(stopped=False, message=f"{reason}: it may still be running", is_pending=bool(remote_id))
        return StopResult(stopped=True, message="nothing was running")

    async def stop_orphan(self, run: Run) -> StopResult:
        """Stop the remote work of a call that has no driver."""
        if refusal := self._refusal(run):
            message = f"it was not stopped, because it may not be called. {refusal.rstrip('.')}"
            return StopResult(stopped=False, message=message)
        call = run.step.call
        remote_id = run.calling.remote_id if run.calling else ""
        if isinstance(call, WorkflowCall) and remote_id:
            return await self.stop(run, remote_id)
        message = f"the process that made the call has ended: {_target(call)} may still be at work on it"
        return StopResult(stopped=False, message=message)

    # ── tools ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _tool(self, call: ToolCall, arguments: Mapping[str, Json], key: str, on_progress: OnProgress) -> Outcome:
        try:
            result = await self._upstreams.call(call.server, call.tool, arguments, key=key, on_progress=on_progress)
        except ProviderUnavailable as problem:
            raise CallFailed(problem.remedy) from problem
        if result.is_error:
            raise CallFailed(_reason(result.error) or "it answered with an error that says nothing", error=result.error)
        return Outcome(result.text, result.value)

    # ── workflows of providers ──────────────────────────────────────────────────────────────────────────────────

    async def _workflow(  # noqa: PLR0913 - everything a call has
        self,
        run: Run,
        call: WorkflowCall,
        arguments: Mapping[str, Json],
        on_progress: OnProgress,
        acknowledge: Acknowledge,
        *,
        is_repeated: bool,
    ) -> Outcome:
        remote_id, key = (run.calling.remote_id, run.calling.key) if run.calling else ("", "")
        provider = await self._await_provider(call, on_progress) if remote_id else self._provider(call)
        if not remote_id:
            if is_repeated and not provider.options.idempotent:
                message = f"the server ended while the provider '{call.provider}' was starting it"
                reason = f"{message}. It may be running there, so it is not started again"
                raise CallFailed(reason, is_final=True, may_run=True)
            start = self._start(provider, call, arguments, key, on_progress, is_repeated=is_repeated)
            starting = asyncio.ensure_future(start)
            try:
                remote = await asyncio.shield(starting)
            except asyncio.CancelledError:
                await _await_late_start(starting, call, acknowledge if "cancel" in provider.can else None)
                raise
            if isinstance(remote, RemoteStatus):
                return _end(remote, call)
            remote_id = remote
            if remote_id:
                await acknowledge(remote_id)
        if not remote_id:
            raise OutcomeUnknown(f"the provider '{call.provider}' did not say which run it started")
        if "status" not in provider.can:
            raise OutcomeUnknown(f"the provider '{call.provider}' has no way to ask about a run")
        return await self._await_end(provider, call, remote_id, on_progress)

    async def _start(  # noqa: PLR0913 - as above
        self,
        provider: Provider,
        call: WorkflowCall,
        arguments: Mapping[str, Json],
        key: str,
        on_progress: OnProgress,
        *,
        is_repeated: bool,
    ) -> RemoteStatus | str:
        """Start a workflow; returns the id of the remote run, or its end.

        The start is repeated only if that cannot start a second run: after a clear refusal (429), or after any doubtful
        answer if the provider honours idempotency keys. A refusal after a doubtful answer does not resolve the doubt:
        the first request may have started a run.
        """
        is_doubtful = is_repeated
        for attempt in itertools.count(1):
            try:
                begun = await provider.start(call.workflow, arguments, key, on_progress)
            except ProviderError as problem:
                if problem.is_unreadable:
                    raise OutcomeUnknown(str(problem)) from problem
                is_doubtful = is_doubtful or problem.maybe_started
                is_safe = problem.status == 429 or (is_doubtful and provider.options.idempotent)
                if is_safe and attempt < START_ATTEMPTS:
                    pause = max(FIRST_PAUSE * 2 ** (attempt - 1), problem.retry_after or 0.0)
                    message = f"{problem}; retrying in {pause:g} seconds"
                    log.warning("the start of workflow '%s' was not accepted: %s", call.workflow, message)
                    on_progress(Progress(0, None, message))
                    await asyncio.sleep(pause)
                    continue
                doubt = ". It may have been started there all the same" if is_doubtful else ""
                raise CallFailed(
                    f"{problem}{doubt}",
                    error=problem.error,
                    is_final=is_doubtful and not provider.options.idempotent,
                    may_run=is_doubtful,
                ) from problem
            except NotSupported as problem:
                raise CallFailed(problem.remedy, is_final=True) from problem
            return begun.result if begun.result is not None else begun.remote_id
        raise AssertionError  # unreachable: the loop does not end

    async def _await_end(
        self, provider: Provider, call: WorkflowCall, remote_id: str, on_progress: OnProgress
    ) -> Outcome:
        """Poll the remote run until it is over: often at first, then at the provider's interval.

        If its state cannot be determined, polling continues. The reason is part of the progress, and logged when it
        changes.
        """
        began = polled = time.monotonic()
        progress, trouble = Progress(0, None, ""), ""
        pause, gone, gone_since = 0.0, 0, 0.0
        while True:
            poll_pause = pause_before_poll(polled - began, time.monotonic() - polled, provider.options.interval)
            await asyncio.sleep(max(poll_pause, pause))
            polled = time.monotonic()
            try:
                status = await provider.status(call.workflow, remote_id)
            except ProviderError as problem:
                if problem.is_unreadable:
                    raise OutcomeUnknown(str(problem)) from problem
                gone = gone + 1 if problem.status in GONE else 0
                gone_since = polled if gone == 1 else gone_since
                if gone >= GONE_ANSWERS and polled - gone_since >= GONE_SECONDS:
                    raise OutcomeUnknown(f"{problem}, {gone} times in a row") from problem
                pause = problem.retry_after or 0.0
                message = f"its state cannot be read at present: {problem}; retrying"
                trouble = _log_trouble(trouble, message, remote_id)
                on_progress(msgspec.structs.replace(progress, message=trouble))
                continue
            except NotSupported as problem:
                raise OutcomeUnknown(problem.remedy.rstrip(".")) from problem
            pause, gone = status.retry_after or 0.0, 0
            if status.state != "running":
                return _end(status, call)
            word = f"'{status.word[:MAX_SHOWN]}', a word that is not known" if status.word else "not in the answer"
            unknown = "" if status.is_known_word else f"its state is {word}: it is taken to be running"
            trouble, was_in_trouble = _log_trouble(trouble, unknown, remote_id), bool(trouble)
            progress = status.progress or progress
            if trouble:
                on_progress(msgspec.structs.replace(progress, message=trouble))
            elif status.progress is not None or was_in_trouble:
                on_progress(progress)

    async def _stop_workflow(self, call: WorkflowCall, remote_id: str) -> StopResult:
        """Cancel a remote run. It counts as stopped when the provider confirms that; otherwise it is tried again."""
        remote_run = f"run {remote_id}" if remote_id else "a run that it was beginning"
        may_run = f"{remote_run} may still be running there"
        provider = self._provider_of(call.provider)
        if provider is None:
            return StopResult(
                stopped=False, message=f"the settings no longer name the provider '{call.provider}': {may_run}"
            )
        unable = StopResult(stopped=False, message=f"the provider '{call.provider}' cannot cancel: {may_run}")
        if remote_id and "cancel" not in provider.can:
            return unable
        try:
            state, doubt = await provider.cancel(call.workflow, remote_id), None
        except NotSupported:
            return unable
        except ProviderError as problem:
            if problem.status in (405, 501):  # Method Not Allowed, Not Implemented
                return unable
            state, doubt = None, problem
        if "status" not in provider.can or not remote_id:
            if doubt is None and state != "running":
                return StopResult(stopped=True, message=f"the provider '{call.provider}' cancelled {remote_run}")
            message = doubt or f"the provider '{call.provider}' says that it did not cancel {remote_run}"
            return StopResult(stopped=False, message=f"{message}: {may_run}", is_pending=bool(remote_id))
        return await self._await_cancelled(provider, call, remote_id, state, doubt)

    async def _await_cancelled(
        self, provider: Provider, call: WorkflowCall, remote_id: str, state: RemoteState | None, doubt: Exception | None
    ) -> StopResult:
        """Poll a remote run that was asked to cancel, until the provider says how it ended."""
        name, may_run = f"the provider '{call.provider}'", f"run {remote_id} may still be running there"
        deadline = time.monotonic() + STOP_SECONDS / 2
        while state in (None, "running"):
            try:
                state = (await provider.status(call.workflow, remote_id)).state
            except (ProviderError, NotSupported) as problem:
                if getattr(problem, "status", 0) in GONE and getattr(doubt, "status", 0) in GONE:
                    message = f"{name} no longer knows run {remote_id}: whether it was stopped cannot be known"
                    return StopResult(stopped=False, message=message)
                doubt = doubt or problem
            if state in (None, "running"):
                if doubt is not None or time.monotonic() >= deadline:
                    reason = doubt or f"{name} was asked to cancel run {remote_id}, which has not ended yet"
                    return StopResult(stopped=False, message=f"{reason}: {may_run}", is_pending=True)
                await asyncio.sleep(STOP_PAUSE)
        if state == "cancelled":
            return StopResult(stopped=True, message=f"{name} cancelled run {remote_id}")
        log.warning("the result of run %s at the provider '%s' is lost: it had %s", remote_id, call.provider, state)
        return StopResult(stopped=True, message=f"run {remote_id} had {state} at {name} before it could be cancelled")

    async def _await_provider(self, call: WorkflowCall, on_progress: OnProgress) -> Provider:
        """The provider of a remote run. If the settings no longer have it, wait, because that may be a mistake."""
        while (provider := self._provider_of(call.provider)) is None:
            message = (
                f"the settings have no usable provider '{call.provider}' any more; the call continues when they do"
            )
            on_progress(Progress(0, None, message))
            await asyncio.sleep(PROVIDER_PAUSE)
        return provider

    def _provider(self, call: WorkflowCall) -> Provider:
        provider = self._provider_of(call.provider)
        if provider is None:
            raise CallFailed(f"the settings name no provider '{call.provider}'", is_final=True)
        return provider


def pause_before_poll(elapsed: float, response_seconds: float, interval: float) -> float:
    """Seconds until the next poll of a remote run.

    The pause grows with the time that the run has taken, up to the provider's interval: the end of a short run is
    noticed soon, and a long run is not polled often. The response time counts towards the pause, up to a half of it, so
    that a slow provider gets a rest.
    """
    pause = max(MIN_POLL_PAUSE, min(elapsed * MAX_DELAY_SHARE, interval))
    return pause - min(response_seconds, pause / 2)


def _log_trouble(before: str, now: str, remote_id: str) -> str:
    """Log why the state of a remote run is unknown, if that is new; returns the reason."""
    if now and now != before:
        log.warning("run %s at another system: %s", remote_id, now)
    return now


async def _await_late_start(
    starting: "asyncio.Future[RemoteStatus | str]", call: WorkflowCall, acknowledge: Acknowledge | None
) -> None:
    """After a start was cancelled: wait for the id of the run that it may begin; cancelling it needs the id."""
    if acknowledge is not None:
        await asyncio.wait({starting}, timeout=LATE_SECONDS)
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting}, timeout=LATE_SECONDS)
    if not starting.done() or starting.cancelled() or starting.exception() is not None:
        return
    begun = starting.result()
    if isinstance(begun, str):
        if acknowledge is not None:
            await acknowledge(begun)
    else:
        log.warning("the result of workflow '%s' came too late and is lost: it had %s", call.workflow, begun.state)


def _end(status: RemoteStatus, call: WorkflowCall) -> Outcome:
    """The outcome of a run that is over. Raises `CallFailed` if it has none, and `OutcomeUnknown` if it is not over."""
    if status.state == "failed":
        error = status.error or RemoteError()
        if status.output is not None:
            error = msgspec.structs.replace(error, output=status.output)
        reason = _reason(error) or f"the provider '{call.provider}' says that it failed, and not why"
        raise CallFailed(reason, error=error)
    if status.state == "cancelled":
        raise CallFailed(f"it was cancelled at the provider '{call.provider}'", is_final=True)
    if status.state == "running":
        raise OutcomeUnknown(f"the provider '{call.provider}' did not say which run it started")
    text = status.output if isinstance(status.output, str) else msgspec.json.encode(status.output).decode()
    return Outcome(text, status.output)


def _reason(error: RemoteError) -> str:
    """The error message of another system, short enough for the log; the journal has more of it."""
    message = shorten(error.message, MAX_SHOWN)
    code = error.code[:MAX_SHOWN]
    return f"{message} (code {code})" if code and message else message or code


def _target(call: ToolCall | WorkflowCall | None) -> str:
    if isinstance(call, ToolCall):
        return f"the MCP server '{call.server}'"
    return f"the provider '{call.provider}'" if call else "nothing"
