"""A service that has workflows, over HTTP on loopback. For tests.

    python http_service.py DIRECTORY PORT

It serves the plain API (`/workflows`, `/workflows/ID/runs`, `/workflows/ID/runs/RUN`, `…/RUN/cancel`) and the one of the
preset "simplified" (`/api/v1/service/workflows/mcp`, `…/ID/start`, `…/ID/runs/RUN/status`), and those of well-known
systems (`systems.py`). `state.py` says how a test controls it and sees what it saw; headers are in seen.jsonl, too.
"""

import json
import re
import sys
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.json_values import Json
from support.narrowing import not_none
from upstream import systems
from upstream.state import UpstreamState

ROUTES = (
    ("GET", re.compile(r"/workflows"), "list"),
    ("POST", re.compile(r"/workflows/([^/]+)/runs"), "start"),
    ("GET", re.compile(r"/workflows/([^/]+)/runs/([^/]+)"), "status"),
    ("POST", re.compile(r"/workflows/([^/]+)/runs/([^/]+)/cancel"), "cancel"),
    ("GET", re.compile(r"/api/v1/service/workflows/mcp"), "simplified_list"),
    ("POST", re.compile(r"/api/v1/service/workflows/([^/]+)/start"), "simplified_start"),
    ("GET", re.compile(r"/api/v1/service/workflows/([^/]+)/runs/([^/]+)/status"), "simplified_status"),
)


class Refused(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}


class Service(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    state: UpstreamState

    def do_GET(self) -> None:
        self.answer("GET")

    def do_POST(self) -> None:
        self.answer("POST")

    def do_PUT(self) -> None:
        self.answer("PUT")

    def do_PATCH(self) -> None:
        self.answer("PATCH")

    def do_DELETE(self) -> None:
        self.answer("DELETE")

    def log_message(self, *_: Any) -> None:
        """Nothing: what came is in seen.jsonl."""

    def answer(self, method: str) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        address = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = raw.decode(errors="replace")
        matches = ((name, pattern.fullmatch(address.path)) for wanted, pattern, name in ROUTES if wanted == method)
        name, match = next(((name, match) for name, match in matches if match), ("unknown", None))
        system = self.find_system(method, address.path) if match is None else None
        what = system[0] if system else name.removeprefix("simplified_")
        headers = {key.lower(): value for key, value in self.headers.items()}
        self.state.see(what, method=method, path=self.path, body=body, headers=headers)
        rules = self.state.rules()
        time.sleep(rules.get("delay", 0))
        try:
            if rules.get("token") and headers.get("authorization") != rules["token"]:
                raise Refused(401, "who are you?")  # noqa: TRY301
            if match is None and system is None:
                raise Refused(404, "nothing here")  # noqa: TRY301
            self.behave(rules.get(what, "ok"), what)
            if system:
                _, handler, parts = system
                self.send(handler(systems.UpstreamRequest(self.state, parts, body, query)))
                return
            reply: Json = getattr(self, f"on_{name}")(
                *not_none(match).groups(), body=body, query=query, headers=headers
            )
            status, extra = 200, {}
        except Refused as refusal:
            reply, status, extra = {"error": str(refusal)}, refusal.status, refusal.headers
        except Garbage:
            reply, status, extra = b"<html>no workflows here</html>", 200, {}
        self.send(systems.Reply(reply, status, headers=extra))

    def find_system(self, method: str, path: str) -> tuple[str, systems.Handler, tuple[str, ...]] | None:
        """The route of one of the well-known systems: its kind, what answers, and the parts of the path."""
        for wanted, pattern, kind, handler in systems.ROUTES:
            if wanted == method and (match := pattern.fullmatch(path)):
                return kind, handler, tuple(unquote(part) for part in match.groups())
        return None

    def send(self, reply: systems.Reply) -> None:
        body, is_raw = reply.body, isinstance(reply.body, bytes)
        data = body if is_raw else b"" if body is None and reply.status in (202, 204) else json.dumps(body).encode()
        kind = "text/plain" if reply.is_text else "application/json"
        if reply.is_text:
            data = body.encode()
        try:
            self.send_response(reply.status)
            self.send_header("Content-Type", kind)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if reply.status != 204:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            self.state.see("gone", path=self.path)

    def behave(self, how: Any, what: str) -> None:
        match how:
            case {"code": code, "times": times}:
                if len(self.state.seen(what)) <= times:
                    raise Refused(code, f"{what} is refused for now", how.get("retry_after"))
            case {"codes": codes}:
                if (count := len(self.state.seen(what))) <= len(codes):
                    raise Refused(codes[count - 1], f"{what} is refused for now")
            case "fail":
                raise Refused(500, f"{what} is broken today")
            case "hang":
                time.sleep(3600)
            case "garbage":
                raise Garbage

    # ── the plain API ──

    def on_list(self, *, query: dict[str, str], **_: Any) -> Json:
        workflows, size = self.state.workflows(), self.state.rules().get("page")
        if not size:
            return workflows
        page = int(query.get("page", "1"))
        chunk = workflows[(page - 1) * size : page * size]
        more = page * size < len(workflows)
        return {"items": chunk, "total": len(workflows), "next": f"/workflows?page={page + 1}" if more else None}

    def on_start(self, workflow: str, *, body: Json, headers: dict[str, str], **_: Any) -> Json:
        run_id = self.state.begin(workflow, body.get("input"), headers.get("idempotency-key", ""))
        if self.state.rules().get("start") == "lost":
            raise Refused(502, "the answer was lost")
        return {"runId": run_id}

    def on_status(self, _: str, run_id: str, **__: Any) -> Json:
        run = self.state.run(run_id)
        if run is None:
            raise Refused(404, "no such run")
        shown = {"runId": run["id"], "status": run["state"], "output": run["output"]}
        return shown | {name: run[name] for name in ("error", "progress") if name in run}

    def on_cancel(self, _: str, run_id: str, **__: Any) -> Json:
        if self.state.rules().get("cancel") == "ignore":
            return {"cancelled": True}
        stopped = self.state.cancel(run_id)
        self.state.see("stopped" if stopped else "not-stopped", run=run_id)
        return {"cancelled": stopped}

    # ── the preset "simplified" ──

    def on_simplified_list(self, **_: Any) -> Json:
        workflows = self.state.workflows()
        shown = [
            {
                "id": w.get("id"),
                "title": w.get("name"),
                "description": w.get("description"),
                "inputs": w.get("inputSchema"),
            }
            for w in workflows
        ]
        return {"count": len(shown), "results": shown}

    def on_simplified_start(self, workflow: str, *, body: Json, **_: Any) -> Json:
        """The instance is named by `workflow_id`; `correlation_id` is of no use for questions."""
        return {"correlation_id": str(uuid.uuid4()), "workflow_id": self.state.begin(workflow, body.get("input"))}

    def on_simplified_status(self, workflow: str, run_id: str, **_: Any) -> Json:
        """Times are milliseconds, `workflow_id` is that of the workflow, and why it failed is part of the output."""
        run = self.state.run(run_id)
        if run is None:
            raise Refused(404, "no such run")
        began = int(run["began"] * 1000)
        shown = {"create_time": began, "update_time": began + 102, "start_time": began, "status": run["state"]}
        if run["state"] in ("COMPLETED", "FAILED", "CANCELLED"):
            shown["end_time"] = began + 198
        output = {"error": run["error"], "analysis": None} if "error" in run else run["output"]
        return shown | {"workflow_id": workflow, "input": run["input"], "output": output}


class Garbage(Exception):
    """An answer that is no JSON."""


class Server(ThreadingHTTPServer):
    """Many at once; the port can be taken again at once."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128


def main() -> None:
    Service.state = UpstreamState(Path(sys.argv[1]))
    server = Server(("127.0.0.1", int(sys.argv[2])), Service)
    Service.state.see("began", port=server.server_port)
    server.serve_forever()


if __name__ == "__main__":
    main()
