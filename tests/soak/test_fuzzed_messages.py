"""A million fuzzed messages: each request is answered with its id, no answer is an internal error, and memory stays
flat. `make soak` sends 200,000 in each of five configurations; other runs send 4,000.
"""

import json
import random
import threading
from pathlib import Path

import pytest

from support.client import ENVELOPE, Server
from support.journey import IS_SOAK
from support.json_values import Json, JsonObject
from support.make import document, loop, step, write
from support.processes import memory_of

MESSAGES = 200_000 if IS_SOAK else 4_000
"""For each configuration."""
BATCH = 200
SHORT_BYTES = 2_000
MAX_GROWTH = 48 << 20

CONFIGURATIONS: dict[str, tuple[str | None, dict[str, str]]] = {
    "2025-11-25": ("2025-11-25", {}),
    "2025-03-26, with batches": ("2025-03-26", {}),
    "before initialize": (None, {}),
    "with workflow tools": ("2025-11-25", {"WORKFLOWLOOKUP_WORKFLOW_TOOLS": "true"}),
    "short messages": ("2025-11-25", {"WORKFLOWLOOKUP_MAX_MESSAGE_BYTES": str(SHORT_BYTES)}),
}
METHODS = (
    *(
        "ping",
        "tools/list",
        "tools/call",
        "resources/list",
        "resources/read",
        "prompts/get",
        "completion/complete",
        "skills/get",
    ),
    *("workflow_list", "workflow_get", "workflow_next", "workflow_validate", "workflow_start", "workflow_submit"),
    *("workflow_status", "workflow_runs", "logging/setLevel", "tasks/get", "no/such", "notifications/cancelled"),
)
NAMES = (
    "id",
    "workflowId",
    "stepId",
    "completedSteps",
    "context",
    "output",
    "runId",
    "name",
    "arguments",
    "uri",
    "_meta",
)
WORDS = (
    "sample-workflow",
    "first-step",
    "again@1",
    "run://x",
    "workflow_next",
    "",
    "\x00",
    "\ud83d",
    "é" * 40,
    "a" * 600,
)
RAW = (b"1e400", b"9" * 4_301, b"[" * 300 + b"]" * 300, b"NaN", b"-0", b'"\\ud83d"', b'{"a":1,"a":2}', b"\xff")
"""Put where a value is expected: valid JSON that is hard to read, and some that is none."""


class Fuzz:
    """Makes messages; the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._number = 0

    def value(self, depth: int = 0) -> Json:
        pick = self._random.random()
        if depth > 3 or pick < 0.5:
            return self._random.choice((None, True, 0, -1, 1.5, 10**30, *WORDS, "@@RAW@@"))
        if pick < 0.7:
            return [self.value(depth + 1) for _ in range(self._random.randrange(4))]
        return {self._random.choice(NAMES): self.value(depth + 1) for _ in range(self._random.randrange(5))}

    def params(self) -> Json:
        if self._random.random() < 0.2:
            return self.value()
        valid: JsonObject = {
            "workflowId": "sample-workflow",
            "stepId": "first-step",
            "completedSteps": [],
            "output": "x",
        }
        params = {name: value for name, value in valid.items() if self._random.random() < 0.8}
        params |= {self._random.choice(NAMES): self.value(1) for _ in range(self._random.randrange(3))}
        if self._random.random() < 0.2:
            params["_meta"] = ENVELOPE
        return params

    def line(self) -> tuple[bytes, int | None]:
        """One message, and the id that its answer must have; None when it is cut, a batch or no JSON."""
        self._number += 1
        message = {
            "jsonrpc": "2.0",
            "id": self._number,
            "method": self._random.choice(METHODS),
            "params": self.params(),
        }
        members = list(message.items())
        self._random.shuffle(members)
        text = json.dumps(dict(members)).encode()
        while b'"@@RAW@@"' in text:
            text = text.replace(b'"@@RAW@@"', self._random.choice(RAW), 1)
        pick = self._random.random()
        if pick < 0.05:
            return b"[" + text + b"]", None
        if pick < 0.1:
            return text[: self._random.randrange(len(text))], None
        is_json = b"NaN" not in text and b"\xff" not in text
        return text, self._number if is_json and len(text) <= SHORT_BYTES else None


def replies_of(server: Server, lines: list[bytes], mark: str) -> list[Json]:
    """Everything that comes until the ping after these lines is answered."""
    ping = json.dumps({"jsonrpc": "2.0", "id": mark, "method": "ping"}).encode()
    writer = threading.Thread(target=server.write, args=(b"\n".join([*lines, ping]) + b"\n",))
    writer.start()
    replies: list[Json] = []
    while True:
        reply = server.receive(60)
        if isinstance(reply, dict) and reply.get("id") == mark:
            writer.join()
            return replies
        replies.append(reply)


@pytest.mark.parametrize(("version", "environment"), CONFIGURATIONS.values(), ids=CONFIGURATIONS)
def test_every_message_gets_a_designed_answer(
    tmp_path: Path,
    library: Path,
    version: str | None,
    environment: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(library, document(step(), loop("again", [step("inner")], type="for", count=2)))
    server = Server(tmp_path, directory=library, environment=environment)
    threading.Thread(target=server.process.stderr.read, daemon=True).start()  # type: ignore[union-attr]
    if version:
        server.initialize(version)
    fuzz, sent, answered, growth, before = Fuzz(14), 0, 0, 0, None
    while sent < MESSAGES:
        messages = [fuzz.line() for _ in range(BATCH)]
        lines = [line for line, _ in messages]
        replies = replies_of(server, lines, f"mark-{sent}")
        flat = [one for reply in replies for one in (reply if isinstance(reply, list) else [reply])]
        internal = [one for one in flat if one.get("error", {}).get("code") == -32603]
        assert internal == []
        assert {number for _, number in messages if number} <= {one.get("id") for one in flat}
        sent, answered = sent + len(lines), answered + len(flat)
        if before is None and sent >= MESSAGES / 2:
            before = memory_of(server.process.pid)
        elif before is not None:
            growth = memory_of(server.process.pid) - before
    server.close_input()

    assert server.wait() == 0
    server.stop()
    with capsys.disabled():
        print(f"\n{sent:,} messages, {answered:,} answers, 0 findings; memory grew by {growth / (1 << 20):.1f} MB")
    assert growth < MAX_GROWTH
