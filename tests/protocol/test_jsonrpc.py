"""Messages that cannot be read as they are: whose id is found all the same, and which are read with a replacement."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.json_values import Json, JsonObject
from support.narrowing import instance_of
from workflowlookup.protocol.jsonrpc import (
    MAX_ID_BYTES,
    MalformedMessage,
    Request,
    decode,
    too_long,
    without_surrogates,
)

TEXTS = st.text(alphabet=st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ['"id":5,', "}", "\\", '\\"', "id"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS | st.just("id"), inner, max_size=3),
    max_leaves=8,
)
IDS = st.integers() | TEXTS


@given(IDS, st.dictionaries(TEXTS | st.just("params"), VALUES, max_size=4), st.randoms(), st.booleans(), st.booleans())
def test_the_id_of_any_request_is_found_at_any_position(
    identifier: int | str, others: JsonObject, random: Random, is_ascii: bool, is_wide: bool
) -> None:
    members = [*{**others, "id": identifier, "method": "ping"}.items()]
    random.shuffle(members)
    text = json.dumps(dict(members), ensure_ascii=is_ascii, indent=2 if is_wide else None).encode()

    assert json.loads(too_long(0, text).reply_id) == identifier


@given(IDS, VALUES, st.integers(0, 200))
def test_in_the_beginning_of_a_request_its_id_or_nothing_is_found(
    identifier: int | str, params: Json, cut: int
) -> None:
    text = json.dumps({"jsonrpc": "2.0", "params": params, "id": identifier, "method": "ping"}).encode()

    assert json.loads(too_long(0, text[:cut]).reply_id) in (identifier, None)


@pytest.mark.parametrize(
    "text",
    [
        b'{"method":"ping","params":{"id":5}}',
        b'{"method":"ping","params":[{"id":5}',
        b'{"method":"\\"id\\":5,',
        b'{"method":"ping","text":"never closed, "id":5,',
        b'{"id":5,"result":{"action":"accept"}}',
        b'{"id":{"id":5},"method":"ping"}',
        b'{"id":[5],"method":"ping"}',
        b'{"id":12',
        b'{"method":"ping"}{"id":5}',
        b'[{"id":5,"method":"ping"}]',
        b'"id":5,',
        b"",
    ],
)
def test_no_other_id_is_taken_for_it(text: bytes) -> None:
    assert too_long(0, text).reply_id == b"null"


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (rb'"cut \ud83d"', "cut \ufffd"),
        (rb'"\uDE00 first"', "\ufffd first"),
        (rb'"\ud83d\ude00"', "\U0001f600"),
        (rb'"\ud83d\ud83d\ude00"', "\ufffd\U0001f600"),
        (rb'"\\ud83d"', r"\ud83d"),
        (b'"\xed\xa0\xbd"', "\ufffd"),
        (b'"\xed\x95\x9c"', "\ud55c"),
    ],
)
def test_a_lone_surrogate_is_read_as_the_replacement_character(sent: bytes, read: str) -> None:
    message = decode(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"text":%b}}' % sent)

    assert isinstance(message, Request)
    assert message.params == {"text": read}


def test_a_message_without_lone_surrogates_is_unchanged() -> None:
    for text in (b"{}", rb'{"a":"\ud83d\ude00"}', rb'{"a":"\\ud83d"}', b'{"a":"\xed\x95\x9c"}'):
        assert without_surrogates(text) is text


def test_an_id_with_a_lone_surrogate_is_refused() -> None:
    message = decode(rb'{"jsonrpc":"2.0","id":"\ud800","method":"ping"}')

    assert isinstance(message, MalformedMessage)
    assert (message.id, message.problem.code) == (b"null", -32600)


@pytest.mark.parametrize(
    "params",
    [b"[" * 100_000 + b"]" * 100_000, b"[" + b"9" * 4_301 + b"]", b"[1e999999]"],
    ids=["deep", "long", "large"],
)
def test_a_request_with_a_value_that_cannot_be_read_is_refused_by_its_id(params: bytes) -> None:
    message = decode(b'{"jsonrpc":"2.0","id":"a-7","method":"ping","params":%b}' % params)

    assert isinstance(message, MalformedMessage)
    assert (message.id, message.problem.code) == (b'"a-7"', -32700)


def test_an_id_that_is_too_long_is_refused_and_not_repeated() -> None:
    longest = b'"' + b"x" * (MAX_ID_BYTES - 2) + b'"'
    message = b'{"jsonrpc":"2.0","id":%b,"method":"ping"}'

    assert instance_of(Request, decode(message % longest)).id == longest
    for identifier in (b'"x' + longest[1:], b"1" * (MAX_ID_BYTES + 1)):
        refused = instance_of(MalformedMessage, decode(message % identifier))
        assert (refused.id, refused.problem.code) == (b"null", -32600)
        assert "longer than 8,192 bytes" in str(refused.problem.data)
