"""JSON-RPC 2.0 as values: a line becomes a `Request`, `Notification`, `Response`, `Batch` or `MalformedMessage`.

Replies repeat the id as the bytes that were sent: 1, 1.0 and 1e0 differ. A message that is too long or nested too
deeply is not decoded, but its id is searched for in its first bytes, so that its sender gets an error reply.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from workflowlookup.errors import InvalidRequest, ParseError, WorkflowLookupError
from workflowlookup.language.values import Json, nests_deeper

MAX_BATCH: Final = 100
MAX_NESTING: Final = 256
"""Of lists and objects in the parameters. Parts of them are stored, and must be readable later with less stack left."""
MAX_ID_BYTES: Final = 8_192
"""Of the id of a request: ids stay in memory as long as the request can be resumed or cancelled."""
NULL_ID: Final = b"null"
_ID_STARTS: Final = frozenset(b"%c" % character for character in b'"-0123456789')
"""How the JSON of a string or a number begins."""
SCANNED_BYTES: Final = 1 << 16
"""How much of the beginning, and of the end, of a message that cannot be decoded is searched for its id."""

_ABSENT: Final = msgspec.Raw(b"")
_encode: Final = msgspec.json.Encoder().encode


class _MessageMembers(msgspec.Struct):
    """The members of a message; missing ones stay unset."""

    jsonrpc: Any = msgspec.UNSET
    id: msgspec.Raw = _ABSENT
    method: Any = msgspec.UNSET
    params: Any = None
    result: msgspec.Raw = _ABSENT
    error: msgspec.Raw = _ABSENT


class _RawMembers(msgspec.Struct):
    """The same without decoding any value, so that a number out of range does not matter."""

    id: msgspec.Raw = _ABSENT
    method: msgspec.Raw = _ABSENT
    result: msgspec.Raw = _ABSENT
    error: msgspec.Raw = _ABSENT


_decode_message: Final = msgspec.json.Decoder(_MessageMembers).decode
_decode_members: Final = msgspec.json.Decoder(_RawMembers).decode
_decode_raw: Final = msgspec.json.Decoder(msgspec.Raw).decode
_decode_list: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Request(msgspec.Struct, frozen=True):
    """A message that wants a reply."""

    id: bytes
    method: str
    params: dict[str, Json] | list[Json] | None
    size: int
    """Of the message, in bytes."""
    report: str | WorkflowLookupError | None = None
    """The report that it asks for, or the error, if `Connection.prepare` has made it in advance."""


class Notification(msgspec.Struct, frozen=True):
    """A message that wants no reply."""

    method: str
    params: dict[str, Json] | list[Json] | None


class Response(msgspec.Struct, frozen=True):
    """The reply to a request of the server: a result or an error, as JSON."""

    id: bytes
    result: bytes
    error: bytes


class Batch(msgspec.Struct, frozen=True):
    """Several messages in one line."""

    messages: tuple["Message", ...]


class MalformedMessage(msgspec.Struct, frozen=True):
    """An invalid message, and its id if it could be found."""

    id: bytes
    problem: WorkflowLookupError
    is_response: bool = False
    """Whether it is a response to a request of the server: then it gets no reply, and its id is one of ours."""

    @property
    def reply_id(self) -> bytes:
        """The id for an error reply, if the transport must send one."""
        return NULL_ID if self.is_response else self.id


Message: TypeAlias = Request | Notification | Response | Batch | MalformedMessage


def decode(line: bytes) -> Message:
    """Decode a line; never raises."""
    text = without_surrogates(line)
    try:
        if not text.isascii():
            text.decode()
        parsed = _decode_message(text)
    except msgspec.ValidationError:
        return _decode_other(text)
    except RecursionError as problem:
        return _too_deep(text, _parse_error(text, problem))
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        return MalformedMessage(NULL_ID, _parse_error(text, problem))
    if nests_deeper(text, parsed.params, MAX_NESTING):
        return _too_deep(text, _parse_error(text, RecursionError()))
    if text is not line and bytes(parsed.id) not in line:
        return MalformedMessage(
            NULL_ID, _invalid("id must be text in valid Unicode")
        )  # the reply could not repeat it as it was sent
    return _classify(parsed, len(line))


def _decode_other(line: bytes) -> Message:
    """Decode JSON that is not an object of the expected form: a batch, a number out of range, or an invalid message."""
    try:
        _decode_raw(line)
        if line.lstrip()[:1] == b"{":
            return _out_of_range(line)
        elements = _decode_list(line)
    except RecursionError as problem:
        return _too_deep(line, _parse_error(line, problem))
    except msgspec.ValidationError:
        return MalformedMessage(NULL_ID, _invalid("a message is a JSON object"))
    except msgspec.DecodeError as problem:
        return MalformedMessage(NULL_ID, _parse_error(line, problem))
    if not 0 < len(elements) <= MAX_BATCH:
        return MalformedMessage(NULL_ID, _invalid(f"a batch has 1 to {MAX_BATCH} messages; found {len(elements)}"))
    return Batch(tuple(_element(bytes(element)) for element in elements))


def _out_of_range(line: bytes) -> MalformedMessage:
    """A message with a number that cannot be decoded, such as 1e400 or one with thousands of digits."""
    members = _decode_members(line)
    details = "a number is out of range: send numbers that fit a double, and long ones as text"
    is_response = _is_response(members)
    return MalformedMessage(
        bytes(members.id) if _is_id(bytes(members.id)) else NULL_ID,
        ParseError(details, details=details, position=0),
        is_response,
    )


def _is_response(message: "_MessageMembers | _RawMembers") -> bool:
    return message.method in (msgspec.UNSET, _ABSENT) and bool(message.result or message.error)


def _element(line: bytes) -> Message:
    message = decode(line)
    return MalformedMessage(NULL_ID, _invalid("a batch holds no batches")) if isinstance(message, Batch) else message


def _classify(parsed: _MessageMembers, size: int) -> Message:
    raw_id, method, params = bytes(parsed.id), parsed.method, parsed.params
    has_id = raw_id[:1] in _ID_STARTS and len(raw_id) <= MAX_ID_BYTES
    if parsed.jsonrpc != "2.0":
        problem = 'jsonrpc must be "2.0"'
    elif len(raw_id) > MAX_ID_BYTES:
        problem = f"id is longer than {MAX_ID_BYTES:,} bytes"
    elif raw_id and not has_id:
        problem = "id must be a number or a string"
    elif has_id and not _is_readable(raw_id):
        problem = "id is a number out of range: use a shorter one, or a string"
    elif method is msgspec.UNSET:
        if raw_id and (parsed.result or parsed.error):
            return Response(raw_id, bytes(parsed.result), bytes(parsed.error))
        problem = "method is required"
    elif not isinstance(method, str):
        problem = "method must be a string"
    elif not isinstance(params, (dict, list, type(None))):
        problem = "params must be an object, an array or null"
    else:
        return Request(raw_id, method, params, size) if raw_id else Notification(method, params)
    return MalformedMessage(raw_id if has_id else NULL_ID, _invalid(problem), _is_response(parsed))


def _is_id(raw: bytes) -> bool:
    """Whether this is a well-formed number or string that is not too long."""
    if len(raw) > MAX_ID_BYTES or raw[:1] not in _ID_STARTS:
        return False
    try:
        _decode_raw(raw)
    except msgspec.DecodeError:
        return False
    return True


def _is_readable(raw: bytes) -> bool:
    """Whether an id can be decoded; a number may be out of range."""
    try:
        msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return False
    return True


def same_id(one: Json, other: Json) -> bool:
    """Whether two decoded ids are the same; 1, true and 1.0 are not."""
    return type(one) is type(other) and bool(one == other)


def _invalid(details: str) -> InvalidRequest:
    return InvalidRequest(details, details=details)


def _parse_error(line: bytes, problem: Exception) -> ParseError:
    if isinstance(problem, UnicodeDecodeError):
        details, position = "the message is not UTF-8", problem.start
    elif isinstance(problem, RecursionError):
        details, position = "the message is nested too deeply", 0
    else:
        reason, _, position_text = str(problem).partition(" (byte ")
        position = int(position_text.rstrip(")")) if position_text else len(line.rstrip())
        details = reason if position_text else f"{reason}: unexpected end of JSON"
    return ParseError(f"{details} (byte {position})", details=f"{details} (byte {position})", position=position)


def too_long(limit: int, beginning: bytes) -> MalformedMessage:
    """A message over the size limit, of which only the beginning is known."""
    details = f"the message is longer than {limit:,} bytes"
    scanned = _scan(beginning[:SCANNED_BYTES])
    return MalformedMessage(scanned.id, ParseError(details, details=details, position=limit), scanned.is_response)


# ── messages that cannot be decoded ─────────────────────────────────────────────────────────────────────────────────

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[{}\[\],:]|[^\s"{}\[\],:]++|"', re.DOTALL)
"""A token: a string, a punctuation mark, anything else (such as a number), or a quote that is never closed."""
_MEMBER: Final = re.compile(rb'(?<!\\)"(?:id|method|result|error)"\s*:')
"""Where such a member may begin. In JSON, a quote inside a string has a backslash before it."""


class _Scanned(msgspec.Struct):
    """The outermost members found in a part of a message."""

    id: bytes = NULL_ID
    has_answer: bool = False
    has_method: bool = False

    @property
    def is_response(self) -> bool:
        return self.has_answer and not self.has_method


def _too_deep(message: bytes, problem: ParseError) -> MalformedMessage:
    """A complete message that is nested too deeply to be decoded. Its id is at its beginning, or at its end."""
    scanned = _scan(message[:SCANNED_BYTES])
    end = message[-SCANNED_BYTES:]
    member = _MEMBER.search(end) if len(message) > SCANNED_BYTES else None
    if member is not None:
        end = end[member.start() :]
        tokens = [part[0] for part in _TOKEN.finditer(end)]
        depth = sum(token in (b"}", b"]") for token in tokens) - sum(token in (b"{", b"[") for token in tokens)
        last = _scan(end, depth)
        scanned.id = last.id if last.id != NULL_ID else scanned.id
        scanned.has_answer |= last.has_answer
        scanned.has_method |= last.has_method
    return MalformedMessage(scanned.id, problem, scanned.is_response)


def _scan(text: bytes, depth: int = 0) -> _Scanned:
    """The outermost members in a part of a message; those inside its parameters do not count.

    `depth`: how many brackets are open before this part.
    """
    scanned, name, value = _Scanned(), b"", b""
    for part in _TOKEN.finditer(text):
        token = part[0]
        if token == b'"' or (depth == 0 and token != b"{"):
            break
        if token in (b"{", b"["):
            depth += 1
            continue
        if token in (b"}", b"]"):
            depth -= 1
        if depth == 1 and token == b":":
            name, value = value, b""
            scanned.has_answer = scanned.has_answer or name in (b'"result"', b'"error"')
            scanned.has_method = scanned.has_method or name == b'"method"'
        elif depth <= 1 and token in (b",", b"}"):  # only now the value is complete
            if name == b'"id"' and _is_id(value):
                scanned.id = value
            name = value = b""
        elif depth == 1:
            value = token
        if depth <= 0:
            break
    return scanned


_LONE_SURROGATE: Final = (
    rb"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"  # a pair
    rb"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\xed[\xa0-\xbf][\x80-\xbf]|(\\.)"
)


def without_surrogates(text: bytes) -> bytes:
    """The message with U+FFFD in place of each lone surrogate; the same object if there is none.

    JavaScript sends them, escaped, when it cuts a string in the middle of an emoji. UTF-8 cannot encode them.
    """
    if b"\xed" not in text and (b"\\" not in text or (b"\\ud" not in text and b"\\uD" not in text)):
        return text  # searching for one byte is ten times as fast as for two
    replaced = re.sub(_LONE_SURROGATE, lambda match: match[1] or match[2] or b"\\ufffd", text, flags=re.DOTALL)
    return text if replaced == text else replaced


def success(request_id: bytes, result: Json) -> bytes:
    encoded = result if type(result) is msgspec.Raw else _encode(result)
    return b"".join((b'{"jsonrpc":"2.0","id":', request_id, b',"result":', encoded, b"}"))


def failure(request_id: bytes, error: WorkflowLookupError, *, code: int | None = None, data: Json = None) -> bytes:
    body: dict[str, Json] = {"code": code or error.code, "message": error.message}
    if data or error.data:
        body["data"] = data or error.data
    return b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (request_id, _encode(body))


def request(request_id: str, method: str, params: Mapping[str, Json]) -> bytes:
    return _encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def notification(method: str, params: Mapping[str, Json]) -> bytes:
    return _encode({"jsonrpc": "2.0", "method": method, "params": params})
