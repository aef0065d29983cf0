"""Many clients of both eras that lead runs to their end, whatever happens to the servers, and write down what they saw."""

import asyncio
import collections
import itertools
import json
import random
import time
from typing import Any

import httpx2

from client import ENVELOPE
from web import HEADERS, routing

STEPS = ("plan", "build", "check")
Object = dict[str, Any]


class Ledger:
    """What the clients were told."""

    def __init__(self) -> None:
        self.outputs: dict[str, dict[str, str]] = {}
        """By run: the outputs whose submission was acknowledged."""
        self.troubles: collections.Counter[str] = collections.Counter()
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

    @property
    def longest_silence(self) -> float:
        return max((b - a for a, b in itertools.pairwise(self.acknowledged_at)), default=0.0)


class Member:
    """One client: asks again until it has an answer."""

    def __init__(self, name: str, url: str, ledger: Ledger, *, is_modern: bool) -> None:
        self._name = name
        self._url = url
        self._ledger = ledger
        self._is_modern = is_modern
        self._session: dict[str, str] = {}
        self._ids = itertools.count(1)
        limits = httpx2.Limits(max_keepalive_connections=0)  # each request goes where the balancer likes
        self._http = httpx2.AsyncClient(timeout=30, headers=HEADERS, limits=limits)

    async def lead_runs(self, until: float) -> None:
        try:
            for number in itertools.count():
                if time.monotonic() >= until:
                    return
                await self._lead(f"{self._name}-{number}", calls=number % 5 == 4)
        finally:
            await self._http.aclose()

    async def _lead(self, run: str, *, calls: bool) -> None:
        workflow = "with-a-call" if calls else "by-hand"
        outputs = self._ledger.outputs.setdefault(run, {})
        await self._tool("workflow_start", workflowId=workflow, runId=run, wait=False)
        for step in STEPS[:1] if calls else STEPS:
            said = f"{run} did {step}, {random.random()}"
            await self._tool("workflow_submit", runId=run, stepId=step, output=said, wait=False)
            outputs[step] = said

    async def _tool(self, name: str, **arguments: Any) -> Object:
        begun = time.monotonic()
        while True:
            problem = await self._try(name, arguments)
            if isinstance(problem, dict):
                self._ledger.acknowledge(begun)
                return problem
            self._ledger.troubles[problem] += 1
            await asyncio.sleep(random.uniform(0.1, 0.5))

    async def _try(self, name: str, arguments: Object) -> Object | str:
        """What a tool gave; or in a word why it gave nothing, this time."""
        try:
            if not self._is_modern and not self._session:
                await self._initialize()
            params: Object = {"name": name, "arguments": arguments}
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
            return str(response.status_code)
        if not reply:
            return "cut off"
        result = reply.get("result")
        if result is not None and not result.get("isError"):
            told: Object = result["structuredContent"]
            return told
        return self._judge(name, arguments, json.dumps(reply))

    def _judge(self, name: str, arguments: Object, told: str) -> str:
        """A refusal is honest when it says that the journal is away, or that the server is stopping."""
        if "journal of runs" in told and "cannot be used" in told:
            return "refused: the journal is away"
        if "server is stopping" in told:
            return "refused: stopping"
        self._ledger.lies.append(f"{name} {arguments}: {told[:600]}")
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
            await self._http.post(self._url, content=json.dumps(note).encode(), headers=self._session)
        else:
            raise httpx2.ReadError(f"no session: {response.status_code}")

    async def _request(self, method: str, params: Object) -> tuple[httpx2.Response, Object]:
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        headers = self._session | routing(message)
        response = await self._http.post(self._url, content=json.dumps(message).encode(), headers=headers)
        return response, _reply(response, message["id"])


def _reply(response: httpx2.Response, identifier: object) -> Object:
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        items = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]
        return next((item for item in items if item.get("id") == identifier and "method" not in item), {})
    try:
        found = response.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
