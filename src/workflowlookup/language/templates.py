"""Templates: `{{name}}` and `{{a.b}}` are replaced from the context, and `{{{{` is a literal `{{`.

The template of a variable that is not set stays as it is, and the caller learns its name.
"""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from workflowlookup.language.values import Context, Json, as_text, is_set, lookup

MAX_TEMPLATE_TEXT: Final = 1 << 20
_TEMPLATE: Final = re.compile(r"\{\{\{\{|\{\{\s*(?P<name>(?:[^\W\d]|\$)[\w$.-]*)\s*\}\}")

Fill = Callable[[str], str]
ValueOf = Callable[[Context, str], Json]
"""The value that replaces a variable in a template; None if it is not set."""


def filler(context: Context, unset: dict[str, None], value_of: ValueOf = lookup) -> Fill:
    """A function that fills templates from the context and adds the variables that are not set to `unset`.

    It inserts at most `MAX_TEMPLATE_TEXT` characters in all; further templates stay as they are.
    """
    room = MAX_TEMPLATE_TEXT

    def replace(template: re.Match[str]) -> str:
        nonlocal room
        name = template["name"]
        if name is None:
            return "{{"
        value = value_of(context, name)
        if value is None:
            unset[name] = None
            return template[0]
        words = as_words(value)
        room -= len(words)
        return words if room >= 0 else template[0]

    def fill(text: str) -> str:
        return _TEMPLATE.sub(replace, text) if "{{" in text else text

    return fill


def has_template(text: str) -> bool:
    """Whether the text contains a template."""
    return "{{" in text and _TEMPLATE.search(text) is not None


def literal(text: str, variables: Collection[str] = ()) -> str:
    """The text so that filling it gives the text back: its templates are escaped, except those of these variables."""

    def escape(found: re.Match[str]) -> str:
        if found["name"] is None:
            return found[0] * 2
        return found[0] if found["name"] in variables else "{{" + found[0]

    return _TEMPLATE.sub(escape, text)


_SYNTAX: Final = re.compile(r"[\\^$.*+?()\[\]{}|/-]")


def escape_pattern(value: Json) -> str | None:
    """The value as text for a pattern, with all regex syntax escaped."""
    return None if value is None else _SYNTAX.sub(r"\\\g<0>", as_words(value))


def fill_values(value: Json, context: Context, fill: Fill) -> Json:
    """A JSON value with its texts filled. A text that is only one template becomes the value of its variable."""
    if isinstance(value, str):
        template = _TEMPLATE.fullmatch(value.strip()) if "{{" in value else None
        if template is None or template["name"] is None:
            return fill(value)
        variable = lookup(context, template["name"])
        if variable is None and is_set(context, template["name"]):
            return None
        return value if fill(value) == value else variable  # unchanged: the variable is not set, or too long
    if isinstance(value, Mapping):
        return {name: fill_values(part, context, fill) for name, part in value.items()}
    if isinstance(value, list):
        return [fill_values(part, context, fill) for part in value]
    return value


def as_words(value: Json) -> str:
    text = as_text(value)
    if text is not None:
        return text
    try:
        return msgspec.json.encode(value).decode()
    except (msgspec.MsgspecError, OverflowError, ValueError):
        return "…"
