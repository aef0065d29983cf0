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

LEAST_PAUSE: Final = 0.025
LATENESS: Final = 0.05
"""The share of its own time by which a job may be over before that is noticed."""
GONE: Final = frozenset({404, 410})
"""HTTP statuses by which a system says that it has no such job."""
GONE_ANSWERS: Final = 5
GONE_SECONDS: Final = 10.0
"""How often, and for how long, a system must say so in a row before the job counts as lost: one such answer may come
from a proxy, or from a replica that has not heard of the job yet."""
START_ATTEMPTS: Final = 5
"""How often a start is sent where that is safe."""
FIRST_PAUSE: Final = 0.5
"""Before a start is sent again; doubled each time, unless the other system asks for more."""
PROVIDER_PAUSE: Final = 0.5
"""Between two looks at whether the settings have a provider again."""
STOP_SECONDS: Final = 5.0
"""How long one attempt to stop something may take."""
STOP_PAUSE: Final = 0.1
"""Between two questions about a job that was cancelled and has not ended yet."""
MAX_SHOWN: Final = 1_000
"""How many characters of another system's words stand in a reason and in the log."""
LATE_SECONDS: Final = 3.0
"""How long the answer to a start is waited for that is no longer wanted."""

Acknowledge = Callable[[str], Awaitable[None]]


class Outcome(msgspec.Struct, frozen=True):
    """What a call gave: the text that is judged, and the value that its variable takes."""

    text: str
    value: Json


class CallFailed(Exception):
    """The call came to nothing; the text says why, and `known` what the journal takes."""

    def __init__(
        self, reason: str, *, error: RemoteError | None = None, is_final: bool = False, may_run: bool = False
    ) -> None:
        super().__init__(reason)
        self.known = CallFailure(reason=reason, error=error, is_final=is_final, may_run=may_run)


class OutcomeUnknown(Exception):
    """The call was started, and its end cannot be known; the text says why."""


class CallRunner:
    """What is called, and how. For the worker's loop."""

    def __init__(
        self, upstreams: Upstreams, provider_of: Callable[[str], Provider | None], consent: Consent = NO_CONSENT
    ) -> None:
        """`consent` is asked for every call, so that none is made that a repository brought and nobody trusted."""
        self._consent = consent
        self._upstreams = upstreams
        self._provider_of = provider_of
        self._limits: dict[str, Slots] = {}

    async def carry_out(
        self, run: Run, on_progress: OnProgress, acknowledge: Acknowledge, *, is_repeated: bool
    ) -> Outcome:
        """The current call of a run, to its end. Raises `CallFailed` and `OutcomeUnknown`.

        `is_repeated`: it had been begun before, by somebody who did not come to its end.
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
        """How long a call may take: what its step says, else what the settings say of its provider."""
        if call is None:
            return None
        if call.timeout_seconds is not None:
            return call.timeout_seconds
        provider = self._provider_of(call.provider) if isinstance(call, WorkflowCall) else None
        return provider.options.timeout_seconds if provider is not None else None

    def is_safe_to_repeat(self, call: ToolCall | WorkflowCall | None) -> bool:
        """Whether a call may be made again while the last one may still be running."""
        provider = self._provider_of(call.provider) if isinstance(call, WorkflowCall) else None
        return not isinstance(call, WorkflowCall) or (provider is not None and provider.options.idempotent)

    def _refusal(self, run: Run) -> str:
        """Why the current call of a run must not be made; empty when it may."""
        try:
            extras.require(extras.CALLS)
            self._consent.refuse_untrusted(run.origin, run.workflow.document, run.step.id)
        except (MissingExtra, Untrusted) as refusal:
            return refusal.remedy
        return ""

    async def stop(self, run: Run, remote_id: str = "") -> StopResult:
        """Stop what runs beneath a call that was just cancelled here."""
        call = run.step.call
        try:
            async with asyncio.timeout(STOP_SECONDS):
                if isinstance(call, ToolCall):
                    return await self._upstreams.stop(call.server)
                if isinstance(call, WorkflowCall):
                    return await self._stop_workflow(call, remote_id)
        except TimeoutError:
            left = f"{_called(call)} did not say within {STOP_SECONDS:g} seconds that it stopped"
            return StopResult(stopped=False, message=f"{left}: it may still be running", is_pending=bool(remote_id))
        return StopResult(stopped=True, message="nothing was running")

    async def stop_orphan(self, run: Run) -> StopResult:
        """Stop what may run beneath a call whose driver is gone."""
        if refusal := self._refusal(run):
            message = f"it was not stopped, because it may not be called. {refusal.rstrip('.')}"
            return StopResult(stopped=False, message=message)
        call = run.step.call
        remote_id = run.calling.remote_id if run.calling else ""
        if isinstance(call, WorkflowCall) and remote_id:
            return await self.stop(run, remote_id)
        message = f"the process that made the call has ended: {_called(call)} may still be at work on it"
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

    # ── workflows of others ─────────────────────────────────────────────────────────────────────────────────────

    async def _workflow(  # noqa: PLR0913 - all that is known of it
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
        provider = await self._provider_again(call, on_progress) if remote_id else self._provider(call)
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
                await _hear_late(starting, call, acknowledge if "cancel" in provider.can else None)
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
        """The id of the run that was begun, or its end.

        It is sent again only where that cannot begin a second run: after a clear refusal for now (429), and after any
        doubtful answer where the provider honours keys. What one answer left in doubt, a later refusal does not settle:
        it is about the second request, and the first may have begun a run.
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
                    message = f"{problem}; it is sent again in {pause:g} seconds"
                    log.warning("the start of workflow '%s' was not taken: %s", call.workflow, message)
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
        raise AssertionError  # the loop has no end of its own

    async def _await_end(
        self, provider: Provider, call: WorkflowCall, remote_id: str, on_progress: OnProgress
    ) -> Outcome:
        """Poll the run until it is over: soon at first, then at the provider's pace; patient when it is away.

        What keeps its state from being known is part of its progress, and logged when it changes.
        """
        began = asked = time.monotonic()
        progress, trouble = Progress(0, None, ""), ""
        pause, gone, gone_since = 0.0, 0, 0.0
        while True:
            pace = pause_before_asking(asked - began, time.monotonic() - asked, provider.options.interval)
            await asyncio.sleep(max(pace, pause))
            asked = time.monotonic()
            try:
                status = await provider.status(call.workflow, remote_id)
            except ProviderError as problem:
                if problem.is_unreadable:
                    raise OutcomeUnknown(str(problem)) from problem
                gone = gone + 1 if problem.status in GONE else 0
                gone_since = asked if gone == 1 else gone_since
                if gone >= GONE_ANSWERS and asked - gone_since >= GONE_SECONDS:
                    raise OutcomeUnknown(f"{problem}, {gone} times in a row") from problem
                pause = problem.retry_after or 0.0
                unasked = f"its state cannot be asked now: {problem}; it is asked again"
                trouble = _note_trouble(trouble, unasked, remote_id)
                on_progress(msgspec.structs.replace(progress, message=trouble))
                continue
            except NotSupported as problem:
                raise OutcomeUnknown(problem.remedy.rstrip(".")) from problem
            pause, gone = status.retry_after or 0.0, 0
            if status.state != "running":
                return _end(status, call)
            said = f"'{status.word[:MAX_SHOWN]}', a word that is not known" if status.word else "not in the answer"
            unknown = "" if status.is_known_word else f"its state is {said}: it is taken to be running"
            trouble, was_in_trouble = _note_trouble(trouble, unknown, remote_id), bool(trouble)
            progress = status.progress or progress
            if trouble:
                on_progress(msgspec.structs.replace(progress, message=trouble))
            elif status.progress is not None or was_in_trouble:
                on_progress(progress)

    async def _stop_workflow(self, call: WorkflowCall, remote_id: str) -> StopResult:
        """Ask for a run to be cancelled. It is stopped when the provider says so; what is in doubt is tried again."""
        named = f"run {remote_id}" if remote_id else "a run that it was beginning"
        left = f"{named} may still be running there"
        provider = self._provider_of(call.provider)
        if provider is None:
            return StopResult(
                stopped=False, message=f"the settings no longer name the provider '{call.provider}': {left}"
            )
        unable = StopResult(stopped=False, message=f"the provider '{call.provider}' cannot cancel: {left}")
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
                return StopResult(stopped=True, message=f"the provider '{call.provider}' cancelled {named}")
            message = doubt or f"the provider '{call.provider}' says that it did not cancel {named}"
            return StopResult(stopped=False, message=f"{message}: {left}", is_pending=bool(remote_id))
        return await self._see_end(provider, call, remote_id, state, doubt)

    async def _see_end(
        self, provider: Provider, call: WorkflowCall, remote_id: str, state: RemoteState | None, doubt: Exception | None
    ) -> StopResult:
        """What becomes of a run that was asked to end, by the word of its provider."""
        who, left = f"the provider '{call.provider}'", f"run {remote_id} may still be running there"
        deadline = time.monotonic() + STOP_SECONDS / 2
        while state in (None, "running"):
            try:
                state = (await provider.status(call.workflow, remote_id)).state
            except (ProviderError, NotSupported) as problem:
                if getattr(problem, "status", 0) in GONE and getattr(doubt, "status", 0) in GONE:
                    message = f"{who} no longer knows run {remote_id}: whether it was stopped cannot be known"
                    return StopResult(stopped=False, message=message)
                doubt = doubt or problem
            if state in (None, "running"):
                if doubt is not None or time.monotonic() >= deadline:
                    why = doubt or f"{who} was asked to cancel run {remote_id}, which has not ended yet"
                    return StopResult(stopped=False, message=f"{why}: {left}", is_pending=True)
                await asyncio.sleep(STOP_PAUSE)
        if state == "cancelled":
            return StopResult(stopped=True, message=f"{who} cancelled run {remote_id}")
        log.warning("the result of run %s at the provider '%s' is lost: it had %s", remote_id, call.provider, state)
        return StopResult(stopped=True, message=f"run {remote_id} had {state} at {who} before it could be cancelled")

    async def _provider_again(self, call: WorkflowCall, on_progress: OnProgress) -> Provider:
        """The provider of a run that was begun there. Settings that have lost it may be a mistake: it is waited for."""
        while (provider := self._provider_of(call.provider)) is None:
            message = (
                f"the settings no longer have a usable provider '{call.provider}'; it goes on when they have it again"
            )
            on_progress(Progress(0, None, message))
            await asyncio.sleep(PROVIDER_PAUSE)
        return provider

    def _provider(self, call: WorkflowCall) -> Provider:
        provider = self._provider_of(call.provider)
        if provider is None:
            raise CallFailed(f"the settings name no provider '{call.provider}'", is_final=True)
        return provider


def pause_before_asking(waited: float, answered_in: float, interval: float) -> float:
    """How many seconds to leave a provider in peace that was asked about a run, and answered in so many.

    Questions come in proportion to how long the run had been waited for, so that none takes much longer through us than
    it takes, and a long one is not asked about often. The time of an answer counts towards the pause, up to a half of
    it: a provider that is slow to answer gets a rest.
    """
    pace = max(LEAST_PAUSE, min(waited * LATENESS, interval))
    return pace - min(answered_in, pace / 2)


def _note_trouble(before: str, now: str, remote_id: str) -> str:
    """What keeps the state of a run from being known now; logged when it is not the same as before."""
    if now and now != before:
        log.warning("run %s at another system: %s", remote_id, now)
    return now


async def _hear_late(
    starting: "asyncio.Future[RemoteStatus | str]", call: WorkflowCall, acknowledge: Acknowledge | None
) -> None:
    """A start was cancelled under way: what it begins can be cancelled only by its id, which is waited for."""
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
    """What another system said went wrong, short enough for the log; the journal has more of it."""
    message = shorten(error.message, MAX_SHOWN)
    code = error.code[:MAX_SHOWN]
    return f"{message} (code {code})" if code and message else message or code


def _called(call: ToolCall | WorkflowCall | None) -> str:
    if isinstance(call, ToolCall):
        return f"the MCP server '{call.server}'"
    return f"the provider '{call.provider}'" if call else "nothing"
