"""What the official conformance suite wants to find on a server: tools, resources and prompts, for tests only."""

import base64
import json
import struct
import zlib
from typing import Any

from support.json_values import Json, JsonObject


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png() -> str:
    """One red pixel."""
    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(b"\0\xff\0\0")
    return encoded(b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", pixel) + _chunk(b"IEND", b""))


def _wav() -> str:
    """Silence, very short."""
    samples = b"\x80" * 8
    form = struct.pack("<HHIIHH", 1, 1, 8000, 8000, 1, 8)
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(samples)) + samples
    return encoded(b"RIFF" + struct.pack("<I", len(body)) + body)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def text(words: str) -> JsonObject:
    return {"type": "text", "text": words}


def resource(uri: str, kind: str, words: str) -> JsonObject:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": words}}


IMAGE = {"type": "image", "data": _png(), "mimeType": "image/png"}
AUDIO = {"type": "audio", "data": _wav(), "mimeType": "audio/wav"}

ANSWERS: dict[str, JsonObject] = {
    "test_simple_text": {"content": [text("This is a simple text response for testing.")]},
    "test_image_content": {"content": [IMAGE]},
    "test_audio_content": {"content": [AUDIO]},
    "test_embedded_resource": {
        "content": [resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")]
    },
    "test_multiple_content_types": {
        "content": [
            text("Multiple content types test:"),
            IMAGE,
            resource("test://mixed-content-resource", "application/json", json.dumps({"test": "data", "value": 123})),
        ]
    },
    "test_error_handling": {
        "isError": True,
        "content": [text("This tool intentionally returns an error for testing")],
    },
    "json_schema_2020_12_tool": {"content": [text("It fits.")]},
    "test_headers": {"content": [text("The headers fit.")]},
    "test_reconnection": {"content": [text("Here again.")]},
}
"""Tools that always give the same."""


def form(**properties: Any) -> JsonObject:
    return {"type": "object", "properties": properties, "required": list(properties)}


def ask(message: str, schema: JsonObject) -> JsonObject:
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sample(words: str, most: int = 100) -> JsonObject:
    messages = [{"role": "user", "content": text(words)}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": most}}


ROOTS = {"method": "roots/list", "params": {}}
WORD = {"type": "string"}
NAME = ask("What is your name?", form(name=WORD))
OPTIONS = ["option1", "option2", "option3"]


def titled(*titles: str) -> list[dict[str, str]]:
    return [{"const": f"value{number}", "title": title} for number, title in enumerate(titles, 1)]


ENUMS = {
    "untitledSingle": {"type": "string", "enum": OPTIONS},
    "titledSingle": {"type": "string", "oneOf": titled("First Option", "Second Option", "Third Option")},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
    "titledMulti": {"type": "array", "items": {"anyOf": titled("First Choice", "Second Choice", "Third Choice")}},
}
DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
OPEN_FORM = {"type": "object", "properties": DEFAULTS, "required": []}

QUESTIONS: dict[str, tuple[str, Json]] = {
    "test_elicitation": (
        "User response: {}",
        lambda given: ask(given["message"], form(username=WORD, email=WORD)),
    ),
    "test_sampling": ("LLM response: {}", lambda given: sample(given["prompt"])),
    "test_elicitation_sep1034_defaults": (
        "Elicitation completed: {}",
        lambda _: ask("Please look at the defaults.", OPEN_FORM),
    ),
    "test_elicitation_sep1330_enums": (
        "Elicitation completed: {}",
        lambda _: ask("Please choose.", {"type": "object", "properties": ENUMS, "required": []}),
    ),
}
"""Tools of the handshake era that ask the client something: how the answer is told, and the question."""

ROUNDS: dict[str, tuple[bool, list[dict[str, JsonObject]]]] = {
    "test_input_required_result_elicitation": (False, [{"user_name": NAME}]),
    "test_input_required_result_sampling": (False, [{"capital_question": sample("What is the capital of France?")}]),
    "test_input_required_result_list_roots": (False, [{"client_roots": ROOTS}]),
    "test_input_required_result_request_state": (
        True,
        [{"confirm": ask("Please confirm", form(ok={"type": "boolean"}))}],
    ),
    "test_input_required_result_multiple_inputs": (
        True,
        [{"user_name": NAME, "greeting": sample("Generate a greeting", 50), "client_roots": ROOTS}],
    ),
    "test_input_required_result_multi_round": (
        True,
        [
            {"step1": ask("Step 1: What is your name?", form(name=WORD))},
            {"step2": ask("Step 2: What is your favorite color?", form(color=WORD))},
        ],
    ),
    "test_input_required_result_tampered_state": (
        True,
        [{"confirm": ask("Please confirm", form(ok={"type": "boolean"}))}],
    ),
    "test_input_required_result_capabilities": (
        False,
        [{"word": sample("Say a word."), "user_name": NAME}],
    ),
    "test_streaming_elicitation": (False, [{"user_name": NAME}]),
    "test_tool_with_task": (False, [{"user_name": NAME}]),
    "test_input_required_result_prompt": (
        False,
        [{"user_context": ask("What context should the prompt use?", form(context=WORD))}],
    ),
}
"""What is asked in the envelope era, round by round, and whether state travels with it; the last is a prompt."""

NEEDS = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
"""What a client must be able to do to be asked."""

SCHEMAS: dict[str, JsonObject] = {
    "test_elicitation": form(message=WORD),
    "test_sampling": form(prompt=WORD),
    "test_headers": {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {"$anchor": "addressDef", "type": "object", "properties": {"street": WORD, "city": WORD}}},
        "properties": {
            "name": WORD,
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": WORD,
            "email": WORD,
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
}
OTHERS = (
    "test_tool_with_logging",
    "test_logging_tool",
    "test_tool_with_progress",
    "test_missing_capability",
    "test_trigger_tool_change",
)
TOOLS = (*ANSWERS, *QUESTIONS, *(name for name in ROUNDS if not name.endswith(("prompt", "_with_task"))), *OTHERS)

RESOURCES: dict[str, JsonObject] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": IMAGE["data"]},
    "test://watched-resource": {"mimeType": "text/plain", "text": "Watched."},
}
TEMPLATE = "test://template/{id}/data"

PROMPTS: dict[str, tuple[list[str], Any]] = {
    "test_simple_prompt": ([], lambda _: [text("This is a simple prompt for testing.")]),
    "test_prompt_with_arguments": (
        ["arg1", "arg2"],
        lambda given: [text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")],
    ),
    "test_prompt_with_embedded_resource": (
        ["resourceUri"],
        lambda given: [
            resource(given["resourceUri"], "text/plain", "Embedded resource content for testing."),
            text("Please process the embedded resource above."),
        ],
    ),
    "test_prompt_with_image": ([], lambda _: [IMAGE, text("Please analyze the image above.")]),
    "test_input_required_result_prompt": ([], lambda given: [text(f"With this context: {given}")]),
}
