"""Calls as they are carried out: a tool of an MCP server, or a workflow of another system; and how they are stopped.

Nothing here is durable: the driver stores what happens, and asks again after a crash. A tool may so be called twice,
with the same key. A workflow is never started twice blindly.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from workflowlookup.core.calls import call_arguments
from workflowlookup.core.model import ToolCall, WorkflowCall
from workflowlookup.core.run import Run
from workflowlookup.core.values import Json
from workflowlookup.errors import NotSupported, ProviderAway
from workflowlookup.providers.provider import OnProgress, Provider, ProviderError, RemoteStatus
from workflowlookup.providers.upstream import Stopped, Upstreams

log = logging.getLogger(__name__)

LEAST_PAUSE: Final = 0.025
LATENESS: Final = 0.25
"""By how much of its own time a run may be over before it is asked about."""
STOP_SECONDS: Final = 5.0
"""How long another system may take to stop something."""
LATE_SECONDS: Final = 3.0
"""How long the answer to a start is waited for that is no longer wanted."""
_MOST_SAID: Final = 2_000

Acknowledge = Callable[[str], Awaitable[None]]


class Outcome(msgspec.Struct, frozen=True):
    """What a call gave: the text that is judged, and the value that its variable takes."""

    text: str
    value: Json


class Failure(Exception):
    """The call came to nothing; the text says why. `is_final`: another attempt would do harm, or no good."""

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


class Calls:
    """What is called, and how. For the worker's loop."""

    def __init__(self, upstreams: Upstreams, provider_of: Callable[[str], Provider | None]) -> None:
        self._upstreams = upstreams
        self._provider_of = provider_of

    async def carry_out(
        self, run: Run, on_progress: OnProgress, acknowledge: Acknowledge, *, is_repeated: bool
    ) -> Outcome:
        """The current call of a run, to its end. Raises `Failure`.

        `is_repeated`: it had been begun before, by somebody who did not come to its end.
        """
        call = run.step.call
        arguments = call_arguments(run)
        key = run.calling.key if run.calling else ""
        if isinstance(call, ToolCall):
            return await self._tool(call, arguments, key, on_progress)
        if isinstance(call, WorkflowCall):
            return await self._workflow(run, call, arguments, on_progress, acknowledge, is_repeated=is_repeated)
        raise Failure(f"step '{run.current}' has no call", is_final=True)

    async def stop(self, run: Run, remote_id: str = "") -> Stopped:
        """Stop what runs beneath a call that was just cancelled here."""
        call = run.step.call
        try:
            async with asyncio.timeout(STOP_SECONDS):
                if isinstance(call, ToolCall):
                    return await self._upstreams.stop(call.server)
                if isinstance(call, WorkflowCall):
                    return await self._stop_workflow(call, remote_id)
        except TimeoutError:
            return Stopped(stopped=False, told=f"{_called(call)} did not stop in time: it may still be running")
        return Stopped(stopped=True, told="nothing was running")

    async def stop_orphan(self, run: Run) -> Stopped:
        """Stop what may run beneath a call whose driver is gone."""
        call = run.step.call
        remote_id = run.calling.remote_id if run.calling else ""
        if isinstance(call, WorkflowCall) and remote_id:
            return await self.stop(run, remote_id)
        told = f"the process that made the call has ended: {_called(call)} may still be at work on it"
        return Stopped(stopped=False, told=told)

    # ── tools ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _tool(self, call: ToolCall, arguments: Mapping[str, Json], key: str, on_progress: OnProgress) -> Outcome:
        try:
            result = await self._upstreams.call(call.server, call.tool, arguments, key=key, on_progress=on_progress)
        except ProviderAway as problem:
            raise Failure(problem.remedy) from problem
        if result.is_error:
            raise Failure(result.text[:_MOST_SAID] or "it answered with an error that says nothing")
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
        provider = self._provider(call)
        remote_id, key = (run.calling.remote_id, run.calling.key) if run.calling else ("", "")
        if not remote_id:
            if is_repeated and not provider.idempotent:
                told = f"the server ended while the provider '{call.provider}' was starting it"
                raise Failure(f"{told}. It may be running there, so it is not started again", is_final=True)
            starting = asyncio.ensure_future(self._start(provider, call, arguments, key, on_progress))
            try:
                remote = await asyncio.shield(starting)
            except asyncio.CancelledError:
                await _hear_late(starting, acknowledge if "cancel" in provider.can else None)
                raise
            if isinstance(remote, RemoteStatus):
                return _end(remote, call)
            remote_id = remote
            await acknowledge(remote_id)
        if "status" not in provider.can:
            told = f"The provider '{call.provider}' has begun run {remote_id}, and cannot tell what becomes of it."
            return Outcome(told, {"runId": remote_id, "status": "not supported"})
        return await self._await_end(provider, call, remote_id, on_progress)

    async def _start(
        self, provider: Provider, call: WorkflowCall, arguments: Mapping[str, Json], key: str, on_progress: OnProgress
    ) -> RemoteStatus | str:
        """The id of the run that was begun, or its end."""
        try:
            begun = await provider.start(call.workflow, arguments, key, on_progress)
        except ProviderError as problem:
            doubt = ". It may have been started there all the same" if problem.maybe_started else ""
            raise Failure(f"{problem}{doubt}", is_final=problem.maybe_started and not provider.idempotent) from problem
        except NotSupported as problem:
            raise Failure(problem.remedy, is_final=True) from problem
        return begun.result if begun.result is not None else begun.remote_id

    async def _await_end(
        self, provider: Provider, call: WorkflowCall, remote_id: str, on_progress: OnProgress
    ) -> Outcome:
        """Ask how the run is until it is over: soon at first, then at the provider's pace; patient when it is away."""
        began = asked = time.monotonic()
        is_away = False
        while True:
            answered_in = time.monotonic() - asked
            await asyncio.sleep(pause_before_asking(asked - began, answered_in, provider.interval))
            asked = time.monotonic()
            try:
                status = await provider.status(call.workflow, remote_id)
            except ProviderError as problem:
                if problem.is_lasting:
                    raise Failure(f"{problem}. Run {remote_id} may still be there", is_final=True) from problem
                if not is_away:
                    log.warning("the state of run %s cannot be asked now: %s", remote_id, problem)
                is_away = True
                continue
            except NotSupported as problem:
                raise Failure(problem.remedy, is_final=True) from problem
            is_away = False
            if status.progress is not None:
                on_progress(status.progress)
            if status.state != "running":
                return _end(status, call)

    async def _stop_workflow(self, call: WorkflowCall, remote_id: str) -> Stopped:
        named = f"run {remote_id}" if remote_id else "a run that it was beginning"
        left = f"{named} may still be running there"
        provider = self._provider_of(call.provider)
        if provider is None:
            return Stopped(stopped=False, told=f"the settings no longer name the provider '{call.provider}': {left}")
        if remote_id and "cancel" not in provider.can:
            return Stopped(stopped=False, told=f"the provider '{call.provider}' cannot cancel: {left}")
        try:
            return Stopped(stopped=True, told=await provider.cancel(call.workflow, remote_id))
        except NotSupported:
            return Stopped(stopped=False, told=f"the provider '{call.provider}' cannot cancel: {left}")
        except ProviderError as problem:
            return Stopped(stopped=False, told=f"{problem}: {left}")

    def _provider(self, call: WorkflowCall) -> Provider:
        provider = self._provider_of(call.provider)
        if provider is None:
            raise Failure(f"the settings name no provider '{call.provider}'", is_final=True)
        return provider


def pause_before_asking(waited: float, answered_in: float, interval: float) -> float:
    """How many seconds to leave a provider in peace that was asked about a run, and answered in so many.

    Questions come in proportion to how long the run had been waited for, so that none takes much longer through us than
    it takes, and a long one is not asked about often. What an answer takes is not added to that, up to a half: who is
    slow to answer is not asked without a rest.
    """
    pace = max(LEAST_PAUSE, min(waited * LATENESS, interval))
    return pace - min(answered_in, pace / 2)


async def _hear_late(starting: "asyncio.Future[RemoteStatus | str]", acknowledge: Acknowledge | None) -> None:
    """A start was cancelled under way: what it begins can be cancelled only by its id, which is waited for."""
    if acknowledge is not None:
        await asyncio.wait({starting}, timeout=LATE_SECONDS)
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting}, timeout=LATE_SECONDS)
    if acknowledge is None or not starting.done() or starting.cancelled() or starting.exception() is not None:
        return
    if isinstance(remote_id := starting.result(), str):
        await acknowledge(remote_id)


def _end(status: RemoteStatus, call: WorkflowCall) -> Outcome:
    """What a run that is over gave. Raises `Failure` when that is nothing."""
    if status.state == "failed":
        raise Failure(status.error[:_MOST_SAID] or f"the provider '{call.provider}' says that it failed, and not why")
    if status.state == "cancelled":
        raise Failure(f"it was cancelled at the provider '{call.provider}'", is_final=True)
    text = status.output if isinstance(status.output, str) else msgspec.json.encode(status.output).decode()
    return Outcome(text, status.output)


def _called(call: ToolCall | WorkflowCall | None) -> str:
    if isinstance(call, ToolCall):
        return f"the MCP server '{call.server}'"
    return f"the provider '{call.provider}'" if call else "nothing"
