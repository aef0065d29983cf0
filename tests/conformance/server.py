"""A server with what the official conformance suite asks for, mounted into our own transport. For tests only.

    python server.py --http 127.0.0.1:PORT

The fixtures stand in for our tools, resources and prompts, and ask the client on their own account; so what passes here
is the transport, the eras and the lifecycle. How our own tools ask is proven in `tests/transport/test_same_everywhere.py`.
Tasks are those of our own runs (`tasks.py`); the workflows and what they call are found by the settings, as ever.
"""

import hashlib
import hmac
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, ClassVar

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))

from conformance import tasks
from conformance.fixtures import ANSWERS, NEEDS, PROMPTS, QUESTIONS, RESOURCES, ROUNDS, SCHEMAS, TEMPLATE, TOOLS, text
from support.json_values import Json, JsonObject
from workflowlookup.app_http import serve_http
from workflowlookup.errors import InvalidParams, MissingClientCapability, ResourceNotFound
from workflowlookup.protocol import jsonrpc
from workflowlookup.protocol.backend import Backend
from workflowlookup.protocol.connection import Connection
from workflowlookup.protocol.requests import PENDING, Call, cacheable_in
from workflowlookup.settings import read_settings

SECRET = b"only for tests"


CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"


def seal(state: str) -> str:
    return f"{state}.{hmac.new(SECRET, state.encode(), hashlib.sha256).hexdigest()}"


PLAYED = tasks.Played()


class Fixtures(Connection):
    """A connection whose tools, resources and prompts are those of the suite."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.open: dict[str, tuple[Call, str]] = {}

    # ── tools ──

    def input_schema_of(self, name: str) -> dict[str, Json]:
        return SCHEMAS.get(name, {"type": "object", "properties": {}})

    def list_tools(self, call: Call) -> Json:
        tools = [
            {"name": name, "description": f"The fixture {name}.", "inputSchema": self.input_schema_of(name)}
            for name in (*TOOLS, *tasks.TOOLS)
        ]
        return cacheable_in(call, {"tools": tools})

    def call_tool(self, call: Call) -> Json:
        name, meta = call.text("name"), call.object_params().get("_meta") or {}
        given = call.object_params().get("arguments") or {}
        if name in ANSWERS:
            return ANSWERS[name]
        if name in tasks.TOOLS:
            return self.call_with_task(call, name, given)
        if name in QUESTIONS:
            question = QUESTIONS[name][1](given)
            identifier = f"fixture-{len(self.open)}-{call.id.decode()}"
            self.open[identifier] = (call, name)
            self.outbox.append(jsonrpc.request(identifier, **question))
            return PENDING
        if name in ROUNDS:
            return self.ask_in_rounds(call, name) or {"content": [text(f"state-ok: {self.described(call)}")]}
        if name == "test_missing_capability":
            if "sampling" not in meta.get(CAPABILITIES, {}):
                raise MissingClientCapability("This needs sampling.", requiredCapabilities={"sampling": {}})
        elif name in ("test_tool_with_logging", "test_logging_tool"):
            if not call.rules.envelope or LOG_LEVEL in meta:
                for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
                    self.outbox.append(jsonrpc.notification("notifications/message", {"level": "info", "data": words}))
        elif name == "test_tool_with_progress":
            for progress in (0, 50, 100) if "progressToken" in meta else ():
                progress_params = {"progressToken": meta["progressToken"], "progress": progress, "total": 100}
                self.outbox.append(jsonrpc.notification("notifications/progress", progress_params))
        elif name != "test_trigger_tool_change":
            raise InvalidParams(f"there is no tool '{name}'")
        return {"content": [text(f"{name} is done.")]}

    # ── tasks ──

    def call_with_task(self, call: Call, name: str, given: dict[str, Json]) -> Json:
        if name == "greet":
            return {"content": [text(f"Hello, {given.get('name')}!")]}
        extensions = ((call.meta or {}).get(CAPABILITIES) or {}).get("extensions") or {}
        if name in tasks.REQUIRED and tasks.EXTENSION not in extensions:
            needed: JsonObject = {"extensions": {tasks.EXTENSION: {}}}
            raise MissingClientCapability("This needs tasks.", requiredCapabilities=needed)
        if name in tasks.PLAYED:
            return PLAYED.start(name)
        params: Json = call.params
        if name == "test_tool_with_task":
            if questions := self.ask_in_rounds(call, name):
                return questions
            responses = params.pop("inputResponses")
            params.pop("requestState", None)
            params["arguments"] = {"name": responses["user_name"]["content"]["name"]}
        return self._call_tool(call)

    def get_task(self, call: Call) -> Json:
        task = call.text("taskId")
        return PLAYED.get(task) if PLAYED.has(task) else self._get_task(call)

    def update_task(self, call: Call) -> Json:
        task, params = call.text("taskId"), call.object_params()
        if PLAYED.has(task):
            return PLAYED.update(task, params["inputResponses"])
        for response in params["inputResponses"].values():
            (response.get("content") or {}).pop("confirm", None)  # our form has no such field: to accept is yes
        return self._update_task(call)

    def described(self, call: Call) -> str:
        return json.dumps(call.object_params().get("inputResponses"))

    def ask_in_rounds(self, call: Call, name: str) -> Json:
        """The next questions; None when all of them are answered."""
        keeps_state, rounds = ROUNDS[name]
        params = call.object_params()
        responses, state = params.get("inputResponses"), params.get("requestState")
        if keeps_state and state is not None and state != seal(state.rpartition(".")[0]):
            raise InvalidParams("requestState is not what this server gave")
        number = int(state.partition(":")[0]) if keeps_state and state is not None else 0
        can = (params.get("_meta") or {}).get(CAPABILITIES, {})
        questions = {key: question for key, question in rounds[number].items() if NEEDS[question["method"]] in can}
        if isinstance(responses, dict) and all(isinstance(responses.get(key), dict) for key in questions):
            number += 1
            if number == len(rounds):
                return None
            questions = rounds[number]
        result: dict[str, Json] = {"resultType": "input_required", "inputRequests": questions}
        return result | ({"requestState": seal(f"{number}:{name}")} if keeps_state else {})

    def call_id_of_question(self, question_id: str) -> bytes | None:
        return self.open[question_id][0].id if question_id in self.open else super().call_id_of_question(question_id)

    def _handle_response(self, response: jsonrpc.Response) -> bytes | None:
        question = self.open.pop(msgspec.json.decode(response.id), None)
        if question is None:
            return super()._handle_response(response)
        call, name = question
        words = QUESTIONS[name][0].format((response.result or response.error).decode())
        return jsonrpc.success(call.id, {"content": [text(words)]})

    # ── resources and prompts ──

    def list_resources(self, call: Call) -> Json:
        described = [{"uri": uri, "name": uri, "description": f"The fixture {uri}."} for uri in RESOURCES]
        return cacheable_in(call, {"resources": described})

    def list_templates(self, call: Call) -> Json:
        return cacheable_in(call, {"resourceTemplates": [{"uriTemplate": TEMPLATE, "name": "template"}]})

    def read_resource(self, call: Call) -> Json:
        uri = call.text("uri")
        resource = RESOURCES.get(uri)
        if match := re.fullmatch(r"test://template/(\w+)/data", uri):
            data = {"id": match[1], "templateTest": True, "data": f"Data for ID: {match[1]}"}
            resource = {"mimeType": "application/json", "text": json.dumps(data)}
        if resource is None:
            raise ResourceNotFound("There is no such fixture.", uri=uri)
        return cacheable_in(call, {"contents": [{"uri": uri, **resource}]})

    def subscribe(self, call: Call) -> Json:
        call.text("uri")
        return {}

    def list_prompts(self, call: Call) -> Json:
        prompts = [
            {
                "name": name,
                "description": f"The fixture {name}.",
                "arguments": [{"name": argument, "description": argument, "required": True} for argument in arguments],
            }
            for name, (arguments, _) in PROMPTS.items()
        ]
        return cacheable_in(call, {"prompts": prompts})

    def get_prompt(self, call: Call) -> Json:
        name = call.text("name")
        if name not in PROMPTS:
            raise InvalidParams(f"there is no prompt '{name}'")
        if name in ROUNDS and (questions := self.ask_in_rounds(call, name)):
            return questions
        contents = PROMPTS[name][1](call.object_params().get("arguments") or {})
        return {"messages": [{"role": "user", "content": content} for content in contents]}

    def complete(self, call: Call) -> Json:
        return {"completion": {"values": [], "total": 0, "hasMore": False}}

    def set_level(self, call: Call) -> Json:
        call.text("level")
        return {}

    def initialize(self, call: Call) -> Json:
        result: Json = self._initialize(call)
        return {**result, "capabilities": {**result["capabilities"], "logging": {}}}

    _FIXTURES: ClassVar[dict[str, Json]] = {
        "tools/list": list_tools,
        "tools/call": call_tool,
        "resources/list": list_resources,
        "resources/templates/list": list_templates,
        "resources/read": read_resource,
        "prompts/list": list_prompts,
        "prompts/get": get_prompt,
        "completion/complete": complete,
    }
    _HANDSHAKE: ClassVar[Any] = {
        **Connection._HANDSHAKE,
        **_FIXTURES,
        "initialize": initialize,
        "resources/subscribe": subscribe,
        "resources/unsubscribe": subscribe,
        "logging/setLevel": set_level,
    }
    _ENVELOPE: ClassVar[Any] = {
        **Connection._ENVELOPE,
        **_FIXTURES,
        "tasks/get": get_task,
        "tasks/update": update_task,
    }


def main() -> int:
    flags = {
        "http": sys.argv[sys.argv.index("--http") + 1],
        "max_sessions": "400",  # the suites are one caller
        "requests_per_minute": "0",
    }
    return serve_http(read_settings(flags, os.environ, directory=os.getcwd()), Fixtures)


if __name__ == "__main__":
    sys.exit(main())
