"""The result of a run or of one of its calls: whole, in parts, or as a reference if it is too long for a variable.

An answer to a client has room for `MAX_INLINE` characters; the journal stores up to `MAX_STORED_RESULT`.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import msgspec

from workflowlookup.language.model import PromptStep
from workflowlookup.language.navigation import find_step
from workflowlookup.language.values import Json
from workflowlookup.runs.run import Run

MAX_STORED_RESULT: Final = 32 << 20
"""Limit on the stored characters of the result of a call. A longer result is cut, with its length."""
MAX_INLINE: Final = 25_000
"""Limit on a result inside an answer, which has at most 30,000 characters."""
PART_LENGTH: Final = 20_000
"""The characters of a longer result that an answer has."""
MAX_PART: Final = 1 << 20
"""Limit on the characters that one read of a resource returns."""
_BEGINNING: Final = 500


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A result as text."""

    text: str
    is_json: bool
    characters: int
    """Its length; more than `text` has if it was cut."""

    @property
    def is_short(self) -> bool:
        return self.characters <= MAX_INLINE

    @property
    def value(self) -> Json:
        value: Json = msgspec.json.decode(self.text) if self.is_json else self.text
        return value


def result_of(run: Run, step_id: str = "") -> Result | None:
    """The result of a step, by default the last completed one: the value of its call, or its output."""
    step_id = step_id or next(reversed(run.results), "")
    output = run.results.get(step_id)
    if output is None:
        return None
    large = run.large_results.get(step_id)
    if large is not None and large.is_reference:
        text = large.value or output
        return Result(text=text, is_json=large.is_json, characters=max(large.characters, len(text)))
    step = find_step(run.workflow, step_id)
    save_as = step.call.save_as if isinstance(step, PromptStep) and step.call is not None else ""
    if save_as not in run.context:
        return Result(text=output, is_json=False, characters=(large and large.characters) or len(output))
    value = run.context[save_as]
    if isinstance(value, Mapping) and value.get("resource") == result_uri(
        run.id, step_id
    ):  # a person accepted it anyway
        return Result(text=output, is_json=False, characters=len(output))
    if isinstance(value, str):
        return Result(text=value, is_json=False, characters=len(value))
    text = msgspec.json.encode(value).decode()
    return Result(text=text, is_json=True, characters=len(text))


def result_uri(run_id: str, step_id: str = "") -> str:
    """The URI of the resource with a result."""
    return f"run://{run_id}/result{f'?step={quote(step_id)}' if step_id else ''}"


def reference_to(run_id: str, step_id: str, text: str) -> Mapping[str, Json]:
    """The value of a variable whose real value is too long for the context."""
    return {"resource": result_uri(run_id, step_id), "characters": len(text), "beginning": text[:_BEGINNING]}


def part_of(result: Result, start: int = 0, length: int = PART_LENGTH) -> dict[str, Json]:
    """A part of a result, and its position."""
    end = min(start + length, len(result.text))
    part: dict[str, Json] = {
        "text": result.text[start:end],
        "from": start,
        "to": end,
        "characters": result.characters,
        "isJson": result.is_json,
    }
    if result.characters > len(result.text):
        part["kept"] = len(result.text)
    return part
