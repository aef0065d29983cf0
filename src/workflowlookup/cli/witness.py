"""A witness: takes proofs on this machine for a server that cannot see the files, until it is stopped.

The server says what is due; what may run is decided here. A command of the settings may, if the document adds nothing
to it. Everything else that a document brings, arguments, variables, commands and requests, needs the user's trust.
"""

import asyncio
import contextlib
import http.client
import secrets
import socket
import ssl
import sys
import time
import urllib.parse
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from workflowlookup.cli.output import CommandError, complain, write
from workflowlookup.language.document.building import build
from workflowlookup.language.document.checking import errors_in
from workflowlookup.language.document.parts import walk_steps
from workflowlookup.language.model import PromptStep
from workflowlookup.language.navigation import find_step
from workflowlookup.language.proof import AnyProof, CommandProof, HttpProof
from workflowlookup.language.text import one_line, printable
from workflowlookup.proving.contract import ProofTask
from workflowlookup.proving.prover import Prover
from workflowlookup.runs.events import Judgement, Snapshot
from workflowlookup.runs.proofs.witnessing import WitnessReport, WitnessTask
from workflowlookup.runs.proofs.words import advice_of
from workflowlookup.trust import PROOF_COMMAND, PROOF_REQUEST, TrustEntry, TrustStore
from workflowlookup.web import is_loopback_name

WAIT_SECONDS: Final = 20.0
"""How long the server may wait before it says that nothing is due."""
TIMEOUT_SECONDS: Final = 30.0
RENEWALS: Final = 6
"""How often a claim is renewed while it is valid; the server stores only some of them."""
FIRST_PAUSE: Final = 0.5
MAX_PAUSE: Final = 30.0
MAX_BYTES: Final = 32 << 20
"""Of an answer of the server."""
OK: Final = 200
NO_CONTENT: Final = 204
CONFLICT: Final = 409
BUSY: Final = 429
SERVER_ERROR: Final = 500


class Unreachable(Exception):
    """The server did not answer, or cannot answer now. `args` has the reason."""


class WitnessClient:
    """The server, as a witness sees it. Its methods block; `close` ends those that other threads have called."""

    def __init__(self, url: str, read_token: Callable[[], str], ca_file: str | None = None) -> None:
        """`read_token` is called now, and again when the server refuses the token, which may have been renewed.
        `ca_file` has the certificates to trust in place of those of the system. Raises `CommandError` for a file
        without certificates, and for something that is not the URL of a server.
        """
        parts = urllib.parse.urlsplit(url)
        try:
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError as problem:
            raise CommandError(f"{url} is not a URL: {problem}", 2) from problem
        if parts.scheme not in ("http", "https") or not self._host or parts.username or parts.query or parts.fragment:
            raise CommandError(f"{url} is not the URL of a server, such as https://workflows.example.com", 2)
        self._is_secure = parts.scheme == "https"
        self._path = parts.path.rstrip("/").removesuffix("/mcp")
        self.url = f"{parts.scheme}://{parts.netloc}{self._path}"
        self._read_token = read_token
        self._token = read_token()
        try:
            self._tls = ssl.create_default_context(cafile=ca_file) if self._is_secure else None
        except OSError as problem:  # `ssl.SSLError` is one
            raise CommandError(f"{ca_file} has no certificates that can be used: {problem}", 2) from problem
        self._connections: set[http.client.HTTPConnection] = set()
        self._is_closed = False

    @property
    def is_private(self) -> bool:
        """Whether nobody on the way can read the token."""
        return self._is_secure or is_loopback_name(self._host)

    def post(self, name: str, message: object, seconds: float = TIMEOUT_SECONDS) -> tuple[int, bytes]:
        """Send a message; returns the status and the answer, without following redirects. Raises `Unreachable`."""
        status, body = self._post(name, message, seconds)
        if status == http.HTTPStatus.UNAUTHORIZED and (token := self._read_token()) != self._token:
            self._token = token
            return self._post(name, message, seconds)
        return status, body

    def _post(self, name: str, message: object, seconds: float) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        connection = self._connect(seconds)
        self._connections.add(connection)
        try:
            if self._is_closed:
                raise Unreachable("the witness ends")
            connection.request("POST", f"{self._path}/witness/{name}", msgspec.json.encode(message), headers)
            response = connection.getresponse()
            body = response.read(MAX_BYTES + 1)
            if len(body) > MAX_BYTES:
                raise Unreachable("its answer is too long")
            if response.status == BUSY or response.status >= SERVER_ERROR:
                raise Unreachable(f"it answered {response.status} {response.reason}")
            return response.status, body
        except ssl.SSLCertVerificationError as problem:  # no retry can change that
            remedy = "Name a file with the certificate of its authority with --ca-file."
            raise CommandError(f"the certificate of {self.url} is not trusted: {problem}. {remedy}") from problem
        except (OSError, http.client.HTTPException) as problem:
            raise Unreachable(str(problem) or type(problem).__name__) from problem
        finally:
            self._connections.discard(connection)
            connection.close()

    def _connect(self, seconds: float) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=seconds, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=seconds)

    def close(self) -> None:
        self._is_closed = True
        for connection in tuple(self._connections):
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)


def refusal_in(status: int, body: bytes, url: str) -> CommandError:
    """The error for an answer that no retry can change."""
    message = ""
    with contextlib.suppress(msgspec.DecodeError):
        message = str(msgspec.json.decode(body, type=dict[str, Any]).get("error", ""))
    if status == http.HTTPStatus.UNAUTHORIZED:
        message = "the token is not known, has expired or was revoked. Create one with the scope witness."
    if status in (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.METHOD_NOT_ALLOWED):
        message = message or "it has no witnesses: the URL is wrong, or the server is of an older version."
    return CommandError(f"{url} refused ({status}): {one_line(printable(message)) or 'no reason is known'}")


# ── trust ───────────────────────────────────────────────────────────────────────────────────────────────────────


def trusted_file(url: str, workflow_id: str) -> str:
    """What stands for the file in the trust store: a workflow of a server."""
    return f"{url}/workflows/{workflow_id}"


def entries_of(url: str, document: Mapping[str, Any]) -> list[TrustEntry]:
    """What a server's workflow would run or ask on this machine, beside the user's own commands as they are."""
    file = trusted_file(url, str(document["id"]))
    entries: list[TrustEntry] = []
    for _, step in walk_steps(document["steps"]):
        name, proofs = f"{document['id']}/{step['id']}", step.get("proof", ())
        commands = [proof for proof in proofs if {"run", "args", "env"} & proof.keys()]
        requests = [proof for proof in proofs if "url" in proof]
        for kind, value in ((PROOF_COMMAND, commands), (PROOF_REQUEST, requests)):
            if value:
                entries.append(TrustEntry(file=file, kind=kind, name=name, value=value))
    return entries


def _kind_to_trust(proof: AnyProof) -> str:
    match proof:
        case CommandProof() if proof.run or proof.args or proof.env:
            return PROOF_COMMAND
        case HttpProof():
            return PROOF_REQUEST
    return ""


# ── the witness ─────────────────────────────────────────────────────────────────────────────────────────────────


class Witness:
    """Takes one proof after the other. For one event loop."""

    def __init__(  # noqa: PLR0913 - all that a witness needs
        self,
        client: WitnessClient,
        root: str,
        *,
        commands: Callable[[], Mapping[str, Sequence[str]]],
        allowed_hosts: Callable[[], Collection[str]],
        trust: TrustStore,
        runs: Sequence[str] = (),
        client_roots: Sequence[str] = (),
    ) -> None:
        """`runs`: takes only the proofs of these; if empty, of the runs of the person in this project, which clients
        may know by one of the `client_roots`, too.
        """
        self._client = client
        self._root = root
        self._trust = trust
        self._runs = tuple(runs)
        self._roots = (root, *client_roots)
        self._id = secrets.token_hex(8)
        self._refusals: dict[str, str] = {}
        self._prover = Prover(commands, lambda task: self._refusals.get(task.run_id, ""), allowed_hosts)
        self.is_satisfied = True
        """Whether everything so far has passed."""

    async def run(self, *, once: bool) -> None:
        """Take proofs until cancelled; with `once`, until nothing is due after the first. Raises `CommandError`."""
        pause, is_first = FIRST_PAUSE, True
        while True:
            wait = WAIT_SECONDS if is_first or not once else 0.0
            claim = {"witness": self._id, "runs": self._runs, "roots": self._roots, "wait": wait}
            try:
                status, body = await asyncio.to_thread(
                    self._client.post, "claim", claim, WAIT_SECONDS + TIMEOUT_SECONDS
                )
            except Unreachable as problem:
                if pause == FIRST_PAUSE:
                    complain(f"{self._client.url} cannot be reached and is tried again: {problem}")
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE)
                continue
            if pause != FIRST_PAUSE:
                complain(f"{self._client.url} is reached again")
            pause = FIRST_PAUSE
            if status == OK:
                await self._take(_task_in(body, self._client.url))
                is_first = False
            elif status != NO_CONTENT:
                raise refusal_in(status, body, self._client.url)
            elif once and not is_first:
                return

    def stop(self) -> None:
        """End the requests that wait for an answer."""
        self._client.close()

    def close(self) -> None:
        self._prover.close()

    async def _take(self, task: WitnessTask) -> None:
        """Take what is due and report it, unless the run is moved meanwhile."""
        what = f"proof '{task.name}'" if task.name else f"the files at the start of the {task.since}"
        say(_shown(f"{time.strftime('%H:%M:%S')}  {task.workflow}/{task.step_id}: {what}, run {task.run_id}"))
        report = WitnessReport(run_id=task.run_id, step_id=task.step_id, due=task.due, name=task.name)
        work = asyncio.create_task(self._look(task))
        renewing = asyncio.create_task(self._renew(report, task.seconds))
        try:
            await asyncio.wait({work, renewing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            renewing.cancel()
            if not work.done():  # the run was cancelled or moved, or the witness ends
                work.cancel()
                await asyncio.wait({work})
        if work.cancelled():
            say("          stopped: the run does not wait for it any more")
            return
        result = work.result()
        is_judgement = isinstance(result, Judgement)
        report = msgspec.structs.replace(report, **{"judgement" if is_judgement else "snapshot": result})
        is_stored = await self._send(report)
        is_good = result.verdict == "passed" if isinstance(result, Judgement) else not result.problem
        self.is_satisfied &= is_stored and is_good
        lost = "" if is_stored else "; the server refused it, because the run does not wait for it any more"
        say(f"          {_shown(_sentence(result))}{lost}")

    async def _look(self, task: WitnessTask) -> Judgement | Snapshot:
        """Take the proof or the snapshot."""
        if not task.name:
            return await self._prover.snapshot(self._root, task.globs)
        try:
            proof, reason = self._proof_of(task)
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as problem:
            proof, reason = None, f"The document of the workflow cannot be used here: {type(problem).__name__}."
        if proof is None:
            remedy = "Use the same version of workflowlookup here as on the server."
            return Judgement(name=task.name, kind="", verdict="unproved", reason=reason, remedy=remedy)
        if reason:
            remedy = f"A person can look at it and allow it there: {self._how_to_trust(task.workflow)}."
            kind = str(proof.__struct_config__.tag)
            return Judgement(name=task.name, kind=kind, verdict="unproved", reason=reason, remedy=remedy)
        return await self._prover.take(
            ProofTask(
                run_id=task.run_id,
                proof=proof,
                context=task.context,
                root=self._root,
                run_snapshot=task.run_snapshot,
                step_snapshot=task.step_snapshot,
                tree=task.tree,
            ),
            lambda _: None,
        )

    def _proof_of(self, task: WitnessTask) -> tuple[AnyProof | None, str]:
        """The proof of a task, and why it may not be taken. Raises many errors for a document that is not valid."""
        document = msgspec.json.decode(task.document)
        if errors_in(document):
            return None, "The document of the workflow is not valid here."
        step = find_step(build(document), task.step_id)
        proofs = step.proofs if isinstance(step, PromptStep) else ()
        proof = next((one for one in proofs if one.name == task.name), None)
        if step is None or proof is None:
            return None, "The document of the workflow has no such proof."
        name, kind = f"{document['id']}/{step.id}", _kind_to_trust(proof)
        entries = [one for one in entries_of(self._client.url, document) if (one.kind, one.name) == (kind, name)]
        if kind and (not entries or any(self._trust.pins(entry) is None for entry in entries)):
            words = "requests" if kind == PROOF_REQUEST else "commands, arguments and variables"
            return proof, f"The witness does not trust the {words} that the server's workflow brings for this step."
        return proof, ""

    def _how_to_trust(self, workflow_id: str) -> str:
        return f"`workflowlookup witness --server {self._client.url} --trust {workflow_id}`"

    async def _renew(self, report: WitnessReport, seconds: float) -> None:
        """Renew the claim; returns when the run does not wait for it any more."""
        while True:
            await asyncio.sleep(max(seconds / RENEWALS, FIRST_PAUSE))
            message = {"witness": self._id, "report": _encodable(report)}
            with contextlib.suppress(Unreachable):
                status, _ = await asyncio.to_thread(self._client.post, "renew", message)
                if status != NO_CONTENT:
                    return

    async def _send(self, report: WitnessReport) -> bool:
        """Report until the server has it; False if it is not due any more. Raises `CommandError`."""
        pause = FIRST_PAUSE
        message = {"witness": self._id, "report": _encodable(report)}
        while True:
            try:
                status, body = await asyncio.to_thread(self._client.post, "report", message)
            except Unreachable as problem:
                complain(f"{self._client.url} cannot be reached and is tried again: {problem}")
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE)
                continue
            if status not in (NO_CONTENT, CONFLICT):
                raise refusal_in(status, body, self._client.url)
            return status == NO_CONTENT


def _task_in(body: bytes, url: str) -> WitnessTask:
    try:
        return msgspec.json.decode(body, type=WitnessTask)
    except msgspec.DecodeError as problem:
        raise CommandError(f"{url} sent something that is not a task: {problem}") from problem


def _encodable(report: WitnessReport) -> dict[str, Any]:
    """The report without empty fields; names of files that are not UTF-8 are escaped."""
    built: dict[str, Any] = msgspec.to_builtins(report)
    return {name: value for name, value in built.items() if value is not None}


def _sentence(result: Judgement | Snapshot) -> str:
    if isinstance(result, Judgement):
        return advice_of(result)
    return f"not recorded: {result.problem}" if result.problem else f"recorded: commit {result.commit[:12] or 'none'}"


def say(text: str) -> None:
    """Write a line at once, also into a pipe: somebody follows what the witness does."""
    write(text)
    sys.stdout.flush()


def _shown(text: str) -> str:
    return one_line(printable(text))
