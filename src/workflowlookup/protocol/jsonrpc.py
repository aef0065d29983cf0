"""JSON-RPC 2.0 as values: a line becomes a `Request`, a `Notification`, a `Batch`, or the problem with it.

Ids come back as the bytes that were sent: 1, 1.0 and 1e0 differ. A message that is too long or nested too deeply is not
read, but its id is looked for in its first bytes, so that its sender does not wait for ever.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from workflowlookup.errors import InvalidRequest, ParseError, WorkflowLookupError
from workflowlookup.language.values import Json, nests_deeper

MAX_BATCH: Final = 100
MAX_NESTING: Final = 256
"""Of lists and objects in the parameters: what is stored of them must be readable wherever it is read later, and with
whatever is left of the stack there."""
MAX_ID_BYTES: Final = 8_192
"""Of the id of a request, as it is sent: ids are kept as long as a request can be resumed or cancelled."""
NULL_ID: Final = b"null"
SCANNED_BYTES: Final = 1 << 16
"""How much of a message that cannot be read is searched for its id: of its beginning, and of its end."""

_ABSENT: Final = msgspec.Raw(b"")
_encode: Final = msgspec.json.Encoder().encode


class _Line(msgspec.Struct):
    """The members of a message; what it does not have stays unset."""

    jsonrpc: Any = msgspec.UNSET
    id: msgspec.Raw = _ABSENT
    method: Any = msgspec.UNSET
    params: Any = None
    result: msgspec.Raw = _ABSENT
    error: msgspec.Raw = _ABSENT


class _Members(msgspec.Struct):
    """The same with no value read, so that a number out of range does not matter."""

    id: msgspec.Raw = _ABSENT
    method: msgspec.Raw = _ABSENT
    result: msgspec.Raw = _ABSENT
    error: msgspec.Raw = _ABSENT


_decode_line: Final = msgspec.json.Decoder(_Line).decode
_decode_members: Final = msgspec.json.Decoder(_Members).decode
_decode_raw: Final = msgspec.json.Decoder(msgspec.Raw).decode
_decode_list: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class Request(msgspec.Struct, frozen=True):
    """A call that wants an answer."""

    id: bytes
    method: str
    params: dict[str, Json] | list[Json] | None
    size: int
    """Of the message, in bytes."""
    report: str | WorkflowLookupError | None = None
    """The report that it asks for, or why there is none, where that is known before it is answered: see
    `Connection.prepare`.
    """


class Notification(msgspec.Struct, frozen=True):
    """A message that wants none."""

    method: str
    params: dict[str, Json] | list[Json] | None


class Response(msgspec.Struct, frozen=True):
    """An answer to something that we asked: a result or an error, as JSON."""

    id: bytes
    result: bytes
    error: bytes


class Batch(msgspec.Struct, frozen=True):
    """Several messages in one line."""

    messages: tuple["Message", ...]


class Malformed(msgspec.Struct, frozen=True):
    """A message that cannot be acted on, and the id to answer to as far as it can be told."""

    id: bytes
    problem: WorkflowLookupError
    is_response: bool = False
    """Whether it answers something that we asked: then it gets no reply, and its id is one of ours."""

    @property
    def reply_id(self) -> bytes:
        """The id of a reply, where the transport demands one."""
        return NULL_ID if self.is_response else self.id


Message: TypeAlias = Request | Notification | Response | Batch | Malformed


def decode(line: bytes) -> Message:
    """What a line means; never raises."""
    text = without_surrogates(line)
    try:
        if not text.isascii():
            text.decode()
        parsed = _decode_line(text)
    except msgspec.ValidationError:
        return _decode_other(text)
    except RecursionError as problem:
        return _unreadable(text, _parse_error(text, problem))
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        return Malformed(NULL_ID, _parse_error(text, problem))
    if nests_deeper(text, parsed.params, MAX_NESTING):
        return _unreadable(text, _parse_error(text, RecursionError()))
    if text is not line and bytes(parsed.id) not in line:
        return Malformed(NULL_ID, _invalid("id must be text in valid Unicode"))  # it could not come back as it was sent
    return _classify(parsed, len(line))


def _decode_other(line: bytes) -> Message:
    """JSON that is no object of the expected form: a number out of range, a batch, or nothing that we understand."""
    try:
        _decode_raw(line)
        if line.lstrip()[:1] == b"{":
            return _out_of_range(line)
        elements = _decode_list(line)
    except RecursionError as problem:
        return _unreadable(line, _parse_error(line, problem))
    except msgspec.ValidationError:
        return Malformed(NULL_ID, _invalid("a message is a JSON object"))
    except msgspec.DecodeError as problem:
        return Malformed(NULL_ID, _parse_error(line, problem))
    if not 0 < len(elements) <= MAX_BATCH:
        return Malformed(NULL_ID, _invalid(f"a batch has 1 to {MAX_BATCH} messages; found {len(elements)}"))
    return Batch(tuple(_element(bytes(element)) for element in elements))


def _out_of_range(line: bytes) -> Malformed:
    """A message with a number that cannot be read, such as 1e400 or one of thousands of digits."""
    members = _decode_members(line)
    details = "a number is out of range: send numbers that fit a double, and long ones as text"
    is_response = _is_response(members)
    return Malformed(
        bytes(members.id) if _is_id(bytes(members.id)) else NULL_ID,
        ParseError(details, details=details, position=0),
        is_response,
    )


def _is_response(message: "_Line | _Members") -> bool:
    return message.method in (msgspec.UNSET, _ABSENT) and bool(message.result or message.error)


def _element(line: bytes) -> Message:
    message = decode(line)
    return Malformed(NULL_ID, _invalid("a batch holds no batches")) if isinstance(message, Batch) else message


def _classify(parsed: _Line, size: int) -> Message:
    raw_id, method, params = bytes(parsed.id), parsed.method, parsed.params
    has_id = _is_id(raw_id)
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
    return Malformed(raw_id if has_id else NULL_ID, _invalid(problem), _is_response(parsed))


def _is_id(raw: bytes) -> bool:
    """A number or a string that is well-formed and not too long; true, null, lists and objects are no ids."""
    if len(raw) > MAX_ID_BYTES:
        return False
    if raw[:1] not in (b'"', b"-") and not raw[:1].isdigit():
        return False
    try:
        _decode_raw(raw)
    except msgspec.DecodeError:
        return False
    return True


def _is_readable(raw: bytes) -> bool:
    """Whether an id is a value: most numbers are."""
    try:
        msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return False
    return True


def same_id(one: Json, other: Json) -> bool:
    """Whether two ids, as values, are the same; 1, true and 1.0 are not."""
    return type(one) is type(other) and bool(one == other)


def _invalid(details: str) -> InvalidRequest:
    return InvalidRequest(details, details=details)


def _parse_error(line: bytes, problem: Exception) -> ParseError:
    if isinstance(problem, UnicodeDecodeError):
        details, position = "the message is not UTF-8", problem.start
    elif isinstance(problem, RecursionError):
        details, position = "the message is nested too deeply", 0
    else:
        reason, _, place = str(problem).partition(" (byte ")
        position = int(place.rstrip(")")) if place else len(line.rstrip())
        details = reason if place else f"{reason}: unexpected end of JSON"
    return ParseError(f"{details} (byte {position})", details=f"{details} (byte {position})", position=position)


def too_long(limit: int, beginning: bytes) -> Malformed:
    """What a message over the size limit means, of which the beginning is known."""
    details = f"the message is longer than {limit:,} bytes"
    found = _scan(beginning[:SCANNED_BYTES])
    return Malformed(found.id, ParseError(details, details=details, position=limit), found.is_response)


# ── messages that cannot be read as they are ────────────────────────────────────────────────────────────────────────

_PART: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[{}\[\],:]|[^\s"{}\[\],:]++|"', re.DOTALL)
"""A text, a mark, anything else (such as a number), or a quote that is never closed."""
_MEMBER: Final = re.compile(rb'(?<!\\)"(?:id|method|result|error)"\s*:')
"""Where a member of interest may begin. In JSON a quote inside of a text has a backslash before it."""


class _Scanned(msgspec.Struct):
    """What was found in a part of a message."""

    id: bytes = NULL_ID
    has_answer: bool = False
    has_method: bool = False

    @property
    def is_response(self) -> bool:
        return self.has_answer and not self.has_method


def _unreadable(message: bytes, problem: ParseError) -> Malformed:
    """A whole message that is nested too deeply to be read. Its id is at its beginning, or at its end."""
    found = _scan(message[:SCANNED_BYTES])
    end = message[-SCANNED_BYTES:]
    member = _MEMBER.search(end) if len(message) > SCANNED_BYTES else None
    if member is not None:
        end = end[member.start() :]
        marks = [part[0] for part in _PART.finditer(end)]
        depth = sum(mark in (b"}", b"]") for mark in marks) - sum(mark in (b"{", b"[") for mark in marks)
        last = _scan(end, depth)
        found.id = last.id if last.id != NULL_ID else found.id
        found.has_answer, found.has_method = found.has_answer or last.has_answer, found.has_method or last.has_method
    return Malformed(found.id, problem, found.is_response)


def _scan(text: bytes, depth: int = 0) -> _Scanned:
    """What a part of a message says of its id, whatever its parameters contain: only outermost members count.

    `depth`: how many brackets are open before it.
    """
    found, name, value = _Scanned(), b"", b""
    for part in _PART.finditer(text):
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
            found.has_answer = found.has_answer or name in (b'"result"', b'"error"')
            found.has_method = found.has_method or name == b'"method"'
        elif depth <= 1 and token in (b",", b"}"):  # only now is the value known to be whole
            if name == b'"id"' and _is_id(value):
                found.id = value
            name = value = b""
        elif depth == 1:
            value = token
        if depth <= 0:
            break
    return found


_LONE: Final = (
    rb"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"  # a pair is no lone surrogate
    rb"|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\xed[\xa0-\xbf][\x80-\xbf]|(\\.)"
)


def without_surrogates(text: bytes) -> bytes:
    """The message with U+FFFD for each half of a character that stands alone; the same object when there is none.

    JavaScript sends them, escaped, when it cuts a text in the middle of an emoji. UTF-8 has no way to write them.
    """
    if b"\xed" not in text and (b"\\" not in text or (b"\\ud" not in text and b"\\uD" not in text)):
        return text  # a single byte is found ten times as fast as two
    replaced = re.sub(_LONE, lambda found: found[1] or found[2] or b"\\ufffd", text, flags=re.DOTALL)
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
