"""Well-known systems in the shape that their APIs have, for `http_service.py`. Each speaks of the runs of `state.py`.

A route answers with a status, headers and a body. Its kind ("list", "start", "status", "cancel") is what seen.jsonl says.
"""

import json
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from support.json_values import Json, JsonObject
from upstream.state import UpstreamState


@dataclass
class Reply:
    """An answer as it goes out."""

    body: Json = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    is_text: bool = False


@dataclass
class UpstreamRequest:
    """A request."""

    state: UpstreamState
    parts: tuple[str, ...]
    """What the path has where the route has a group."""
    body: Json
    query: dict[str, str]

    def run(self, run_id: str | None = None) -> JsonObject:
        """The run that the path, or the body, names; an empty one when there is none."""
        return self.state.run(run_id or self.parts[-1]) or {}


Handler = Callable[[UpstreamRequest], Reply]
ROUTES: list[tuple[str, re.Pattern[str], str, Handler]] = []
NOT_FOUND = Reply({"message": "not found"}, 404)
ISO = "2026-11-17T01:00:00+00:00"


def route(method: str, path: str, kind: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        ROUTES.append((method, re.compile(path), kind, handler))
        return handler

    return register


# ── Apache Airflow ──


@route("GET", r"/airflow/api/v1/dags", "list")
def airflow_list(request: UpstreamRequest) -> Reply:
    start, size = int(request.query.get("offset", "0")), 2
    dags = [
        {"dag_id": w["id"], "dag_display_name": w["name"], "description": None, "is_paused": False, "tags": []}
        for w in request.state.workflows()
    ]
    return Reply({"dags": dags[start : start + size], "total_entries": len(dags)})


@route("POST", r"/airflow/api/v1/dags/([^/]+)/dagRuns", "start")
def airflow_start(request: UpstreamRequest) -> Reply:
    run_id = request.state.begin(request.parts[0], request.body["conf"])
    return Reply({"dag_run_id": run_id, "dag_id": request.parts[0], "state": "queued", "conf": request.body["conf"]})


@route("GET", r"/airflow/api/v1/dags/[^/]+/dagRuns/([^/]+)", "status")
def airflow_status(request: UpstreamRequest) -> Reply:
    words = {"COMPLETED": "success", "FAILED": "failed", "CANCELLED": "failed", "RUNNING": "running"}
    run = request.run()
    return Reply({"dag_run_id": run["id"], "state": words[run["state"]], "start_date": ISO, "end_date": None})


@route("PATCH", r"/airflow/api/v1/dags/[^/]+/dagRuns/([^/]+)", "cancel")
def airflow_cancel(request: UpstreamRequest) -> Reply:
    request.state.cancel(request.parts[0])
    return Reply({"dag_run_id": request.parts[0], "state": request.body["state"]})


# ── Argo Workflows ──


@route("GET", r"/argo/api/v1/workflow-templates/prod", "list")
def argo_list(request: UpstreamRequest) -> Reply:
    items = [
        {
            "metadata": {
                "name": w["id"],
                "namespace": "prod",
                "annotations": {"workflows.argoproj.io/description": w["description"]},
            },
            "spec": {"entrypoint": "main"},
        }
        for w in request.state.workflows()
    ]
    return Reply({"metadata": {"resourceVersion": "1"}, "items": items})


@route("POST", r"/argo/api/v1/workflows/prod/submit", "start")
def argo_start(request: UpstreamRequest) -> Reply:
    body = request.body
    given = dict(pair.split("=", 1) for pair in body["submitOptions"]["parameters"])
    run_id = request.state.begin(body["resourceName"], given)
    return Reply({"metadata": {"name": run_id, "namespace": "prod"}, "spec": {}, "status": {}})


@route("GET", r"/argo/api/v1/workflows/prod/([^/]+)", "status")
def argo_status(request: UpstreamRequest) -> Reply:
    run = request.run()
    words = {"COMPLETED": "Succeeded", "FAILED": "Failed", "CANCELLED": "Failed", "RUNNING": "Running"}
    status = {"phase": words[run["state"]], "progress": "1/2", "message": run.get("error", "")}
    outputs = (
        {"outputs": {"parameters": [{"name": "url", "value": json.dumps(run["output"])}]}} if run["output"] else {}
    )
    return Reply({"metadata": {"name": run["id"]}, "status": status | outputs})


@route("PUT", r"/argo/api/v1/workflows/prod/([^/]+)/terminate", "cancel")
def argo_cancel(request: UpstreamRequest) -> Reply:
    request.state.cancel(request.parts[0])
    return Reply({"metadata": {"name": request.parts[0]}, "status": {"phase": "Running"}})


# ── Conductor ──


@route("GET", r"/conductor/api/metadata/workflow/latest-versions", "list")
def conductor_list(request: UpstreamRequest) -> Reply:
    workflows = request.state.workflows()
    return Reply([{"name": w["id"], "version": 3, "description": w["description"], "tasks": []} for w in workflows])


@route("POST", r"/conductor/api/workflow/([^/]+)", "start")
def conductor_start(request: UpstreamRequest) -> Reply:
    return Reply(request.state.begin(request.parts[0], request.body), is_text=True)


@route("GET", r"/conductor/api/workflow/([^/]+)", "status")
def conductor_status(request: UpstreamRequest) -> Reply:
    run = request.run()
    state = "TERMINATED" if run["state"] == "CANCELLED" else run["state"]
    shown = {"workflowId": run["id"], "status": state, "input": run["input"], "output": run["output"] or {}}
    return Reply(shown | ({"reasonForIncompletion": run["error"]} if "error" in run else {}))


@route("DELETE", r"/conductor/api/workflow/([^/]+)", "cancel")
def conductor_cancel(request: UpstreamRequest) -> Reply:
    request.state.cancel(request.parts[0])
    return Reply(status=204)


# ── GitHub Actions ──


@route("GET", r"/repos/acme/shop/actions/workflows", "list")
def github_list(request: UpstreamRequest) -> Reply:
    workflows = request.state.workflows()
    shown = [
        {"id": 161335 + at, "name": w["name"], "path": f".github/workflows/{w['id']}.yml", "state": "active"}
        for at, w in enumerate(workflows)
    ]
    return Reply({"total_count": len(shown), "workflows": shown})


@route("POST", r"/repos/acme/shop/actions/workflows/([^/]+)/dispatches", "start")
def github_start(request: UpstreamRequest) -> Reply:
    run_id = request.state.begin(request.parts[0], request.body["inputs"])
    if not request.body.get("return_run_details"):
        return Reply(status=204)
    return Reply({"workflow_run_id": run_id, "run_url": f"https://api.example.com/runs/{run_id}"})


@route("GET", r"/repos/acme/shop/actions/runs/([^/]+)", "status")
def github_status(request: UpstreamRequest) -> Reply:
    run = request.run()
    conclusions = {"COMPLETED": "success", "FAILED": "failure", "CANCELLED": "cancelled"}
    conclusion = conclusions.get(run["state"])
    return Reply({"id": run["id"], "status": "completed" if conclusion else "in_progress", "conclusion": conclusion})


@route("POST", r"/repos/acme/shop/actions/runs/([^/]+)/cancel", "cancel")
def github_cancel(request: UpstreamRequest) -> Reply:
    request.state.cancel(request.parts[0])
    return Reply({}, 202)


# ── n8n ──


@route("GET", r"/n8n/api/v1/workflows", "list")
def n8n_list(request: UpstreamRequest) -> Reply:
    at = int(request.query.get("cursor", "0"))
    workflows = request.state.workflows()
    shown = [
        {"id": w["id"], "name": w["name"], "active": True, "nodes": [], "tags": []} for w in workflows[at : at + 1]
    ]
    return Reply({"data": shown, "nextCursor": str(at + 1) if at + 1 < len(workflows) else None})


@route("POST", r"/n8n/webhook/([^/]+)", "start")
def n8n_start(request: UpstreamRequest) -> Reply:
    run_id = request.state.begin(request.parts[0], request.body)
    rule = request.run(run_id)["rule"]
    if rule.get("responds") == "immediately":
        return Reply({"message": "Workflow was started"})
    if rule.get("responds") == "nothing":
        return Reply(status=204)
    if rule.get("responds") == "text":
        return Reply("Invoice 7 is ready.", is_text=True)
    return Reply({"invoice": 7, "status": "failed", "for": request.body})


# ── Prefect ──


@route("POST", r"/prefect/api/deployments/filter", "list")
def prefect_list(request: UpstreamRequest) -> Reply:
    workflows = request.state.workflows()
    return Reply(
        [
            {
                "id": w["id"],
                "name": w["name"],
                "description": None,
                "flow_id": str(uuid.uuid4()),
                "parameter_openapi_schema": {"title": "Parameters", **w["inputSchema"]},
            }
            for w in workflows
        ]
    )


def prefect_state(run: JsonObject) -> JsonObject:
    state = {"id": str(uuid.uuid4()), "type": run["state"], "name": run["state"].title(), "message": run.get("error")}
    return {"id": run["id"], "name": "sly-otter", "state_type": run["state"], "state": state}


@route("POST", r"/prefect/api/deployments/([^/]+)/create_flow_run", "start")
def prefect_start(request: UpstreamRequest) -> Reply:
    run_id = request.state.begin(request.parts[0], request.body["parameters"], request.body["idempotency_key"])
    return Reply(prefect_state({"id": run_id, "state": "SCHEDULED"}), 201)


@route("GET", r"/prefect/api/flow_runs/([^/]+)", "status")
def prefect_status(request: UpstreamRequest) -> Reply:
    return Reply(prefect_state(request.run()))


@route("POST", r"/prefect/api/flow_runs/([^/]+)/set_state", "cancel")
def prefect_cancel(request: UpstreamRequest) -> Reply:
    request.state.cancel(request.parts[0])
    return Reply({"state": request.body["state"], "status": "ACCEPT"}, 201)


# ── AWS Step Functions, behind a gateway that signs ──


@route("POST", r"/steps/list", "list")
def steps_list(request: UpstreamRequest) -> Reply:
    arn = "arn:aws:states:eu-west-1:123456789012:stateMachine:"
    workflows = request.state.workflows()
    return Reply({"stateMachines": [{"stateMachineArn": arn + w["id"], "name": w["id"]} for w in workflows]})


@route("POST", r"/steps/start", "start")
def steps_start(request: UpstreamRequest) -> Reply:
    given = json.loads(request.body["input"])
    run_id = request.state.begin(request.body["stateMachineArn"].rpartition(":")[2], given)
    return Reply({"executionArn": f"arn:aws:states:eu-west-1:123456789012:execution:x:{run_id}", "startDate": 1.7e9})


@route("POST", r"/steps/describe", "status")
def steps_status(request: UpstreamRequest) -> Reply:
    run = request.run(request.body["executionArn"].rpartition(":")[2])
    words = {"COMPLETED": "SUCCEEDED", "CANCELLED": "ABORTED"}
    shown = {"executionArn": request.body["executionArn"], "status": words.get(run["state"], run["state"])}
    if "error" in run:
        return Reply(shown | {"error": "States.TaskFailed", "cause": run["error"]})
    return Reply(shown | ({"output": json.dumps(run["output"])} if run["output"] else {}))


@route("POST", r"/steps/stop", "cancel")
def steps_cancel(request: UpstreamRequest) -> Reply:
    request.state.cancel(request.body["executionArn"].rpartition(":")[2])
    return Reply({"stopDate": 1.7e9})


# ── Temporal ──

TEMPORAL = r"/temporal/api/v1/namespaces/default/workflows/([^/]+)"


@route("POST", TEMPORAL, "start")
def temporal_start(request: UpstreamRequest) -> Reply:
    """The caller names the run; the id in the answer is another one."""
    (given,) = request.body["input"]
    run_id = request.state.begin(request.body["workflowType"]["name"], given, request.body["requestId"])
    request.state.name_run(run_id, request.parts[0])
    return Reply({"runId": str(uuid.uuid4()), "started": True})


@route("GET", TEMPORAL, "status")
def temporal_status(request: UpstreamRequest) -> Reply:
    run = request.run()
    words = {"CANCELLED": "CANCELED"}
    state = f"WORKFLOW_EXECUTION_STATUS_{words.get(run['state'], run['state'])}"
    return Reply({"workflowExecutionInfo": {"execution": {"workflowId": request.parts[0]}, "status": state}})


@route("POST", TEMPORAL + "/cancel", "cancel")
def temporal_cancel(request: UpstreamRequest) -> Reply:
    request.state.cancel(request.parts[0])
    return Reply({})


# ── a service that accepts jobs and says where they are ──


@route("POST", r"/jobs/([^/]+)", "start")
def jobs_start(request: UpstreamRequest) -> Reply:
    run_id = request.state.begin(request.parts[0], request.body)
    where = request.run(run_id)["rule"].get("location", "/jobs/status/{run}?token=7").format(run=run_id)
    return Reply(None, 202, {"Location": where})


@route("GET", r"/jobs/results/([^/]+)", "result")
def jobs_result(request: UpstreamRequest) -> Reply:
    return Reply(request.run()["output"])


@route("GET", r"/jobs/status/([^/]+)", "status")
def jobs_status(request: UpstreamRequest) -> Reply:
    """202 while it runs; then the result itself, or nothing, or where the result is."""
    run = request.run()
    if run.get("state") == "RUNNING":
        return Reply(None, 202)
    if where := run["rule"].get("elsewhere"):
        return Reply(None, 303, {"Location": where.format(run=run["id"])})
    return Reply(run["output"]) if run["output"] is not None else Reply(status=204)
