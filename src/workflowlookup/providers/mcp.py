"""Workflows of an upstream MCP server, reached by its tools for list, start, status and cancel; settings name them.

If a server has no start tool, each workflow is a tool itself: the tool whose name is the workflow's id is called, and
its answer is the result.
"""

import contextlib
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from workflowlookup.errors import NotSupported, ProviderUnavailable
from workflowlookup.language.values import Json
from workflowlookup.providers.config import McpOptions, ProviderConfig
from workflowlookup.providers.definition import sync_ids
from workflowlookup.providers.provider import (
    OnProgress,
    ProviderError,
    RemoteRun,
    RemoteStatus,
    read_error,
    read_json,
    read_progress,
)
from workflowlookup.providers.shapes import RemoteState, meaning_of, state_of

if TYPE_CHECKING:
    from workflowlookup.providers.upstream import CallResult, Upstreams

T = TypeVar("T")

RUN_IDS: Final = ("runId", "run_id", "executionId", "execution_id", "instanceId", "correlation_id", "taskId", "id")
OUTPUTS: Final = ("output", "result", "results", "outputs")
ERRORS: Final = ("error", "reason", "message")


class McpProvider:
    """An MCP server with workflows."""

    def __init__(self, config: ProviderConfig, upstreams: "Upstreams") -> None:
        self.options = msgspec.convert(config.options, McpOptions)
        self.name = config.name
        self._server = self.options.server or config.name
        self._upstreams = upstreams
        self._tools: frozenset[str] | None = None
        """The names of the server's tools, as of the last list."""
        self._sync_ids: frozenset[str] | None = None
        """The workflows whose start returns the result, as of the last list."""

    @property
    def can(self) -> frozenset[str]:
        tools = {"status": self.options.status, "cancel": self.options.cancel}
        return frozenset(("start", *(operation for operation, tool in tools.items() if self._has(tool))))

    def _has(self, tool: str) -> bool:
        return bool(tool) and (self._tools is None or tool in self._tools)

    async def list(self) -> Json:
        tools = await self._reached(self._upstreams.tools(self._server, timeout=self.options.timeout))
        self._tools = frozenset(tool.name for tool in tools)
        workflows: Json = [workflow.listed() for workflow in self.options.workflows]
        if not workflows:
            if self.options.list not in self._tools:
                raise ProviderError(f"the MCP server '{self._server}' has no tool '{self.options.list}'")
            workflows = _value(await self._call(self.options.list, {}), self.options.list, self.name)
        self._sync_ids = sync_ids(workflows)
        return workflows

    async def start(
        self, workflow_id: str, arguments: Mapping[str, Json], key: str, on_progress: OnProgress | None = None
    ) -> RemoteRun:
        if not self._has(self.options.start):
            return await self._run_tool(workflow_id, arguments, key, on_progress)
        start = {"workflowId": workflow_id, "input": dict(arguments)}
        answer = await self._call(self.options.start, start, key=key)
        value = _value(answer, self.options.start, self.name)
        fields = value if isinstance(value, Mapping) else {}
        run_id = next((fields[name] for name in RUN_IDS if isinstance(fields.get(name), str | int)), None)
        if run_id is not None and run_id is not True and run_id is not False:
            return RemoteRun(remote_id=str(run_id))
        if _has_state(fields):
            if (status := _status(fields)).state != "running":
                return RemoteRun(remote_id="", result=status)
        elif await self._is_sync(workflow_id):
            return RemoteRun(remote_id="", result=_completed(value))
        if not self._has(self.options.status):
            return RemoteRun(remote_id="")
        raise ProviderError(
            f"the provider '{self.name}' did not say which run it started: its answer has no 'runId'",
            maybe_started=True,
        )

    async def _is_sync(self, workflow_id: str) -> bool:
        if self._sync_ids is None:
            with contextlib.suppress(ProviderError):
                await self.list()
        return self._sync_ids is not None and workflow_id in self._sync_ids

    async def _run_tool(
        self, tool: str, arguments: Mapping[str, Json], key: str, on_progress: OnProgress | None
    ) -> RemoteRun:
        """Call the tool that is the workflow. It answers when it is done; the run's own timeout applies."""
        if self._tools is not None and tool not in self._tools:
            raise ProviderError(f"the MCP server '{self._server}' has neither '{self.options.start}' nor '{tool}'")
        call = self._upstreams.call(self._server, tool, arguments, key=key, on_progress=on_progress)
        answer = await self._reached(call)
        if answer.is_doubtful:
            raise ProviderError(answer.text[:500], maybe_started=True, error=answer.error)
        if answer.is_error:
            return RemoteRun(remote_id="", result=RemoteStatus(state="failed", error=answer.error))
        return RemoteRun(remote_id="", result=_completed(answer.value))

    async def status(self, workflow_id: str, remote_id: str) -> RemoteStatus:
        value = await self._request("status", self.options.status, workflow_id, remote_id)
        if not isinstance(value, Mapping):
            raise ProviderError(f"the provider '{self.name}' did not answer with the state of a run")
        return _status(value)

    async def cancel(self, workflow_id: str, remote_id: str) -> RemoteState | None:
        if not remote_id:  # cancelled during the start itself
            stopped = await self._upstreams.stop(self._server)
            if stopped.stopped:
                return "cancelled"
            raise NotSupported(f"{stopped.message[:1].upper()}{stopped.message[1:]}.", provider=self.name)
        value = await self._request("cancel", self.options.cancel, workflow_id, remote_id)
        if not isinstance(value, Mapping):
            return None
        if isinstance(is_cancelled := value.get("cancelled"), bool):
            return "cancelled" if is_cancelled else "running"
        return _status(value).state if _has_state(value) else None

    async def aclose(self) -> None:
        """Do nothing: the session belongs to `Upstreams`."""

    async def _request(self, operation: str, tool: str, workflow_id: str, remote_id: str) -> Json:
        if not self._has(tool):
            raise NotSupported(f"The provider '{self.name}' has no tool for this: {operation}.", provider=self.name)
        answer = await self._call(tool, {"workflowId": workflow_id, "runId": remote_id})
        return _value(answer, tool, self.name)

    async def _call(self, tool: str, arguments: Mapping[str, Json], key: str = "") -> "CallResult":
        timeout = self.options.timeout
        return await self._reached(self._upstreams.call(self._server, tool, arguments, key=key, timeout=timeout))

    async def _reached(self, request: Coroutine[Any, Any, T]) -> T:
        """The answer to a request. Raises `ProviderError` if the server is away or too slow."""
        try:
            return await request
        except ProviderUnavailable as problem:
            message = problem.remedy.rstrip(".")
            raise ProviderError(f"{message[:1].lower()}{message[1:]}", maybe_started=problem.was_sent) from problem
        except TimeoutError:
            message = f"the MCP server '{self._server}' did not answer within {self.options.timeout:g} seconds"
            raise ProviderError(message, maybe_started=True) from None


def _value(answer: "CallResult", tool: str, provider: str) -> Json:
    """The value of a tool's answer: structured content, else JSON in its text, else the text."""
    if answer.is_error:
        message = f"the tool '{tool}' of the provider '{provider}' failed: {answer.text[:500]}"
        raise ProviderError(message, maybe_started=answer.is_doubtful, error=answer.error)
    value = answer.structured
    if value is None:
        try:
            value = read_json(answer.text.encode(errors="replace")) if answer.text.strip() else None
        except ValueError:
            value = answer.text
    while isinstance(value, Mapping) and value.keys() == {"result"} and isinstance(value["result"], Mapping | list):
        value = value["result"]  # some servers wrap values that are not objects
    return value


def _has_state(fields: Mapping[str, Json]) -> bool:
    return isinstance(fields.get("status") or fields.get("state"), str)


def _status(fields: Mapping[str, Json]) -> RemoteStatus:
    word = fields.get("status") or fields.get("state")
    state = state_of(word)
    error = next((read_error(fields[name]) for name in ERRORS if fields.get(name)), None) if state == "failed" else None
    return RemoteStatus(
        state=state,
        output=next((fields[name] for name in OUTPUTS if name in fields), None),
        error=error,
        progress=read_progress(fields.get("progress")),
        word=word if isinstance(word, str) else "",
        is_known_word=meaning_of(word) is not None,
    )


def _completed(value: Json) -> RemoteStatus:
    return RemoteStatus(state="completed", output=value)
