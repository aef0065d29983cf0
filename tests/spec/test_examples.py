"""The examples of the specs, run as they stand: `examples.json` says how to read it."""

import json
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from spec.roads import SPEC_VERSION
from support.client import Server, Start
from support.json_values import Json, JsonObject
from support.make import write

DATA: JsonObject = json.loads(Path(__file__).with_name("examples.json").read_text("utf-8"))
EXAMPLES = [
    pytest.param(
        example,
        id=example["exchanges"][0]["clause"],
        marks=pytest.mark.spec(*(exchange["clause"] for exchange in example["exchanges"])),
    )
    for example in DATA["examples"]
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_spec_holds(start: Start, library: Path, example: JsonObject) -> None:
    for content in DATA["libraries"][example["library"]]:
        write(library, content)
    version = SPEC_VERSION if example.get("handshake", True) else None
    server = start(directory=library, version=version, WORKFLOWLOOKUP_WORKFLOW_TOOLS="false")  # as in the spec

    for exchange in example["exchanges"]:
        reply = converse(server, exchange["request"])

        assert list(not_as_shown(exchange["response"], reply, exchange.get("differs", []))) == []


def converse(server: Server, request: Json) -> Json:
    server.write((request if isinstance(request, str) else json.dumps(request)).encode() + b"\n")
    return server.receive()


def not_as_shown(shown: JsonObject, reply: JsonObject, differs: list[JsonObject]) -> Iterator[str]:
    """Every place where the reply is not what the example shows, or not what we said that we do instead."""
    ours = {difference["at"]: difference for difference in differs}
    yield from _compare(shown, reply, "", ours.keys())
    for place, difference in ours.items():
        *path, name = place.split(".")
        parent = reduce(lambda value, key: value[key], path, reply)
        if difference.get("absent"):
            if name in parent:
                yield f"{place} is there"
        elif name not in parent:
            yield f"{place} is missing"
        elif "instead" in difference:
            yield from _compare(difference["instead"], parent[name], place, ())
        else:
            actual = json.dumps(parent[name], ensure_ascii=False)
            yield from (
                f"{place} lacks {text!r}: {actual}" for text in difference.get("holds", ()) if text not in actual
            )


def _compare(shown: Any, actual: Any, place: str, leave_out: Any) -> Iterator[str]:
    if isinstance(shown, dict) and isinstance(actual, dict):
        for name, value in shown.items():
            inner = f"{place}.{name}".lstrip(".")
            if inner in leave_out:
                continue
            if name in actual:
                yield from _compare(value, actual[name], inner, leave_out)
            else:
                yield f"{inner} is missing"
    elif isinstance(shown, list) and isinstance(actual, list) and len(shown) == len(actual):
        for index, pair in enumerate(zip(shown, actual, strict=True)):
            yield from _compare(*pair, f"{place}[{index}]", leave_out)
    elif shown != actual:
        yield f"{place}: {actual!r} instead of {shown!r}"
