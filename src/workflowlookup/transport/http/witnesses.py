"""The HTTP interface of witnesses, which take proofs where the server cannot see the files: claim, renew, report.

Rights are checked in `auth.scoped`, and what a witness sends in `runs.witnessing`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from workflowlookup.auth.authentication import Authenticator
from workflowlookup.auth.callers import ACCESS, CALLER
from workflowlookup.auth.scoped import ScopedWitness
from workflowlookup.errors import (
    Forbidden,
    InvalidParams,
    RunNotFound,
    RunStateError,
    StorageError,
    WorkflowLookupError,
    WorkflowNotFound,
)
from workflowlookup.library.catalog import CatalogView
from workflowlookup.runs.proofs.witnessing import CLAIMS_PER_WAIT, WitnessReport
from workflowlookup.shares import Holding, Shares
from workflowlookup.transport.http.auth_middleware import AuthMiddleware
from workflowlookup.transport.http.bodies import read_body
from workflowlookup.transport.http.metrics import Metrics
from workflowlookup.transport.http.rate_limits import RateLimiter

PREFIX: Final = "/witness"
WAIT_SECONDS: Final = 20.0
"""How long a claim waits until something is due."""
POLL_SECONDS: Final = 0.5
MAX_BYTES: Final = 2 << 20
"""Of a report: a snapshot names up to 5,000 files."""
MAX_RUNS: Final = 100
MAX_ROOTS: Final = 10
MAX_WAITING: Final = 1_000
"""How many claims may wait at once; one caller gets its share of them."""
MIN_CLAIM_SECONDS: Final = 3.0

_STATUS: Final[tuple[tuple[type[WorkflowLookupError], int], ...]] = (
    (Forbidden, 403),
    (RunNotFound, 404),
    (WorkflowNotFound, 404),
    (RunStateError, 409),
    (InvalidParams, 400),
    (StorageError, 503),
)

T = TypeVar("T")


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A witness asks for something to do."""

    witness: str
    """The id of its process: 16 hexadecimal digits."""
    runs: tuple[str, ...] = ()
    """Takes only proofs of these runs; of all if empty."""
    roots: tuple[str, ...] = ()
    """Absolute paths of the directory that it looks at. Without `runs`, it gets no run of another project directory."""
    wait: float = 0.0
    """How many seconds to wait until there is something."""


class ReportRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A witness is still looking, or reports what it saw."""

    witness: str
    report: WitnessReport


class WorkflowRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The person of a witness wants to see a workflow."""

    workflow: str


class Witnesses:
    """The routes for witnesses."""

    def __init__(
        self,
        open_runs: Callable[[object], ScopedWitness],
        open_catalog: Callable[[object], CatalogView],
        claim_wait: Callable[[], float],
        metrics: Metrics,
        is_stopping: Callable[[], bool],
    ) -> None:
        """`open_runs` and `open_catalog`: what a caller sees; `claim_wait`: the setting `witness_seconds`."""
        self._open_runs = open_runs
        self._open_catalog = open_catalog
        self._claim_wait = claim_wait
        self._metrics = metrics
        self._is_stopping = is_stopping
        self._waiting = Shares(MAX_WAITING)

    def routes(self, authenticator: Authenticator, rate_limiter: RateLimiter) -> list[BaseRoute]:
        def route(path: str, serve: Callable[[Request], Awaitable[Response]]) -> Route:
            app = AuthMiddleware(
                Route(path, serve, methods=["POST"]).app,
                authenticator,
                rate_limiter=rate_limiter,
                on_refused=lambda: self._metrics.refuse("access"),
            )
            return Route(path, endpoint=app, methods=["POST"])

        return [
            route(f"{PREFIX}/claim", self._claim),
            route(f"{PREFIX}/renew", self._renew),
            route(f"{PREFIX}/report", self._report),
            route(f"{PREFIX}/workflow", self._workflow),
        ]

    @property
    def _claim_seconds(self) -> float:
        return max(CLAIMS_PER_WAIT * self._claim_wait(), MIN_CLAIM_SECONDS)

    async def _claim(self, request: Request) -> Response:
        async def claim() -> Response:
            wanted = await self._read(request, ClaimRequest)
            if isinstance(wanted, Response):
                return wanted
            if len(wanted.runs) > MAX_RUNS:
                raise InvalidParams(f"a witness names at most {MAX_RUNS} runs")
            if len(wanted.roots) > MAX_ROOTS or not all(path.startswith("/") for path in wanted.roots):
                raise InvalidParams(f"the roots of a witness are at most {MAX_ROOTS} absolute paths")
            runs = self._open_runs(request.scope.get(ACCESS))
            place = Holding(self._waiting, request.scope.get(CALLER, ""))
            if not place.take(1):
                headers = {"Retry-After": "5"}
                return _refusal(429, "Too many witnesses wait. Start fewer, or try again later.", headers)
            try:
                return await self._wait(request, runs, wanted)
            finally:
                place.release()

        return await _answered(claim)

    async def _wait(self, request: Request, runs: ScopedWitness, wanted: ClaimRequest) -> Response:
        """A task, as soon as there is one; 204 if there is none in time."""
        end = time.monotonic() + min(max(wanted.wait, 0.0), WAIT_SECONDS)
        while not await request.is_disconnected():  # a witness that is gone must not claim what another one could take
            task = runs.claim(wanted.witness, self._claim_seconds, wanted.runs, wanted.roots)
            if task is not None:
                return Response(msgspec.json.encode(task), media_type="application/json")
            if time.monotonic() + POLL_SECONDS > end or self._is_stopping():
                break
            await asyncio.sleep(POLL_SECONDS)
        return Response(status_code=204)

    async def _renew(self, request: Request) -> Response:
        async def renew() -> Response:
            sent = await self._read(request, ReportRequest)
            if isinstance(sent, Response):
                return sent
            runs = self._open_runs(request.scope.get(ACCESS))
            runs.renew(sent.report, sent.witness, self._claim_seconds)
            return Response(status_code=204)

        return await _answered(renew)

    async def _report(self, request: Request) -> Response:
        async def report() -> Response:
            sent = await self._read(request, ReportRequest)
            if isinstance(sent, Response):
                return sent
            self._open_runs(request.scope.get(ACCESS)).report(sent.report, sent.witness)
            return Response(status_code=204)

        return await _answered(report)

    async def _workflow(self, request: Request) -> Response:
        """The document of a workflow, so that a person can see what a witness would run."""

        async def workflow() -> Response:
            wanted = await self._read(request, WorkflowRequest)
            if isinstance(wanted, Response):
                return wanted
            document = self._open_catalog(request.scope.get(ACCESS)).get(wanted.workflow).document
            return Response(msgspec.json.encode(document), media_type="application/json")

        return await _answered(workflow)

    async def _read(self, request: Request, kind: type[T]) -> T | Response:
        """The body of a request. Raises `InvalidParams`."""
        body = await read_body(request.scope, request.receive, MAX_BYTES, self._metrics)
        if isinstance(body, Response):
            return body
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, RecursionError) as problem:
            raise InvalidParams(f"the message of the witness cannot be read: {problem}") from problem


async def _answered(serve: Callable[[], Awaitable[Response]]) -> Response:
    """The response, or the one for the error that was raised."""
    try:
        return await serve()
    except WorkflowLookupError as problem:
        status = next((status for kind, status in _STATUS if isinstance(problem, kind)), 500)
        return _refusal(status, problem.remedy or str(problem), {"Retry-After": "1"} if status == 503 else {})


def _refusal(status: int, message: str, headers: dict[str, str]) -> Response:
    return JSONResponse({"error": message}, status_code=status, headers=headers)
