"""Where values stand in a text, and what may be put between them."""

import json

from hypothesis import given
from hypothesis import strategies as st

from support.json_values import Json, JsonObject
from workflowlookup.cli.configuration import with_server
from workflowlookup.language.formats.positions import JsonNode, json_finder, scan

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)
OBJECTS = st.dictionaries(st.text(), VALUES)
LAYOUTS = st.sampled_from([None, 0, 2, "\t"])


def assert_stands(text: str, node: JsonNode, value: Json) -> None:
    assert json.loads(text[node.start : node.end]) == value
    if isinstance(value, dict):
        assert all(text.startswith('"', member.at) for member in node.members.values())
    if isinstance(value, dict | list):
        members = value if isinstance(value, dict) else dict(enumerate(value))
        assert node.members.keys() == members.keys()
        for name, member in node.members.items():
            assert_stands(text, member, members[name])


@given(value=VALUES, indent=LAYOUTS, ascii_only=st.booleans())
def test_every_value_stands_where_the_scan_says(value: Json, indent: int | str | None, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)

    assert_stands(text, scan(text), value)


@given(content=OBJECTS, servers=st.none() | OBJECTS, indent=LAYOUTS, name=st.sampled_from(["a", "workflowlookup"]))
def test_a_server_can_be_put_into_any_json_and_nothing_else_changes(
    content: JsonObject, servers: JsonObject | None, indent: int | str | None, name: str
) -> None:
    before = {**content, **({} if servers is None else {"mcpServers": servers})}
    text = json.dumps(before, indent=indent)

    once = with_server(text, "mcp.json", "mcpServers", name, {"command": "x"})

    older = (servers or {}).get(name)
    entry = {**(older if isinstance(older, dict) else {}), "command": "x"}
    assert json.loads(once) == {**before, "mcpServers": {**(servers or {}), name: entry}}
    assert with_server(once, "mcp.json", "mcpServers", name, {"command": "x"}) == once


def test_quotes_and_brackets_inside_text_do_not_confuse_the_scan() -> None:
    text = '{"a\\"{[": "é\\\\", "b": [1, {"c": null}]}'

    node = scan(text).members["b"].members[1].members["c"]

    assert text[node.at : node.end] == '"c": null'


def test_a_byte_order_mark_moves_nothing() -> None:
    assert json_finder(b'\xef\xbb\xbf{"a": 1,\n"b": 2}')(("b",)) == (2, 1)
