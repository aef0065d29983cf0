"""Witnesses: real processes that take proofs in a real repository, for a server over HTTP that cannot see the files."""

import asyncio
import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import httpx2
import pytest

from auth.issuer import AUDIENCE, Issuer
from soak.proxy import Proxy
from support.client import ENVELOPE
from support.command_line import Cli
from support.json_values import Json, JsonObject
from support.make import document, settings_file, step, write
from support.processes import is_alive
from support.proving import Project
from support.waiting import wait_until
from support.web import WebClient, WebServer
from workflowlookup.runs.events import Judgement, ProofClaimed, ProofTaken, Snapshot, SnapshotTaken
from workflowlookup.runs.run import Run
from workflowlookup.store.journal import Journal
from workflowlookup.store.postgres import PostgresJournal
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal
from workflowlookup.store.tokens import Tokens

WAIT = 2.0
"""The setting `witness_seconds`; a claim is valid three times as long."""
ROOM = 60.0
TESTS: JsonObject = {"kind": "command", "name": "tests", "use": "test"}
SLOW: JsonObject = {"kind": "command", "name": "slow", "use": "slow"}
CHANGED: JsonObject = {"kind": "git", "name": "changed", "changed": ["app.txt"]}
OWN: JsonObject = {"kind": "command", "name": "own", "run": ["sh", "check.sh"]}
COMMANDS = '[commands]\ntest = ["sh", "check.sh"]\nslow = ["sh", "slow.sh"]\n'
PROCESS = "0123456789abcdef"


class WitnessProcess:
    """`workflowlookup witness` in the project, with what it has written so far."""

    def __init__(self, world: "World", secret: str, *words: str, url: str = "") -> None:
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("WORKFLOW", "XDG_", "CLAUDE"))
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "workflowlookup", "witness", "--server", url or world.server.base, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=world.project.root,
            env=clean | {"HOME": str(world.home), "WORKFLOWLOOKUP_TOKEN": secret},
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def end(self) -> int:
        """The exit code, once it has ended by itself; all that it wrote is read."""
        code: int = self.process.wait(ROOM)
        self._reader.join(ROOM)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(ROOM)
        assert self.process.stdout is not None
        self.process.stdout.close()


class World:
    """A server with tokens, the repository of a person elsewhere, and that person's agent."""

    def __init__(self, directory: Path, library: Path, journal: Journal, url: str, flags: tuple[str, ...]) -> None:
        self.journal_url = url
        self.directory = directory
        self.library = library
        self.home = directory / "home"
        self.home.mkdir()
        settings_file(self.home).write_text(COMMANDS)
        (directory / "work").mkdir()
        self.project = Project(directory / "work")
        self.project.git("init", "-q")
        self.project.write("check.sh", "echo 7 passed; grep -q fixed app.txt\n")
        self.project.write("app.txt", "broken\n")
        self.project.commit("begin")
        write(library, document(step("fix", proof=[TESTS, CHANGED]), id="fix-it"))
        write(library, document(step("fix", proof=[TESTS]), id="noted", whenUnproved="note"))
        write(library, document(step("fix", proof=[OWN]), id="own-command"))
        write(library, document(step("wait", proof=[SLOW]), id="slow-one"))
        write(library, document(step("fix", proof=[SLOW, TESTS]), id="two-proofs"))
        self.journal = journal
        self.tokens = Tokens(journal)
        self.runs = Runs(journal)
        self.agent = self.token("ada", "run")
        self.witness = self.token("ada+witness", "witness")
        self._flags = flags
        self._open = contextlib.ExitStack()
        self.server = self.serve()

    def serve(self) -> WebServer:
        home = self.directory / f"server-{time.monotonic_ns()}"
        home.mkdir()
        words = ("--journal", self.journal_url, "--witness-seconds", str(WAIT), *self._flags)
        server = WebServer(home, *words, directory=self.library)
        self._open.callback(server.stop)
        return server

    def token(self, name: str, *scopes: str) -> str:
        return self.tokens.create(name, scopes, ["*"], seconds=600, is_person=False)[0]

    def client(self, secret: str = "", server: WebServer | None = None) -> WebClient:
        client = WebClient((server or self.server).url, authorization=f"Bearer {secret or self.agent}")
        self._open.callback(client.close)
        client.initialize()
        return client

    def start_witness(
        self, *words: str, secret: str = "", server: WebServer | None = None, url: str = ""
    ) -> WitnessProcess:
        witness = WitnessProcess(self, secret or self.witness, *words, url=url or (server.base if server else ""))
        self._open.callback(witness.close)
        return witness

    def network(self, tls: ssl.SSLContext | None = None) -> "Network":
        network = Network(self.server, tls)
        self._open.callback(network.close)
        return network

    def post(self, name: str, message: Json, secret: str = "", server: WebServer | None = None) -> httpx2.Response:
        headers = {"authorization": f"Bearer {secret or self.witness}"}
        url = f"{(server or self.server).base}/witness/{name}"
        return httpx2.post(url, content=json.dumps(message), headers=headers, timeout=ROOM)

    def claim(self) -> JsonObject:
        answer = self.post("claim", {"witness": PROCESS, "wait": 20.0})
        assert answer.status_code == 200, answer.text
        task: JsonObject = answer.json()
        return task

    def run(self, run_id: str = "r1") -> Run:
        return self.runs.get(run_id)

    def until(self, holds: Callable[[Run], object], run_id: str = "r1") -> Run:
        wait_until(lambda: holds(self.run(run_id)), ROOM)
        return self.run(run_id)

    def events(self, run_id: str = "r1") -> list[object]:
        return [record.event for record in self.runs.history(run_id)]

    def close(self) -> None:
        self._open.close()
        self.tokens.close()
        self.runs.close()


class Network:
    """The way to a server, which can be cut, and lead to another server."""

    def __init__(self, server: WebServer, tls: ssl.SSLContext | None) -> None:
        self._proxy = Proxy(tls)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.lead_to(server)
        self.url = f"{'http' if tls is None else 'https'}://localhost:{self._proxy.port}"

    def lead_to(self, server: WebServer) -> None:
        self._proxy.backends = [int(server.base.rpartition(":")[2])]
        self._do(self._proxy.start())

    def cut(self) -> None:
        self._do(self._proxy.stop())

    def close(self) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ROOM)
        self._loop.close()

    def _do(self, work: Coroutine[object, object, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(ROOM)


Make = Callable[..., World]


@pytest.fixture
def make(tmp_path: Path, library: Path) -> Iterator[Make]:
    worlds: list[World] = []

    def make_world(*flags: str, database: str = "") -> World:
        url = database or str(tmp_path / "runs.sqlite")
        journal: Journal = PostgresJournal(url) if database else SqliteJournal(url)
        worlds.append(World(tmp_path, library, journal, url, flags))
        return worlds[-1]

    yield make_world
    for world in worlds:
        world.close()


@pytest.fixture
def world(make: Make) -> World:
    return make()


def call(client: WebClient, name: str, **arguments: Json) -> JsonObject:
    reply = client.request("tools/call", {"name": name, "arguments": arguments})
    result: JsonObject = reply["result"]
    assert not result.get("isError"), result
    content: JsonObject = result["structuredContent"]
    return content


def begin(client: WebClient, workflow: str, run_id: str = "r1") -> JsonObject:
    return call(client, "workflow_start", workflowId=workflow, runId=run_id)


def submit(client: WebClient, step_id: str = "fix", run_id: str = "r1") -> JsonObject:
    return call(client, "workflow_submit", runId=run_id, stepId=step_id, output="done")


def in_background(work: Callable[[], object]) -> threading.Thread:
    def quietly() -> None:
        with contextlib.suppress(httpx2.HTTPError, OSError):  # the client was closed before there was an answer
            work()

    thread = threading.Thread(target=quietly, daemon=True)
    thread.start()
    return thread


def pid_in(path: Path) -> int:
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"), ROOM)
    return int(path.read_text())


def test_a_witness_proves_the_output_of_an_agent_that_talks_to_a_server_elsewhere(world: World) -> None:
    witness = world.start_witness()
    client = world.client()
    begin(client, "fix-it")

    submit(client)
    refused = world.run()
    world.project.write("app.txt", "fixed\n")
    submit(client)

    assert refused.attempts == 1
    run = world.until(lambda run: run.is_over)
    assert (run.state, run.proof_counts.passed, run.proof_counts.taken) == ("completed", 2, 2)
    assert {one.witness for one in run.proofs["fix"].judgements.values()} == {"token ada+witness"}
    assert run.run_snapshot is not None
    assert run.run_snapshot.commit == world.project.git("rev-parse", "HEAD")
    witness.process.send_signal(signal.SIGTERM)
    assert witness.end() == 0
    assert "fix-it/fix: proof 'tests', run r1" in witness.text
    assert "failed: tests" in witness.text
    assert "proved: changed" in witness.text


def test_two_witnesses_take_each_proof_once(world: World) -> None:
    world.project.write("slow.sh", "echo x >> ran; sleep 0.2\n")
    witnesses = [world.start_witness(), world.start_witness()]
    wait_until(lambda: all(witness.lines for witness in witnesses), ROOM)
    clients = [world.client() for _ in range(4)]
    ids = [f"r{number}" for number in range(4)]
    for client, run_id in zip(clients, ids, strict=True):
        begin(client, "slow-one", run_id)

    threads = [
        in_background(lambda client=client, run_id=run_id: submit(client, "wait", run_id))  # type: ignore[misc]
        for client, run_id in zip(clients, ids, strict=True)
    ]
    for thread in threads:
        thread.join(ROOM)

    assert [world.run(run_id).proof_counts.passed for run_id in ids] == [1, 1, 1, 1]
    assert (world.project.root / "ran").read_text() == "x\n" * 4
    assert all(len([one for one in world.events(run_id) if isinstance(one, ProofTaken)]) == 1 for run_id in ids)


def test_another_witness_takes_over_from_one_that_was_killed(world: World) -> None:
    world.project.write("slow.sh", "echo $$ > pid; [ -e second ] || sleep 300\n")
    first = world.start_witness()
    client = world.client()
    begin(client, "slow-one")
    thread = in_background(lambda: submit(client, "wait"))
    child = pid_in(world.project.root / "pid")

    first.process.kill()
    wait_until(lambda: not is_alive(child), ROOM)
    world.project.write("second")
    world.start_witness()
    thread.join(ROOM)

    run = world.run()
    assert (run.state, run.proof_counts.passed) == ("completed", 1)
    claims = {event.witness for event in world.events() if isinstance(event, ProofClaimed)}
    assert len(claims) == 2


def test_a_proof_whose_witness_was_killed_is_unproved_if_no_other_comes(world: World) -> None:
    world.project.write("slow.sh", "echo $$ > pid; sleep 300\n")
    witness = world.start_witness()
    client = world.client()
    begin(client, "slow-one")
    thread = in_background(lambda: submit(client, "wait"))
    child = pid_in(world.project.root / "pid")

    witness.process.kill()
    thread.join(ROOM)

    run = world.run()
    assert (run.attempts, run.proofs["wait"].judgements["slow"].verdict) == (1, "unproved")
    assert not is_alive(child)


def test_cancelling_the_run_ends_the_command_of_its_witness(world: World) -> None:
    world.project.write("slow.sh", "sleep 300 & echo $! > pid; wait\n")
    witness = world.start_witness()
    client = world.client()
    begin(client, "slow-one")
    in_background(lambda: submit(client, "wait"))
    child = pid_in(world.project.root / "pid")

    call(world.client(), "workflow_cancel", runId="r1")

    wait_until(lambda: not is_alive(child), ROOM)
    wait_until(lambda: "stopped: the run does not wait" in witness.text, ROOM)
    assert witness.process.poll() is None
    assert world.run().state == "cancelled"


def test_a_signal_ends_the_command_of_a_witness_with_it(world: World) -> None:
    world.project.write("slow.sh", "sleep 300 & echo $! > pid; wait\n")
    witness = world.start_witness()
    client = world.client()
    begin(client, "slow-one")
    in_background(lambda: submit(client, "wait"))
    child = pid_in(world.project.root / "pid")

    witness.process.send_signal(signal.SIGINT)

    assert witness.end() == 0
    assert not is_alive(child)
    assert "Traceback" not in witness.text


@pytest.mark.parametrize(("workflow", "state"), [("fix-it", "waiting"), ("noted", "completed")])
def test_without_a_witness_proofs_are_unproved_and_the_workflow_decides(
    world: World, workflow: str, state: str
) -> None:
    client = world.client()
    begin(client, workflow)

    submit(client)

    run = world.until(lambda run: run.waiting_for != "proof")
    assert (run.state, run.proof_counts.unproved) == (state, run.proof_counts.taken)
    judgement = run.proofs["fix"].judgements["tests"]
    assert "no witness took the proof in time" in judgement.reason
    assert "workflowlookup witness --server URL" in judgement.remedy


def test_what_the_documents_of_a_server_bring_runs_only_if_it_is_trusted(world: World, tmp_path: Path) -> None:
    world.project.write("app.txt", "fixed\n")
    client = world.client()
    world.start_witness()
    begin(client, "own-command")
    submit(client)
    judgement = world.run().proofs["fix"].judgements["own"]
    assert judgement.verdict == "unproved"
    command = f"workflowlookup witness --server {world.server.base} --trust own-command"
    assert command in judgement.remedy

    (tmp_path / "terminal").mkdir()
    person = Cli(tmp_path / "terminal")
    words = command.split()[1:]
    sitting = person.sit_down(*words, HOME=str(world.home), WORKFLOWLOOKUP_TOKEN=world.witness)
    code, shown = sitting.see("[y/N]").type("y\n").leave()
    assert (code, '"check.sh"' in shown, "Trusted: 1" in shown) == (0, True, True), shown
    submit(client)

    assert world.until(lambda run: run.is_over).proof_counts.passed == 1


def test_once_ends_when_nothing_more_is_due_and_says_whether_all_passed(world: World) -> None:
    client = world.client()
    begin(client, "noted")
    witness = world.start_witness("--once")

    submit(client)

    assert witness.end() == 1
    assert "failed: tests" in witness.text


def test_files_that_differ_between_two_proofs_of_an_output_leave_the_second_unproved(world: World) -> None:
    world.project.write("app.txt", "fixed\n")
    waiting_for_proof(world, "two-proofs")
    elsewhere = passed(world.claim(), tree="a" * 64)
    assert world.post("report", elsewhere).status_code == 204

    world.start_witness()

    run = world.until(lambda run: run.attempts == 1)
    second = run.proofs["fix"].judgements["tests"]
    assert (second.verdict, "Files changed after the proof before this one" in second.reason) == ("unproved", True)


def test_two_witnesses_of_one_person_share_the_proofs_of_an_output_if_they_see_the_same_files(world: World) -> None:
    world.project.write("app.txt", "fixed\n")
    world.project.write("slow.sh", "exit 0\n")
    first, client = world.start_witness(), world.client()
    begin(client, "two-proofs")
    submit(client)
    seen = world.until(lambda run: run.is_over).proofs["fix"].judgements["slow"].tree
    first.close()
    begin(client, "two-proofs", "r2")
    in_background(lambda: submit(client, run_id="r2"))
    assert world.post("report", passed(world.claim(), tree=seen)).status_code == 204

    world.start_witness()

    run = world.until(lambda run: run.is_over, "r2")
    assert (run.state, run.proof_counts.passed) == ("completed", 2)
    assert {one.tree for one in run.proofs["fix"].judgements.values()} == {seen}


def begin_in(world: World, root: str, run_id: str) -> None:
    """A run of a client of the envelope era that works in this directory."""
    client = WebClient(world.server.url, authorization=f"Bearer {world.agent}")
    meta = ENVELOPE | {"io.modelcontextprotocol/clientCapabilities": {"roots": {}}}
    arguments = {"workflowId": "noted", "runId": run_id}
    params: JsonObject = {"name": "workflow_start", "arguments": arguments, "_meta": meta}

    asked = client.request("tools/call", params)["result"]
    answer = {"roots": {"roots": [{"uri": f"file://{root}"}]}}
    started = client.request("tools/call", params | {"inputResponses": answer})["result"]

    assert asked["inputRequests"] == {"roots": {"method": "roots/list", "params": {}}}
    assert started["structuredContent"]["runId"] == run_id
    client.close()


def test_a_witness_leaves_the_runs_of_another_project_to_others(world: World) -> None:
    world.project.write("app.txt", "fixed\n")
    begin_in(world, str(world.project.root), "r1")
    begin_in(world, "/elsewhere", "r2")
    begin_in(world, "/elsewhere", "r3")
    witness, client = world.start_witness(), world.client()

    for run_id in ("r1", "r2"):
        submit(client, run_id=run_id)
    witness.close()
    world.start_witness("--client-root", "/elsewhere/")
    submit(client, run_id="r3")

    assert [world.run(run_id).proof_counts.passed for run_id in ("r1", "r2", "r3")] == [1, 0, 1]
    assert "run r1" in witness.text
    assert "run r2" not in witness.text


def test_a_proof_survives_a_cut_of_the_network_and_a_restart_of_the_server(world: World) -> None:
    world.project.write("slow.sh", "echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done\n")
    network = world.network()
    witness = world.start_witness(url=network.url)
    client = world.client()
    begin(client, "slow-one")
    in_background(lambda: submit(client, "wait"))
    pid_in(world.project.root / "pid")

    network.cut()
    world.server.stop()
    world.project.write("go")
    wait_until(lambda: "cannot be reached and is tried again" in witness.text, ROOM)
    network.lead_to(world.serve())

    run = world.until(lambda run: run.is_over)
    assert (run.state, run.proof_counts.passed) == ("completed", 1)
    assert len([event for event in world.events() if isinstance(event, ProofTaken)]) == 1


def test_a_witness_that_waits_reaches_a_server_that_was_started_again(world: World) -> None:
    network = world.network()
    witness = world.start_witness(url=network.url)
    wait_until(lambda: witness.lines, ROOM)

    network.cut()
    wait_until(lambda: "cannot be reached and is tried again" in witness.text, ROOM)
    world.server.stop()
    server = world.serve()
    network.lead_to(server)
    client = world.client(server=server)
    begin(client, "noted")
    wait_until(lambda: "is reached again" in witness.text or "proof 'tests'" in witness.text, ROOM)
    world.project.write("app.txt", "fixed\n")
    submit(client)

    assert world.until(lambda run: run.is_over).proof_counts.passed == 1


def test_a_server_with_a_private_authority_is_reached_with_its_certificate_only(world: World, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    files = ["-keyout", str(key), "-out", str(certificate), "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*make, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    network = world.network(context)

    untrusting, confused = (
        world.start_witness(url=network.url),
        world.start_witness("--ca-file", str(world.project.root / "app.txt"), url=network.url),
    )
    world.start_witness("--ca-file", str(certificate), url=network.url)
    client = world.client()
    begin(client, "noted")
    world.project.write("app.txt", "fixed\n")
    submit(client)

    assert world.until(lambda run: run.is_over).proof_counts.passed == 1
    assert (untrusting.end(), confused.end()) == (1, 2)
    assert "is not trusted" in untrusting.text
    assert "--ca-file" in untrusting.text
    assert "has no certificates that can be used" in confused.text


def test_a_token_that_was_renewed_in_its_file_is_read_again(world: World, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(world.witness)
    file.chmod(0o600)
    witness = world.start_witness("--token-file", str(file))
    wait_until(lambda: witness.lines, ROOM)
    world.tokens.revoke("ada+witness")
    file.write_text(world.token("ada+witness", "witness"))
    world.project.write("app.txt", "fixed\n")
    client = world.client()
    begin(client, "noted")

    submit(client)

    assert world.until(lambda run: run.is_over).proof_counts.passed == 1


def test_a_token_of_an_issuer_witnesses_the_runs_of_its_subject(make: Make) -> None:
    issuer = Issuer()
    issuer.add_key("one", "ES256")
    try:
        flags = ("--oauth-issuer", issuer.name, "--oauth-audience", AUDIENCE, "--oauth-jwks-url", issuer.jwks_url)
        world = make(*flags)
        world.project.write("app.txt", "fixed\n")
        other = world.start_witness(secret=issuer.token(sub="eve", scope="witness read"))
        world.start_witness(secret=issuer.token(scope="witness read"))
        client = world.client(issuer.token(scope="read run"))
        begin(client, "noted")

        submit(client)

        run = world.until(lambda run: run.is_over)
        (judgement,) = run.proofs["fix"].judgements.values()
    finally:
        issuer.close()
    assert (judgement.verdict, judgement.witness) == ("passed", world.run().by.partition(" via ")[0])
    assert "proof 'tests'" not in other.text


def test_tokens_without_a_subject_are_no_witnesses_of_each_other(make: Make) -> None:
    issuer = Issuer()
    issuer.add_key("one")
    try:
        flags = ("--oauth-issuer", issuer.name, "--oauth-audience", AUDIENCE, "--oauth-jwks-url", issuer.jwks_url)
        world = make(*flags)
        witness = world.start_witness(secret=issuer.token(sub=None, scope="witness read"))
        wait_until(lambda: "Witness for" in witness.text)
        client = world.client(issuer.token(sub=None, scope="read run"))
        begin(client, "noted")

        submit(client)

        (judgement,) = world.until(lambda run: run.is_over).proofs["fix"].judgements.values()
    finally:
        issuer.close()
    assert judgement.verdict == "unproved"


# ── what is refused ─────────────────────────────────────────────────────────────────────────────────────────────


def waiting_for_proof(world: World, workflow: str = "noted") -> WebClient:
    client = world.client()
    begin(client, workflow)
    in_background(lambda: submit(client))
    world.until(lambda run: run.waiting_for == "proof")
    return client


def passed(task: JsonObject, **fields: Json) -> JsonObject:
    judgement = {"name": task["name"], "kind": "command", "verdict": "passed", "exitCode": 0, **fields}
    return {
        "witness": PROCESS,
        "report": {
            "runId": task["runId"],
            "stepId": task["stepId"],
            "due": task["due"],
            "name": task["name"],
            "judgement": judgement,
        },
    }


@pytest.mark.parametrize("scope", ["read", "run", "confirm", "admin"])
def test_no_other_scope_lets_anybody_witness(world: World, scope: str) -> None:
    waiting_for_proof(world)
    world.tokens.revoke("ada+witness")
    secret = world.token("ada+witness", scope)
    task = {"runId": "r1", "stepId": "fix", "due": world.run().due, "name": "tests"}

    answers = [
        world.post("claim", {"witness": PROCESS}, secret),
        world.post("report", passed(task), secret),
        world.post("renew", passed(task), secret),
        world.post("claim", {"witness": PROCESS}, "wl_" + "x" * 43),
    ]

    assert [answer.status_code for answer in answers] == [403, 403, 403, 401]
    assert "scope 'witness'" in answers[0].json()["error"]
    assert not any(isinstance(event, ProofTaken) for event in world.events())


def test_a_witness_of_another_person_gets_nothing_and_may_report_nothing(world: World) -> None:
    waiting_for_proof(world)
    other = world.token("eve+witness", "witness")
    assert world.post("claim", {"witness": PROCESS}, other).status_code == 204
    task = world.claim()

    answer = world.post("report", passed(task), other)

    assert (answer.status_code, "same person" in answer.json()["error"]) == (403, True)
    assert world.post("report", passed(task)).status_code == 204
    assert world.until(lambda run: run.is_over).proofs["fix"].judgements["tests"].witness == "token ada+witness"


def test_a_server_without_tokens_has_no_witnesses(world: World, tmp_path: Path) -> None:
    home = tmp_path / "open"
    home.mkdir()
    server = WebServer(home, "--journal", str(home / "runs.sqlite"), directory=world.library)
    try:
        answer = httpx2.post(f"{server.base}/witness/claim", content=json.dumps({"witness": PROCESS}), timeout=ROOM)
    finally:
        server.stop()

    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"verdict": "perfect"}, 400),
        ({"witness": "token root"}, 204),
        ({"name": "other"}, 400),
        ({"kind": "git"}, 400),
        ({"exitCode": 10**9}, 400),
        ({"seconds": -1}, 400),
        ({"measures": {"passed": 7}}, 400),
        ({"commit": "HEAD; rm"}, 400),
        ({"tree": "x" * 100_000}, 400),
        ({"digests": {"a": "b"}}, 400),
        ({"digests": {str(number): "" for number in range(5_001)}}, 400),
        ({"tail": "x" * (3 << 20)}, 413),
    ],
)
def test_a_report_is_checked_before_it_is_stored(world: World, changes: JsonObject, status: int) -> None:
    waiting_for_proof(world)
    task = world.claim()

    answer = world.post("report", passed(task, **changes))

    assert answer.status_code == status, answer.text
    taken = [event.judgement for event in world.events() if isinstance(event, ProofTaken)]
    assert [one.witness for one in taken] == (["token ada+witness"] if status == 204 else [])


def test_only_what_was_claimed_and_is_still_due_can_be_reported(world: World) -> None:
    waiting_for_proof(world)
    unclaimed = {"runId": "r1", "stepId": "fix", "due": world.run().due, "name": "tests"}
    assert world.post("report", passed(unclaimed)).status_code == 409
    task = world.claim()
    other = passed(task) | {"witness": "f" * 16}
    outdated = passed(task | {"due": task["due"] - 1})

    answers = [world.post("report", message) for message in (other, outdated, passed(task), passed(task))]

    assert [answer.status_code for answer in answers] == [409, 409, 204, 204]
    assert world.until(lambda run: run.is_over).proof_counts.passed == 1
    assert world.post("renew", passed(task)).status_code == 409


# ── replicas ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_witness_at_one_replica_proves_what_was_submitted_at_another(make: Make, database: str) -> None:
    world = make(database=database)
    other = world.serve()
    world.project.write("slow.sh", "echo x >> ran; sleep 0.2\n")
    witnesses = [world.start_witness(server=other), world.start_witness(server=world.server)]
    wait_until(lambda: all(witness.lines for witness in witnesses), ROOM)
    clients = {f"r{number}": world.client(server=other if number % 2 else None) for number in range(4)}
    for run_id, client in clients.items():
        begin(client, "slow-one", run_id)

    threads = [
        in_background(lambda client=client, run_id=run_id: submit(client, "wait", run_id))  # type: ignore[misc]
        for run_id, client in clients.items()
    ]
    for thread in threads:
        thread.join(ROOM)

    runs = [world.until(lambda run: run.is_over, run_id) for run_id in clients]
    assert [(run.state, run.proof_counts.passed) for run in runs] == [("completed", 1)] * 4
    assert (world.project.root / "ran").read_text() == "x\n" * 4


def test_a_run_with_a_witness_can_be_exported_and_imported(world: World, tmp_path: Path) -> None:
    world.start_witness()
    client = world.client()
    begin(client, "fix-it")
    submit(client)
    world.project.write("app.txt", "fixed\n")
    submit(client)
    world.until(lambda run: run.is_over)
    records = world.runs.history("r1")
    assert {Judgement, Snapshot} == {
        *(type(one.event.judgement) for one in records if isinstance(one.event, ProofTaken)),
        *(type(one.event.snapshot) for one in records if isinstance(one.event, SnapshotTaken)),
    }

    elsewhere = Runs(SqliteJournal(str(tmp_path / "elsewhere.sqlite")))
    with contextlib.closing(elsewhere):
        assert elsewhere.import_run("r1", records, "elsewhere", len(records))
        assert elsewhere.get("r1").proof_counts.passed == 2
