"""What a caller may not see does not exist: every question is answered as if it never had been there.

The oracle is a second world in which there is nothing to hide. One who sees a part of the first and one who sees all of
the second are told the same, to the letter.
"""

import inspect
import json

import pytest
from world import ASKING, HIDDEN, OPEN, World, caller

from workflowlookup.library.catalog import Catalog
from workflowlookup.runs.service import Runs, Watch
from workflowlookup.tools import BUILTIN_TOOLS
from workflowlookup.tools.scoped import ScopedCatalog, ScopedRuns, _ScopedWatch

EVERY_SCOPE = ("read", "run", "confirm", "admin")
IDS = (*OPEN, *HIDDEN, "docs-broken", "secret-broken", "secret-pla", "docs-guid", "no-such-workflow")
RUNS = (*(f"{how}-{identifier}" for how in ("of", "held") for identifier in (*OPEN, *HIDDEN)), "no-such-run")


def of_workflows(identifier):
    yield "workflow_get", {"id": identifier}
    yield "workflow_get", {"id": identifier, "mode": "full"}
    yield "workflow_next", {"workflowId": identifier, "completedSteps": []}
    yield "workflow_validate", {"workflowId": identifier, "stepId": "write", "output": "x"}
    yield "workflow_start", {"workflowId": identifier, "context": {}}
    yield "workflow_runs", {"workflowId": identifier}
    yield "workflow_list", {"query": identifier}
    yield "resources/read", {"uri": f"workflow://{identifier}"}
    yield "prompts/get", {"name": identifier}
    yield from completions(identifier[:4])
    yield identifier, {}
    yield "tools/call", {"name": identifier, "arguments": {}}
    yield "tools/call", {"name": "workflow_get", "arguments": {"id": identifier}}


def of_runs(run_id):
    yield "workflow_status", {"runId": run_id}
    yield "workflow_submit", {"runId": run_id, "stepId": "write", "output": "done"}
    yield "workflow_submit", {"runId": run_id, "stepId": "write", "confirmed": True}
    yield "workflow_submit", {"runId": run_id, "stepId": "no-such-step", "confirmed": False}
    yield "workflow_cancel", {"runId": run_id, "reason": "enough"}
    yield "resources/read", {"uri": f"run://{run_id}"}
    yield "resources/subscribe", {"uri": f"run://{run_id}"}
    yield "resources/unsubscribe", {"uri": f"run://{run_id}"}
    yield "tools/call", {"name": "workflow_status", "arguments": {"runId": run_id}}


def completions(typed):
    for ref in ({"type": "ref/resource", "uri": "workflow://{id}"}, {"type": "ref/prompt", "name": "x"}):
        yield "completion/complete", {"ref": ref, "argument": {"name": "id", "value": typed}}
    run = {"ref": {"type": "ref/resource", "uri": "run://{id}"}, "argument": {"name": "id", "value": "held"}}
    yield "completion/complete", run


def lists():
    yield from (("tools/list", {}), ("resources/list", {}), ("resources/templates/list", {}), ("prompts/list", {}))
    yield from (("workflow_list", {}), ("workflow_list", {"limit": 1}), ("workflow_list", {"category": "workflow"}))
    yield from (("workflow_runs", {}), ("workflow_runs", {"limit": 1}), ("workflow_runs", {"state": "waiting"}))
    yield "resources/read", {"uri": "runs://recent"}
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
def make_world(tmp_path):
    worlds = []

    def make(**options):
        worlds.append(World(tmp_path / str(len(worlds)), **options))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.mark.parametrize("capabilities", [{}, ASKING], ids=["plain", "asking"])
@pytest.mark.parametrize("scopes", [("read",), ("run",), ("confirm",), ("run", "confirm"), ("admin",)], ids="+".join)
def test_what_may_not_be_seen_never_was(make_world, scopes, capabilities):
    full, open_only = make_world(), make_world(hidden=False)
    sees_part = full.connect(caller(*scopes), capabilities=capabilities)
    sees_all = open_only.connect(caller(*scopes, workflows=("*",)), capabilities=capabilities)

    for method, params in QUESTIONS:
        one, other = sees_part.ask(method, params), sees_all.ask(method, params)
        told = json.dumps(one).replace(str(full.library), "")

        assert told == json.dumps(other).replace(str(open_only.library), ""), (method, params)
        assert "canary" not in told


def test_every_tool_is_among_the_questions():
    asked = {method for method, _ in QUESTIONS}

    assert {tool.name for tool in BUILTIN_TOOLS} - asked == {"workflow_validate_json"}  # which sees no library


@pytest.mark.parametrize("access", [caller("run", workflows=("nothing-*",)), caller("run", workflows=())])
def test_one_who_sees_nothing_is_in_an_empty_house(make_world, access):
    client = make_world().connect(access)

    assert client.result("workflow_list") == {"workflows": []}
    assert client.result("prompts/list") == {"prompts": []}
    assert client.result("workflow_runs")["runs"] == []
    assert client.refusal("workflow_get", {"id": OPEN[0]})["code"] == -32001


def test_a_run_of_a_hidden_workflow_keeps_its_id_and_nothing_else_is_said(make_world):
    client = make_world().connect(caller("run"))

    refusal = client.refusal("workflow_start", {"workflowId": "docs-guide", "runId": "of-secret-plan"})

    assert refusal["data"]["details"] == "The id 'of-secret-plan' cannot be taken. Use another."
    assert refusal["data"].keys() == {"details", "runId"}


def test_pages_of_runs_are_full_though_hidden_ones_lie_between(make_world):
    world = make_world()
    for number in range(6):
        world.begin("docs-guide", f"shown-{number}")
        world.begin("secret-plan", f"kept-{number}")
    client = world.connect(caller("read"))

    found, cursor = [], None
    while True:
        page = client.result("workflow_runs", {"limit": 3, "cursor": cursor})
        found += [run["runId"] for run in page["runs"]]
        cursor = page.get("nextCursor")
        assert len(page["runs"]) == 3 or cursor is None
        if cursor is None:
            break

    assert sorted(found) == sorted(
        [f"shown-{number}" for number in range(6)] + [f"{how}-{one}" for how in ("of", "held") for one in OPEN]
    )


def test_a_document_that_comes_later_is_seen_only_by_those_who_may(make_world):
    from make import document, write

    world = make_world()
    client = world.connect(caller("read"))
    assert len(client.result("workflow_list")["workflows"]) == 2
    write(world.library, document(identifier="docs-new"))
    write(world.library, document(identifier="secret-new"))

    ids = [summary["id"] for summary in client.result("workflow_list")["workflows"]]

    assert ids == ["docs-guide", "docs-new", "docs-notes"]


# ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────────────


def test_nobody_hears_of_a_hidden_run(make_world):
    world = make_world()
    client = world.connect(caller("read"))
    for uri in ("run://of-secret-plan", "run://of-docs-guide", "runs://recent"):
        client.ask("resources/subscribe", {"uri": uri})

    world.runs.submit("of-secret-plan", "write", "done", {})
    world.begin("secret-plan", "one-more")
    world.runs.delete("of-secret-plan")

    assert client.heard() == []
    world.runs.submit("of-docs-guide", "write", "done", {})
    assert client.heard() == ["run://of-docs-guide", "runs://recent"]
    world.runs.delete("of-docs-guide")
    assert client.heard() == ["run://of-docs-guide", "runs://recent"]


def test_nor_when_another_process_changed_it(make_world, tmp_path):
    world = make_world()
    client = world.connect(caller("read"))
    for uri in ("run://of-secret-plan", "run://of-docs-guide", "runs://recent"):
        client.ask("resources/subscribe", {"uri": uri})
    other = Runs(type(world.runs.journal)(world.runs.journal.path), clock=lambda: world.now)

    other.submit("of-secret-plan", "write", "done", {})
    assert client.heard() == []
    other.submit("of-docs-guide", "write", "done", {})
    assert client.heard() == ["run://of-docs-guide", "runs://recent"]
    other.close()


# ── that nothing is forgotten ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("view", "whole", "derived"),
    [
        (ScopedCatalog, Catalog, set()),
        (ScopedRuns, Runs, {"every", "recent"}),  # which ask `summaries` of the view
        (_ScopedWatch, Watch, set()),
    ],
)
def test_every_method_has_its_rule(view, whole, derived):
    public = {name for name, _ in inspect.getmembers(whole, callable) if not name.startswith("_")}

    assert public - derived <= vars(view).keys()


def test_a_view_has_no_way_to_the_journal(make_world):
    runs = ScopedRuns(make_world().runs, caller("admin"), confirmation="auto")

    for name in ("journal", "listeners"):
        with pytest.raises(AttributeError):
            getattr(runs, name)
