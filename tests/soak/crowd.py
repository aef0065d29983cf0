"""Many clients of both eras that lead runs to their end, whatever happens to the servers, and write down what they saw."""

import asyncio
import collections
import itertools
import json
import random
import time
from pathlib import Path
from typing import Any

import httpx2

from replicas.fleet import Sender, reply_of
from support.client import ENVELOPE
from support.json_values import Json, JsonObject
from support.make import document, step, write
from support.web import HEADERS, routing
from workflowlookup.runs.events import CallBegun, OutputAccepted
from workflowlookup.runs.fold import fold
from workflowlookup.runs.run import State
from workflowlookup.store.journal import Journal

STEPS = ("plan", "build", "check")
SETTLE_SECONDS = 90
READ_PAUSE_SECONDS = 0.05
REFUSED = "503 with Retry-After"
UNKNOWN = "outcome unknown"
"""Two of the reasons for which a request is sent again: nothing was changed, or nobody knows whether it was."""


def write_library(directory: Path) -> None:
    """The workflows that members lead runs of; one of them has a call at the provider `up`."""
    write(directory, document(*(step(name) for name in STEPS), identifier="crowd-by-hand"))
    call = {"server": "up", "tool": "echo", "arguments": {"text": "hello"}, "saveAs": "got", "retries": 5}
    work = {"id": "work", "title": "Work", "call": call}
    write(directory, document(step(STEPS[0]), work, identifier="crowd-with-a-call"))


def crowd_http(**options: Any) -> httpx2.AsyncClient:
    """What members send requests with: each has a connection of its own, so that it goes where the balancer likes."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
    headers = HEADERS | options.pop("headers", {})
    return httpx2.AsyncClient(timeout=30, limits=limits, headers=headers, **options)


class Ledger:
    """What the clients were told."""

    def __init__(self) -> None:
        self.outputs: dict[str, dict[str, str]] = {}
        """By run: the outputs whose submission was acknowledged."""
        self.troubles: list[tuple[float, str]] = []
        """When a request failed, and why."""
        self.lies: list[str] = []
        """Answers that no server may give, whatever happens to it."""
        self.seconds: list[float] = []
        self.acknowledged_at: list[float] = []
        self.begun = time.monotonic()
        self.late: list[str] = []
        """When which calls had no answer in time."""

    def acknowledge(self, begun: float) -> None:
        now = time.monotonic()
        self.seconds.append(now - begun)
        self.acknowledged_at.append(now)

    def failures(self, faults: list[tuple[float, float]]) -> list[str]:
        """The requests that failed at no time at which something was done to the servers."""
        return [
            f"{at - self.begun:.1f} s: {problem}"
            for at, problem in self.troubles
            if not any(begun <= at <= ended for begun, ended in faults)
        ]

    @property
    def longest_silence(self) -> float:
        return max((b - a for a, b in itertools.pairwise(self.acknowledged_at)), default=0.0)


class Member:
    """One client: asks again until it has an answer."""

    def __init__(self, name: str, sender: Sender, ledger: Ledger, *, is_modern: bool) -> None:
        self._name = name
        self._sender = sender
        self._ledger = ledger
        self._is_modern = is_modern
        self._session: dict[str, str] = {}
        self._ids = itertools.count(1)

    async def lead_runs(self, until: float) -> None:
        for number in itertools.count():
            if time.monotonic() >= until:
                return
            await self._lead(f"{self._name}-{number}", calls=number % 5 == 4)

    async def read_workflows(self, until: float) -> None:
        """Read what is in no journal."""
        while time.monotonic() < until:
            await self._tool("workflow_get", id="crowd-by-hand")
            await asyncio.sleep(READ_PAUSE_SECONDS)

    async def _lead(self, run: str, *, calls: bool) -> None:
        workflow = "crowd-with-a-call" if calls else "crowd-by-hand"
        outputs = self._ledger.outputs.setdefault(run, {})
        await self._tool("workflow_start", workflowId=workflow, runId=run, wait=False)
        for step_id in STEPS[:1] if calls else STEPS:
            output = f"{run} did {step_id}, {random.random()}"
            await self._tool("workflow_submit", runId=run, stepId=step_id, output=output, wait=False)
            outputs[step_id] = output
        await self._tool("workflow_status", runId=run)

    async def _tool(self, name: str, **arguments: Json) -> JsonObject:
        begun = time.monotonic()
        while True:
            problem = await self._try(name, arguments)
            if isinstance(problem, dict):
                self._ledger.acknowledge(begun)
                return problem
            self._ledger.troubles.append((time.monotonic(), problem))
            await asyncio.sleep(random.uniform(0.1, 0.5))

    async def _try(self, name: str, arguments: JsonObject) -> JsonObject | str:
        """What a tool gave; or in a word why it gave nothing, this time."""
        try:
            if not self._is_modern and not self._session:
                await self._initialize()
            params: JsonObject = {"name": name, "arguments": arguments}
            if self._is_modern:
                params["_meta"] = ENVELOPE
            response, reply = await self._request("tools/call", params)
        except httpx2.TimeoutException:
            self._ledger.late.append(f"{time.monotonic() - self._ledger.begun:.0f} s: {name} {arguments.get('runId')}")
            return "no answer in time"
        except httpx2.HTTPError as problem:
            era = "2026" if self._is_modern else "2025"
            return f"connection: {type(problem).__name__} ({era})"
        if response.status_code == 404 and not self._is_modern:
            self._session = {}
            return "session not found"
        if response.status_code in (502, 503):
            return REFUSED if "retry-after" in response.headers else str(response.status_code)
        if "result" not in reply and "error" not in reply:
            return "cut off"
        result = reply.get("result")
        if result is not None and not result.get("isError"):
            content: JsonObject = result["structuredContent"]
            return content
        return self._judge(name, arguments, json.dumps(reply))

    def _judge(self, name: str, arguments: JsonObject, message: str) -> str:
        """A refusal is honest when it says that the journal is away, or that the server is stopping."""
        if "It is not known whether it was stored" in message:
            return UNKNOWN
        if "journal of runs" in message and "cannot be used" in message:
            return "refused: the journal is away"
        if "server is stopping" in message:
            return "refused: stopping"
        self._ledger.lies.append(f"{name} {arguments}: {message[:600]}")
        return "a lie"

    async def _initialize(self) -> None:
        about = {"capabilities": {}, "clientInfo": {"name": self._name, "version": "1"}}
        response, reply = await self._request("initialize", {"protocolVersion": "2025-11-25", **about})
        if "result" in reply and "mcp-session-id" in response.headers:
            self._session = {
                "mcp-session-id": response.headers["mcp-session-id"],
                "mcp-protocol-version": "2025-11-25",
            }
            note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await self._sender.post(json.dumps(note).encode(), self._session)
        else:
            raise httpx2.ReadError(f"no session: {response.status_code}")

    async def _request(self, method: str, params: JsonObject) -> tuple[httpx2.Response, JsonObject]:
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        headers = self._session | routing(message)
        response = await self._sender.post(json.dumps(message).encode(), headers)
        return response, reply_of(response)


# ── the journal afterwards ──────────────────────────────────────────────────────────────────────────────────────────


def wait_for_calls(journal: Journal) -> None:
    """Runs that the servers go on with by themselves are given their time."""
    end = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < end and (journal.at_work(1) or journal.runs_to_stop()):
        time.sleep(0.5)


def judge(journal: Journal, ledger: Ledger) -> dict[str, list[str]]:
    """What the journal lacks of what was acknowledged, and what it has twice."""
    lost: list[str] = []
    twice: list[str] = []
    unfinished: list[str] = []
    for run_id, outputs in ledger.outputs.items():
        records = journal.read(run_id)
        if not records:
            lost += [run_id] if outputs else []
            continue
        run = fold(run_id, records)
        accepted = collections.Counter(r.event.step_id for r in records if isinstance(r.event, OutputAccepted))
        twice += [f"{run_id} {name}, {count} times" for name, count in accepted.items() if count > 1]
        begun = [(r.event.step_id, r.event.attempt) for r in records if isinstance(r.event, CallBegun)]
        twice += [f"{run_id} call {each}" for each, count in collections.Counter(begun).items() if count > 1]
        if [r.sequence for r in records] != list(range(1, len(records) + 1)):
            twice.append(f"{run_id}: sequences")
        lost += [f"{run_id} {name}" for name, output in outputs.items() if run.results.get(name) != output]
        unfinished += [f"{run_id} {run.state} {records[-1].event}"] if run.state is not State.COMPLETED else []
    return {"lost": lost, "twice": twice, "unfinished": unfinished}
