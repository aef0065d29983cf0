"""Random bombs: parts of the listed ones, combined by a seed. Each is answered, and so is the next request."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.client import Server, Start
from support.journey import IS_SOAK
from support.json_values import Json, JsonObject
from support.make import document, loop, step
from test_bombs import MAX_SECONDS, SLOW, processor_seconds

SEEDS = range(300 if IS_SOAK else 10)
MAX_BYTES = 1 << 20
WORDS = ("a" * 50, "\u00e9x", "word", "{{long}}", "{{v1}}", "'", "x: y", "\\", "a\nb")
PATTERNS = (
    *("a{%d}", "(?:a|b){0,%d}c", "(?=a{%d})b", r"\w{1,%d}\W", "(a+)+{1}%d", r"^[\w.-]{1,%d}$", "(a*)*b%d", r"\p{L}{1,%d}"),
)  # fmt: skip


class Maker:
    """Documents and requests from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.room = MAX_BYTES // 2
        """How many characters lists may still take."""

    def count(self, most: int) -> int:
        """A number, mostly small."""
        return int(most ** self.random.random())

    def several(self, make: Any, most: int) -> list[Json]:
        """Different ones, or the same one again and again; none once there is no room left."""
        items: list[Json] = []
        is_same = self.random.random() < 0.3
        for _ in range(self.count(most)):
            if self.room <= 0:
                break
            items.append(items[0] if items and is_same else make())
            self.room -= len(json.dumps(items[-1]))
        return items

    def pattern(self) -> str:
        text = self.random.choice(PATTERNS) % self.count(100_000)
        return text * self.count(20) if self.random.random() < 0.2 else text

    def text(self) -> str:
        return self.random.choice(WORDS) * self.count(2_000)

    def schema(self, depth: int = 4) -> Json:
        if depth <= 0:
            return self.random.choice(
                [
                    {"type": "string"},
                    {"pattern": self.pattern()},
                    {"enum": [*self.several(self.text, 50), 1]},
                    {"$ref": "#"},
                ]
            )

        def inner() -> Json:
            return self.schema(depth - 1)

        makers: list[Callable[[], JsonObject]] = [
            lambda: {self.random.choice(["anyOf", "allOf", "oneOf"]): self.several(inner, 30) or [True]},
            lambda: {"items": inner(), "uniqueItems": True},
            lambda: {"properties": {f"v{n}": part for n, part in enumerate(self.several(inner, 100))}},
            lambda: {"patternProperties": {self.pattern(): inner()}, "unevaluatedProperties": inner()},
            lambda: {"contains": {"not": inner()}, "minContains": self.count(1_000)},
            lambda: {"multipleOf": 1e-300, "not": inner()},
        ]
        return self.random.choice(makers)()

    def condition(self, depth: int = 3) -> Json:
        if depth <= 0 or self.random.random() < 0.3:
            operator = self.random.choice(["equals", "gt", "in", "contains", "startsWith", "matches", "not_equals"])
            wanted: Json = {"in": self.several(self.text, 100), "gt": self.count(1_000), "matches": self.pattern()}.get(
                operator, self.random.choice(WORDS)
            )
            return {"var": f"v{self.count(50)}", operator: wanted}
        key = self.random.choice(["and", "or", "not"])
        if key == "not":
            return {"not": self.condition(depth - 1)}
        return {key: self.several(lambda: self.condition(depth - 1), 20)}

    def rule(self) -> Json:
        return self.random.choice(
            [
                lambda: {"type": "contains", "value": self.text(), "message": self.text()},
                lambda: {"type": "regex", "pattern": self.pattern(), "message": "m"},
                lambda: {"type": "schema", "schema": self.schema(), "message": "m"},
                lambda: {"or": [self.rule(), self.rule()]},
                self.pattern,
            ]
        )()

    def capture(self) -> Json:
        return self.random.choice([{"pattern": self.pattern()}, {"schema": self.schema()}, {"type": "array"}, {}])

    def step(self, number: int) -> Json:
        fields: JsonObject = {}
        makers: dict[str, Callable[[], Json]] = {
            "runCondition": self.condition,
            "validationCriteria": lambda: self.several(self.rule, 300),
            "produces": lambda: {f"v{n}": part for n, part in enumerate(self.several(self.capture, 300))},
            "requires": lambda: sorted({f"v{n}" for n in range(self.count(300))}),
            "guidance": lambda: self.several(self.text, 300),
        }
        for name, make in makers.items():
            if self.random.random() < 0.3:
                fields[name] = make()
        made = step(f"step-{number}", **fields)
        kind = self.random.choice(
            [None, {"type": "for", "count": self.count(1_000)}, {"type": "forEach", "items": "list"}]
        )
        return made if kind is None else loop(f"loop-{number}", [made], maxIterations=1_000, **kind)

    def document(self) -> JsonObject:
        steps = [self.step(number) for number in range(self.count(300)) if self.room > 0]
        fields = {name: self.schema() for name in ("contextSchema", "inputSchema") if self.random.random() < 0.3}
        return document(*steps, **fields)

    def context(self) -> JsonObject:
        values = {f"v{n}": self.random.choice([self.text(), n, [self.text()] * 3]) for n in range(self.count(50))}
        return {**values, "long": "x" * 10_000, "list": list(range(self.count(1_000)))}


def as_yaml(content: JsonObject, merges: int) -> bytes:
    """The document, which is YAML as well, and merge keys that grow."""
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in content.items()]
    grown = (f"  - &a{n} {{<<: *a{n - 1}, k{n}: 1}}" for n in range(1, merges))
    return "\n".join([*lines, "x-all:", "  - &a0 {k: 1}", *grown, ""]).encode()


@pytest.mark.parametrize("seed", SEEDS)
def test_no_random_bomb_holds_up_the_server(start: Start, library: Path, seed: int) -> None:
    maker = Maker(seed)
    content = maker.document()
    text = json.dumps(content).encode()
    is_yaml = maker.random.random() < 0.3
    data = as_yaml(content, maker.count(3_000)) if is_yaml else text
    if max(len(data), len(text)) > MAX_BYTES:
        pytest.skip("a file of this size is not read at all")
    (library / f"bomb.{'yaml' if is_yaml else 'json'}").write_bytes(data)
    server = start(directory=library)
    about = {"workflowId": "sample-workflow", "context": maker.context()}
    output = json.dumps(maker.context()) if maker.random.random() < 0.5 else maker.text() * 20
    requests: list[tuple[str, Json]] = [
        ("workflow_list", {}),
        ("workflow_get", {"id": "sample-workflow"}),
        ("workflow_validate_json", {"workflowJson": text.decode()}),
        ("workflow_next", {**about, "completedSteps": []}),
        ("workflow_next", {**about, "completedSteps": [f"step-{n}" for n in range(maker.count(300))]}),
        *[("workflow_validate", {**about, "stepId": f"step-{n}", "output": output}) for n in range(3)],
        ("workflow_start", about),
    ]

    seconds = {
        f"{number} {method}": ask(server, number, method, params) for number, (method, params) in enumerate(requests)
    }

    assert {request: taken for request, taken in seconds.items() if taken > MAX_SECONDS} == {}
    assert server.process.poll() is None


def ask(server: Server, number: int, method: str, params: Json) -> float:
    """The processor time that a request takes; it is answered, and nothing is an internal error."""
    before = processor_seconds(server)
    server.send({"jsonrpc": "2.0", "id": f"bomb {number}", "method": method, "params": params})
    answer = server.receive(SLOW)
    assert answer["id"] == f"bomb {number}"
    assert answer.get("error", {}).get("code") != -32603, server.log()
    return processor_seconds(server) - before
