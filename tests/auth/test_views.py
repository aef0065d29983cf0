"""What a caller may not see does not exist: every question is answered as if it never had been there.

The oracle is a second deployment in which there is nothing to hide. One who sees a part of the first and one who sees all of
the second are told the same, to the letter.
"""

import inspect
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import pytest

from auth.secretive import ASKING, HIDDEN, OPEN, Deployment, ScopedClient, caller
from support.client import ENVELOPE
from support.json_values import Json, JsonObject
from support.make import document, write
from support.narrowing import not_none
from workflowlookup.access import LOCAL, Access
from workflowlookup.auth.scoped import ScopedCatalog, ScopedExecution, ScopedRuns, ScopedWatch, ScopedWorkflows
from workflowlookup.errors import StorageError
from workflowlookup.execution.service import Execution
from workflowlookup.library.catalog import Catalog, CatalogView
from workflowlookup.protocol.connection import Connection
from workflowlookup.providers.config import Plan, ProviderConfig
from workflowlookup.providers.definition import Definition
from workflowlookup.providers.discovery import ProviderListing
from workflowlookup.store import runs_view
from workflowlookup.store.journal import DamagedJournal
from workflowlookup.store.runs_view import JournalWatch, RunsView
from workflowlookup.store.service import Runs
from workflowlookup.store.sqlite import SqliteJournal
from workflowlookup.tools import long_results
from workflowlookup.tools.builtin import BUILTIN_TOOLS, workflow_refresh, workflow_search
from workflowlookup.tools.contract import ExecutionView, WorkflowTools
from workflowlookup.tools.dynamic import DynamicTools

EVERY_SCOPE = ("read", "run", "confirm", "admin")
IDS = (*OPEN, *HIDDEN, "docs-broken", "secret-broken", "secret-pla", "docs-guid", "no-such-workflow")
RUNS = (*(f"{how}-{identifier}" for how in ("of", "held") for identifier in (*OPEN, *HIDDEN)), "no-such-run")


def tool_result(tool: str, **arguments: Json) -> str:
    """The resource with the whole result of a tool."""
    return not_none(long_results.uri_of(tool, arguments, {}))


def of_workflows(identifier: str) -> Iterator[tuple[str, JsonObject]]:
    yield "workflow_get", {"id": identifier}
    yield "workflow_get", {"id": identifier, "mode": "full"}
    yield "workflow_next", {"workflowId": identifier, "completedSteps": []}
    yield "workflow_validate", {"workflowId": identifier, "stepId": "write", "output": "x"}
    yield "workflow_start", {"workflowId": identifier, "context": {}}
    yield "workflow_runs", {"workflowId": identifier}
    yield "workflow_list", {"query": identifier}
    yield "resources/read", {"uri": f"workflow://{identifier}"}
    yield "resources/read", {"uri": tool_result("workflow_get", id=identifier, mode="full")}
    yield "prompts/get", {"name": identifier}
    yield from completions(identifier[:4])
    yield identifier, {}
    yield "tools/call", {"name": identifier, "arguments": {}}
    yield "tools/call", {"name": "workflow_get", "arguments": {"id": identifier}}
    yield "workflow_search", {"query": identifier}
    for path in ("SKILL.md", "note.txt", "no-such.txt"):
        yield "resources/read", {"uri": f"skill://{identifier}/{path}"}
        yield "skills/get", {"uri": f"skill://{identifier}/{path}", "_meta": ENVELOPE}
    yield "resources/directory/read", {"uri": f"skill://{identifier}", "_meta": ENVELOPE}


def of_runs(run_id: str) -> Iterator[tuple[str, JsonObject]]:
    yield "workflow_status", {"runId": run_id}
    yield "workflow_submit", {"runId": run_id, "stepId": "write", "output": "done"}
    yield "workflow_submit", {"runId": run_id, "stepId": "write", "confirmed": True}
    yield "workflow_submit", {"runId": run_id, "stepId": "no-such-step", "confirmed": False}
    yield "workflow_cancel", {"runId": run_id, "reason": "enough"}
    yield "resources/read", {"uri": f"run://{run_id}"}
    yield "resources/read", {"uri": tool_result("workflow_status", runId=run_id)}
    yield "resources/subscribe", {"uri": f"run://{run_id}"}
    yield "resources/unsubscribe", {"uri": f"run://{run_id}"}
    yield "tools/call", {"name": "workflow_status", "arguments": {"runId": run_id}}
    yield "tasks/get", {"taskId": run_id}
    yield "tasks/result", {"taskId": run_id}
    yield "tasks/cancel", {"taskId": run_id}


def completions(typed: str) -> Iterator[tuple[str, JsonObject]]:
    for ref in ({"type": "ref/resource", "uri": "workflow://{id}"}, {"type": "ref/prompt", "name": "x"}):
        yield "completion/complete", {"ref": ref, "argument": {"name": "id", "value": typed}}
    run = {"ref": {"type": "ref/resource", "uri": "run://{id}"}, "argument": {"name": "id", "value": "held"}}
    yield "completion/complete", run


def of_tools(name: str) -> Iterator[tuple[str, JsonObject]]:
    yield name, {}
    yield "tools/call", {"name": name, "arguments": {"no-such": 1}}
    yield "tools/call", {"name": name, "arguments": {}, "task": {}}
    yield "workflow_start", {"workflowId": name}


def lists() -> Iterator[tuple[str, JsonObject]]:
    yield "skills/list", {"_meta": ENVELOPE}
    yield from (("workflow_search", {}), ("workflow_refresh", {}), ("tasks/list", {}))
    yield from (("tools/list", {}), ("resources/list", {}), ("resources/templates/list", {}), ("prompts/list", {}))
    yield from (("workflow_list", {}), ("workflow_list", {"limit": 1}), ("workflow_list", {"category": "workflow"}))
    yield from (("workflow_runs", {}), ("workflow_runs", {"limit": 1}), ("workflow_runs", {"state": "waiting"}))
    yield "resources/read", {"uri": "runs://recent"}
    yield from (("resources/read", {"uri": tool_result(name)}) for name in ("workflow_list", "workflow_runs"))
    yield "workflow_lits", {}
    yield from completions("")


QUESTIONS = [
    *lists(),
    *(question for identifier in IDS for question in of_workflows(identifier)),
    *lists(),
    *(question for run_id in RUNS for question in of_runs(run_id)),
    *lists(),
]


@pytest.fixture
def make_deployment(tmp_path: Path) -> Iterator[Callable[..., Deployment]]:
    deployments: list[Deployment] = []

    def make(**options: Any) -> Deployment:
        deployments.append(Deployment(tmp_path / str(len(deployments)), **options))
        return deployments[-1]

    yield make
    for deployment in deployments:
        deployment.close()


@pytest.mark.parametrize(("capabilities", "budget"), [({}, 200_000), (ASKING, 1_000)], ids=["plain", "folded"])
@pytest.mark.parametrize("scopes", [("read",), ("run",), ("confirm",), ("run", "confirm"), ("admin",)], ids="+".join)
def test_every_answer_is_as_if_hidden_workflows_did_not_exist(
    make_deployment: Callable[..., Deployment], scopes: tuple[str, ...], capabilities: JsonObject, budget: int
) -> None:
    full, open_only = make_deployment(budget=budget), make_deployment(hidden=False, budget=budget)
    full.connect(LOCAL).result("tools/list")
    names = [*full.workflows.offers, "the_canar", "the_doc"]
    assert len(names) == len(OPEN) + len(HIDDEN) + 2
    sees_part = full.connect(caller(*scopes), capabilities=capabilities)
    sees_all = open_only.connect(caller(*scopes, workflows=("*",)), capabilities=capabilities)

    for method, params in [*QUESTIONS, *(question for name in names for question in of_tools(name)), *lists()]:
        one, other = sees_part.ask(method, params), sees_all.ask(method, params)
        text = json.dumps(one).replace(f"{full.library}/", "")

        assert text == json.dumps(other).replace(f"{open_only.library}/", ""), (method, params)
        assert "canary" not in text or "canary" in f"{method}{params}"


def test_every_tool_is_among_the_compared_calls() -> None:
    methods = {method for method, _ in QUESTIONS}

    tools = (*BUILTIN_TOOLS.values(), workflow_refresh.TOOL, workflow_search.TOOL)
    assert {tool.name for tool in tools} - methods == {"workflow_validate_json"}  # which sees no library


def test_every_method_is_among_the_compared_calls() -> None:
    methods = {method for method, _ in QUESTIONS}
    silent = {"initialize", "ping", "shutdown", "server/discover"}  # which tell of the server alone

    assert Connection._HANDSHAKE.keys() - methods == silent
    assert Connection._ENVELOPE.keys() - methods == {"server/discover", "subscriptions/listen", "tasks/update"}


@pytest.mark.parametrize("access", [caller("run", workflows=("nothing-*",)), caller("run", workflows=())])
def test_a_caller_without_visible_workflows_sees_an_empty_server(
    make_deployment: Callable[..., Deployment], access: Access
) -> None:
    client = make_deployment().connect(access)

    assert client.result("workflow_list") == {"workflows": []}
    assert client.result("prompts/list") == {"prompts": []}
    assert client.result("workflow_runs")["runs"] == []
    assert client.refusal("workflow_get", {"id": OPEN[0]})["code"] == -32001


@pytest.mark.parametrize(
    ("access", "is_named"),
    [(caller("admin"), False), (caller("run", workflows=("*",)), False), (caller("admin", workflows=("*",)), True)],
    ids=["admin-of-some", "runs-all", "admin-of-all"],
)
def test_only_administrators_of_everything_see_the_paths_of_documents(
    make_deployment: Callable[..., Deployment], access: Access, is_named: bool
) -> None:
    deployment = make_deployment()
    client = deployment.connect(access)
    requests = [("workflow_get", {"id": "docs-broken"}), ("resources/read", {"uri": "workflow://docs-broken"})]

    refusals = [client.refusal(method, params) for method, params in requests]

    assert [one["data"]["file"].endswith("docs-broken.json") for one in refusals] == [True, True]
    assert [str(deployment.library) in json.dumps(one) for one in refusals] == [is_named, is_named]


@pytest.mark.parametrize(
    ("access", "problem"),
    [
        (caller("run"), "A damaged journal was set aside as runs.sqlite.corrupt-1."),
        (caller("run", workflows=("*",)), "A damaged journal was set aside as runs.sqlite.corrupt-1: 4 of 5 runs."),
        (
            caller("admin", workflows=("*",)),
            "A damaged journal was set aside as /srv/runs.sqlite.corrupt-1: 4 of 5 runs.",
        ),
    ],
    ids=["some", "all", "admin"],
)
def test_callers_see_only_their_part_of_the_outcome_of_a_damaged_journal(
    make_deployment: Callable[..., Deployment], monkeypatch: pytest.MonkeyPatch, access: Access, problem: str
) -> None:
    deployment = make_deployment()
    aside = DamagedJournal(file="/srv/runs.sqlite.corrupt-1", outcome="4 of 5 runs", details=("secret-plan",))
    monkeypatch.setattr(deployment.runs.journal, "damaged_journals", lambda: [aside])
    client = deployment.connect(access)

    refusal = client.result("tools/call", {"name": "workflow_status", "arguments": {"runId": "no-such-run"}})

    assert client.result("workflow_runs")["next"].endswith(problem)
    assert refusal["content"][0]["text"].endswith(problem)


def test_the_id_of_a_hidden_run_is_refused_without_details(make_deployment: Callable[..., Deployment]) -> None:
    client = make_deployment().connect(caller("run"))

    refusal = client.refusal("workflow_start", {"workflowId": "docs-guide", "runId": "of-secret-plan"})

    assert refusal["data"]["details"] == "The id 'of-secret-plan' cannot be taken. Use another."
    assert refusal["data"].keys() == {"details", "runId"}


def test_pages_of_runs_are_full_despite_hidden_runs_in_between(make_deployment: Callable[..., Deployment]) -> None:
    deployment = make_deployment()
    for number in range(6):
        deployment.begin("docs-guide", f"shown-{number}")
        deployment.begin("secret-plan", f"kept-{number}")
    client = deployment.connect(caller("read"))

    ids, cursor = [], None
    while True:
        page = client.result("workflow_runs", {"limit": 3, "cursor": cursor})
        ids += [run["runId"] for run in page["runs"]]
        cursor = page.get("nextCursor")
        assert len(page["runs"]) == 3 or cursor is None
        if cursor is None:
            break

    assert sorted(ids) == sorted(
        [f"shown-{number}" for number in range(6)] + [f"{how}-{one}" for how in ("of", "held") for one in OPEN]
    )


def test_a_new_document_is_visible_only_to_callers_who_may_read_it(make_deployment: Callable[..., Deployment]) -> None:
    deployment = make_deployment()
    client = deployment.connect(caller("read"))
    assert len(client.result("workflow_list")["workflows"]) == 2
    write(deployment.library, document(identifier="docs-new"))
    write(deployment.library, document(identifier="secret-new"))

    ids = [summary["id"] for summary in client.result("workflow_list")["workflows"]]

    assert ids == ["docs-guide", "docs-new", "docs-notes"]


# ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────────────


def test_no_caller_is_notified_of_a_hidden_run(make_deployment: Callable[..., Deployment]) -> None:
    deployment = make_deployment()
    client = deployment.connect(caller("read"))
    for uri in ("run://of-secret-plan", "run://of-docs-guide", "runs://recent"):
        client.ask("resources/subscribe", {"uri": uri})

    deployment.runs.submit("of-secret-plan", "write", "done", {})
    deployment.begin("secret-plan", "one-more")
    deployment.runs.delete("of-secret-plan")

    assert client.heard() == []
    deployment.runs.submit("of-docs-guide", "write", "done", {})
    assert client.heard() == ["run://of-docs-guide", "runs://recent"]
    deployment.runs.delete("of-docs-guide")
    assert client.heard() == ["run://of-docs-guide", "runs://recent"]


def test_a_change_is_stored_even_if_its_visibility_cannot_be_checked(
    make_deployment: Callable[..., Deployment], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> NoReturn:
        raise StorageError("The journal is away.")

    deployment = make_deployment()
    client = deployment.connect(caller("read"))
    client.ask("resources/subscribe", {"uri": "run://of-docs-guide"})
    monkeypatch.setattr(deployment.runs, "workflow_of", fail)

    run = deployment.runs.submit("of-docs-guide", "write", "done", {})

    assert run.waiting_for == "confirmation"


def test_no_caller_is_notified_of_a_hidden_run_that_another_process_changed(
    make_deployment: Callable[..., Deployment], tmp_path: Path
) -> None:
    deployment = make_deployment()
    client = deployment.connect(caller("read"))
    for uri in ("run://of-secret-plan", "run://of-docs-guide", "runs://recent"):
        client.ask("resources/subscribe", {"uri": uri})
    other = Runs(SqliteJournal(deployment.journal.path), clock=lambda: deployment.now)

    other.submit("of-secret-plan", "write", "done", {})
    assert client.heard() == []
    other.submit("of-docs-guide", "write", "done", {})
    assert client.heard() == ["run://of-docs-guide", "runs://recent"]
    other.close()


# ── that nothing is forgotten ───────────────────────────────────────────────────────────────────────────────────


SERVER_ONLY = {
    Catalog: {"replace_sources"},
    Runs: {
        *("take_snapshot", "take_proof", "conclude_proofs"),
        *("begin_call", "acknowledge_call", "report_call", "finish_call", "fail_call", "lose_call", "stop_call"),
        *("claim_proof", "renew_claim", "report_proof"),  # `ScopedWitness` has these for witnesses
        *("open_runs", "block_stop", "change_session", "refuse_tool"),  # for hooks
        *(
            "offer",
            "at_work",
            "runs_to_stop",
            "damaged_runs",
            "after",
            "all_summaries",
            "heads",
            "import_run",
            "store_import",
            "delete",
            "purge",
            "close",
            "do_all",
        ),
    },
    JournalWatch: set(),
    DynamicTools: {"apply", "forget_names"},
    Execution: {"discovered", "await_discovered", "follow", "drive", "stop", "recover", "apply", "close"},
}
"""What only the server itself does, or a command on its machine: no caller has a way to it."""


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("whole", "view", "scoped"),
    [
        (Catalog, CatalogView, ScopedCatalog),
        (Runs, RunsView, ScopedRuns),
        (JournalWatch, runs_view.RunWatch, ScopedWatch),
        (DynamicTools, WorkflowTools, ScopedWorkflows),
        (Execution, ExecutionView, ScopedExecution),
    ],
)
def test_every_method_is_scoped_or_does_not_exist_for_callers(
    whole: type[Catalog] | type[Runs] | type[runs_view.JournalWatch] | type[DynamicTools] | type[Execution],
    view: type[CatalogView]
    | type[runs_view.RunsView]
    | type[runs_view.RunWatch]
    | type[WorkflowTools]
    | type[ExecutionView],
    scoped: type[ScopedCatalog] | type[ScopedRuns] | type[ScopedWatch] | type[ScopedWorkflows] | type[ScopedExecution],
) -> None:
    methods = {name for name, _ in inspect.getmembers(whole, callable) if not name.startswith("_")}

    assert methods - SERVER_ONLY[whole] <= public(view)
    assert public(scoped) == public(view)
    assert view not in scoped.__mro__  # a rule that is missing is no inherited method that does nothing
    assert whole not in scoped.__mro__


def test_scoped_services_do_not_expose_the_journal(make_deployment: Callable[..., Deployment]) -> None:
    runs = ScopedRuns(make_deployment().runs, caller("admin"), confirmation="auto")

    for name in ("journal", "listeners", "purge", "finish_call"):
        with pytest.raises(AttributeError):
            getattr(runs, name)


def test_a_caller_cannot_end_or_restart_shared_services(make_deployment: Callable[..., Deployment]) -> None:
    services = make_deployment().backends.of(caller("admin", workflows=("*",))).services

    assert [name for name in ("refresh", "start_background", "close") if hasattr(services, name)] == []


# ── workflows of other systems ──────────────────────────────────────────────────────────────────────────────────


class Discovering:
    """The server's own work, as far as providers are concerned: what they have, and that nobody is asked in vain."""

    def __init__(self) -> None:
        def definitions(provider: str, *ids: str) -> tuple[Definition, ...]:
            return tuple(
                Definition(id=one, name=f"{provider} {one}", description="x", provider=provider) for one in ids
            )

        self.listings = {
            "ci": ProviderListing(definitions=definitions("ci", "deploy", "canary"), is_listed=True),
            "vault": ProviderListing(
                definitions=definitions("vault", "canary"), is_away=True, cause="the canary is ill"
            ),
        }
        self.refreshed: list[Collection[str] | None] = []

    def discovered(self) -> JsonObject:
        return self.listings

    def refresh(self, providers: Collection[str] | None = None) -> Future[None]:
        self.refreshed.append(providers)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def progress(self, run_id: str) -> None:
        return None


@pytest.fixture
def execution() -> Discovering:
    return Discovering()


@pytest.fixture
def with_providers(make_deployment: Callable[..., Deployment], execution: Discovering) -> Deployment:
    deployment = make_deployment()
    providers = {name: ProviderConfig(name=name, kind="http") for name in execution.listings}
    deployment.services = msgspec.structs.replace(deployment.services, open_execution=lambda: execution)
    deployment.workflows = DynamicTools(deployment.services, Plan(providers=providers, budget_bytes=200_000))
    return deployment


def test_of_a_provider_a_caller_sees_only_its_own_workflows(with_providers: Deployment) -> None:
    client = with_providers.connect(caller("run", workflows=("ci.deploy", "docs-*")))

    names = {tool["name"] for tool in client.result("tools/list")["tools"]} - set(BUILTIN_TOOLS)
    reply = client.ask("workflow_search", {})  # which is no tool while there is room

    assert names == {"workflow_refresh", "ci_deploy", "the_docs", "the_docs_docs-notes"}
    assert "canary" not in json.dumps(reply)
    assert client.refusal("workflow_start", {"workflowId": "ci.canary"})["code"] == -32001
    assert client.refusal("workflow_start", {"workflowId": "ci_canary"})["code"] == -32001
    assert client.refusal("ci_canary")["code"] == -32601


def test_only_an_administrator_can_poll_providers_and_sees_its_own_workflows(
    with_providers: Deployment, execution: Discovering
) -> None:
    workflows = ("ci.deploy", "docs-*")
    assert with_providers.connect(caller("run", workflows=workflows)).refusal("workflow_refresh")["code"] == -32011
    assert execution.refreshed == []
    client = with_providers.connect(caller("admin", workflows=workflows))
    client.result("tools/list")

    assert client.ask("workflow_refresh") is None  # it comes later
    client.connection.poll()

    (reply,) = [json.loads(one) for one in client.connection.outbox if b'"result"' in one]
    assert reply["result"]["providers"] == {"ci": {"state": "ready", "workflows": 1}}
    assert reply["result"]["tools"] == 3
    assert execution.refreshed == [{"ci"}]


@pytest.mark.parametrize(
    ("workflows", "expected"),
    [
        (("docs-*",), set()),
        (("vault.backup*",), {"vault"}),
        (("ci.deploy", "vault.x"), {"ci", "vault"}),
        (("*",), None),
    ],
)
def test_an_administrator_of_some_workflows_polls_only_their_providers(
    with_providers: Deployment, execution: Discovering, workflows: tuple[str, ...], expected: list[Sequence[str] | None]
) -> None:
    client = with_providers.connect(caller("admin", workflows=workflows))
    client.result("tools/list")

    client.ask("workflow_refresh")

    assert execution.refreshed == [expected]


def test_new_tools_are_announced_only_to_callers_who_see_them(make_deployment: Callable[..., Deployment]) -> None:
    deployment = make_deployment()
    part, whole = deployment.connect(caller("read")), deployment.connect(caller("read", workflows=("*",)))
    for client in (part, whole):
        client.connection.handle(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        client.result("tools/list")
    write(deployment.library, document(identifier="secret-new"))

    def notified(client: ScopedClient) -> list[Json]:
        client.connection.poll()
        methods = [json.loads(one)["method"] for one in client.connection.outbox]
        client.connection.outbox.clear()
        return methods

    assert notified(whole) == ["notifications/tools/list_changed"]
    assert notified(part) == []
    write(deployment.library, document(identifier="docs-new"))
    assert notified(part) == ["notifications/tools/list_changed"]
