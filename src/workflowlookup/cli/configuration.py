"""Reads and edits the configuration files of MCP clients.

The files belong to other programs and to people. So an edit changes the text and leaves the rest of the file as it is,
the result is parsed to check it, and a file that cannot be edited safely is not changed.
"""

import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from workflowlookup.atomic import replace_file
from workflowlookup.errors import StorageError
from workflowlookup.language.formats.positions import JsonNode, scan
from workflowlookup.language.values import Json

ServerEntry = Mapping[str, Json]
"""The entry of a server in a client's file."""


class NotReadable(ValueError):
    """The content of the file is not what its client expects; the message says why."""


class NotEditable(ValueError):
    """The file is valid, but cannot be edited safely; the message says why."""


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """How to read and edit a file format."""

    parse: Callable[[str], Json]
    """Parse the content. Raises `NotReadable`."""
    insert: Callable[[str, str, str, ServerEntry], str]
    """The text with an entry added or replaced (text, section, name, entry). May raise `NotEditable`."""
    remove: Callable[[str, str, str], str]
    """The text without an existing entry (text, section, name). May raise `NotEditable`."""
    snippet: Callable[[str, str, ServerEntry], str]
    """The text for a person to paste."""


def format_of(path: str) -> Format:
    return FORMATS[os.path.splitext(path)[1]]


def servers(text: str, path: str, section: str) -> dict[str, Any]:
    """The servers in a file. Raises `NotReadable`."""
    content = format_of(path).parse(text) if text.strip() else None
    entries = (content.get(section) or {}) if isinstance(content, dict) else {} if content is None else None
    if not isinstance(entries, dict):
        raise NotReadable(f"it has no object '{section}'")
    return entries


def with_server(text: str, path: str, section: str, name: str, entry: ServerEntry) -> str:
    """The text with this entry; unchanged if it is there already. Raises `NotReadable` and `NotEditable`.

    Other fields of an existing entry with this name, such as its environment, are kept.
    """
    before = servers(text, path, section)
    existing = before.get(name)
    merged = {**existing, **entry} if isinstance(existing, dict) else dict(entry)
    if existing == merged:
        return text
    form = format_of(path)
    try:
        changed = form.insert(text, section, name, merged)
    except RecursionError:
        raise NotEditable("it nests too deep") from None
    content = form.parse(text) if text.strip() else {}
    if _parsed_or_none(form, changed) != {**(content or {}), section: {**before, name: merged}}:
        raise NotEditable("the change would touch more than the entry")
    return changed


def without_server(text: str, path: str, section: str, name: str) -> str:
    """The text without this entry; unchanged if there is none. Raises `NotReadable` and `NotEditable`."""
    before = servers(text, path, section)
    if name not in before:
        return text
    form = format_of(path)
    try:
        changed = form.remove(text, section, name)
    except RecursionError:
        raise NotEditable("it nests too deep") from None
    others = {other: entry for other, entry in before.items() if other != name}
    content, after = form.parse(text), _parsed_or_none(form, changed) if changed.strip() else {}
    if not isinstance(after, dict) or {**after, section: after.get(section) or {}} != {**content, section: others}:
        raise NotEditable("the change would touch more than the entry")
    return changed


def json_section(text: str, section: str) -> Json:
    """The value of a section of JSON text; None when it is missing. Raises `NotReadable`."""
    content = _parse_json(text) if text.strip() else {}
    if not isinstance(content, dict):
        raise NotReadable("it is not a JSON object")
    return content.get(section)


def with_added(text: str, section: str, name: str | None, value: Json) -> str:
    """JSON text with a member added to an object, or an item to a list; the section is added if needed.

    Raises `NotReadable` and `NotEditable`.
    """
    content = _parse_json(text) if text.strip() else {}
    empty: Json = [] if name is None else {}
    existing = json_section(text, section)
    before = empty if existing is None else existing
    if type(before) is not type(empty):
        raise NotReadable(f"'{section}' should be {'a list' if name is None else 'an object'}")
    after = [*before, value] if name is None else {**before, name: value}
    changed = _insert_json(text, section, name, value)
    if _parsed_or_none(FORMATS[".json"], changed) != {**content, section: after}:
        raise NotEditable("the change would touch more than the entry")
    return changed


def with_member(text: str, section: str, name: str, value: Json) -> str:
    """JSON text with a member of an object added or replaced; the section is added if needed.

    Raises `NotReadable` and `NotEditable`.
    """
    content = _parse_json(text) if text.strip() else {}
    before = json_section(text, section) or {}
    changed = _insert_json(text, section, name, value)
    if _parsed_or_none(FORMATS[".json"], changed) != {**content, section: {**before, name: value}}:
        raise NotEditable("the change would touch more than the entry")
    return changed


def _parsed_or_none(form: Format, text: str) -> Json:
    try:
        return form.parse(text)
    except NotReadable:
        return None


# ── JSON ────────────────────────────────────────────────────────────────────────────────────────────────────────

_STRING: Final = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_COMMENT: Final = re.compile(rf"({_STRING})|//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAST_COMMA: Final = re.compile(rf"({_STRING})|,(?=\s*[\]}}])")


def _parse_json(text: str) -> Json:
    """Parse JSON, also with comments and trailing commas, which VS Code and others allow."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        try:
            return json.loads(_without_comments(text))
        except (ValueError, RecursionError):
            raise NotReadable(f"it is not valid JSON: {problem}") from None


def _without_comments(text: str) -> str:
    """The text with spaces in place of comments and trailing commas, so that offsets do not change."""

    def blank(match: re.Match[str]) -> str:
        return match[1] or " " * len(match[0])

    return _LAST_COMMA.sub(blank, _COMMENT.sub(blank, text))


def _insert_json(text: str, section: str, name: str | None, entry: Json) -> str:
    """The text with a member in the section, or with an item if `name` is None."""
    if not text.strip():
        return _json_snippet(section, name, entry)
    bare = _without_comments(text)
    root = scan(bare)
    if section not in root.members:
        return _with_member(text, root, section, [entry] if name is None else {name: entry}, depth=1)
    parent = root.members[section]
    if name is None or name not in parent.members:
        return _with_member(text, parent, name, entry, depth=2)
    existing = parent.members[name]
    if bare[existing.start : existing.end] != text[existing.start : existing.end]:
        raise NotEditable("its older entry has comments, which would be lost")
    return text[: existing.start] + _dumped(text, entry, depth=2) + text[existing.end :]


def _remove_json(text: str, section: str, name: str) -> str:
    bare = _without_comments(text)
    parent = scan(bare).members[section]
    entry = parent.members[name]
    start, end = entry.at, entry.end
    if text[end : parent.end].lstrip().startswith(","):
        end += text[end:].index(",") + 1
        end += len(text[end:]) - len(text[end:].lstrip())
    else:  # the last member: remove the comma before it
        start = max((node.end for node in parent.members.values() if node.end < start), default=parent.start + 1)
    if bare[start:end].rstrip(", ") != text[start:end].rstrip(", "):
        raise NotEditable("the entry has comments, which would be lost")
    return text[:start] + text[end:]


def _with_member(text: str, parent: JsonNode, name: str | None, value: Json, depth: int) -> str:
    """The text with a member at the end of an object, or an item at the end of a list."""
    member = ("" if name is None else f"{json.dumps(name)}: ") + _dumped(text, value, depth)
    close = parent.end - 1
    end = max((node.end for node in parent.members.values()), default=parent.start + 1)
    trailing = text[end:close]  # perhaps with comments, and a trailing comma
    is_first_or_after_comma = not parent.members or "," in _COMMENT.sub("", trailing)
    comments = trailing.rstrip()
    after = trailing[len(comments) :] if parent.members else _line(text, depth - 1)
    before = text[:end] + ("" if is_first_or_after_comma else ",") + comments
    return before + _line(text, depth) + member + after + text[close:]


def _dumped(text: str, value: Json, depth: int) -> str:
    indent = _indentation(text)
    return json.dumps(value, indent=indent, ensure_ascii=False).replace("\n", _line(text, depth))


def _line(text: str, depth: int) -> str:
    """A line break and the indentation of this depth, in the style of the file; a space if the file is one line."""
    indent = _indentation(text)
    return " " if indent is None else ("\r\n" if "\r\n" in text else "\n") + indent * depth


def _indentation(text: str) -> str | None:
    """One level of indentation; None for a file that is written in one line."""
    match = re.search(r'\n([ \t]+)"', text)
    if match:
        return match[1]
    return None if '"' in text and "\n" not in text.strip() else "  "


def _json_snippet(section: str, name: str | None, entry: Json) -> str:
    content = {section: [entry] if name is None else {name: entry}}
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


# ── TOML ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _parse_toml(text: str) -> Json:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as problem:
        raise NotReadable(f"it is not valid TOML: {problem}") from None


def _insert_toml(text: str, section: str, name: str, entry: ServerEntry) -> str:
    if name not in _parse_toml(text).get(section, {}):
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        added = gap + _toml_snippet(section, name, entry)
        return text + (added.replace("\n", "\r\n") if "\r\n" in text else added)
    lines = text.splitlines(keepends=True)
    header, end = _toml_table(lines, section, name)
    old_fields = [line for line in lines[header + 1 : end] if line.partition("=")[0].strip() not in entry]
    new_fields = [line + "\n" for line in _toml_fields({key: entry[key] for key in entry if _is_flat(entry[key])})]
    return "".join([*lines[: header + 1], *new_fields, *old_fields, *lines[end:]])


def _remove_toml(text: str, section: str, name: str) -> str:
    lines = text.splitlines(keepends=True)
    while name in _parse_toml("".join(lines)).get(section, {}):  # its table, and the tables below it
        header, end = _toml_table(lines, section, name)
        del lines[header:end]
    return "".join(lines)


def _toml_table(lines: Sequence[str], section: str, name: str) -> tuple[int, int]:
    """The line of a table's header, and the line of the next header. Raises `NotEditable`."""
    headers = [number for number, line in enumerate(lines) if line.lstrip().startswith("[")]
    this = re.compile(rf'\s*\[\s*{re.escape(section)}\s*\.\s*"?{re.escape(name)}"?\s*[\].]')
    header = next((number for number in headers if this.match(lines[number])), None)
    if header is None:
        raise NotEditable(f"the entry has no table [{section}.{name}] of its own")
    return header, next((number for number in headers if number > header), len(lines))


def _toml_snippet(section: str, name: str, entry: ServerEntry) -> str:
    return "\n".join([f"[{section}.{name}]", *_toml_fields(entry), ""])


def _toml_fields(entry: ServerEntry) -> list[str]:
    return [
        f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()
    ]  # JSON strings and lists are valid TOML


def _is_flat(value: Json) -> bool:
    return not isinstance(value, dict)


# ── YAML ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _parse_yaml(text: str) -> Json:
    import yaml  # noqa: PLC0415 - one client has YAML

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        raise NotReadable(f"it is not valid YAML: {str(problem).partition(chr(10))[0]}") from None


def _insert_yaml(text: str, section: str, name: str, entry: ServerEntry) -> str:
    if name in ((_parse_yaml(text) or {}).get(section) or {}):
        text = _remove_yaml(text, section, name)
    lines = text.splitlines(keepends=True)
    number = next((number for number, line in enumerate(lines) if line.rstrip() == f"{section}:"), None)
    if number is None:
        gap = "" if not text or text.endswith("\n") else "\n"
        return text + gap + _yaml_snippet(section, name, entry)
    following = next((line for line in lines[number + 1 :] if line.strip() and not line.lstrip().startswith("#")), "")
    indent = len(following) - len(following.lstrip()) or 2
    return "".join([*lines[: number + 1], _yaml_entry(name, entry, indent), *lines[number + 1 :]])


def _remove_yaml(text: str, section: str, name: str) -> str:
    lines = text.splitlines(keepends=True)
    begin = next((number for number, line in enumerate(lines) if line.rstrip() == f"{section}:"), len(lines))
    entry = next((n for n in range(begin, len(lines)) if lines[n].strip() == f"{name}:"), None)
    if entry is None:
        raise NotEditable(f"'{name}' is not a block of its own under '{section}:'")
    indent = len(lines[entry]) - len(lines[entry].lstrip())
    end = next(
        (n for n in range(entry + 1, len(lines)) if len(lines[n]) - len(lines[n].lstrip()) <= indent), len(lines)
    )
    return "".join(lines[:entry] + lines[end:])


def _yaml_snippet(section: str, name: str, entry: ServerEntry) -> str:
    return f"{section}:\n{_yaml_entry(name, entry, 2)}"


def _yaml_entry(name: str, entry: ServerEntry, indent: int) -> str:
    margin = " " * indent
    fields = [f"{margin}{margin}{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in entry.items()]
    return "".join([f"{margin}{name}:\n", *fields])


FORMATS: Final[Mapping[str, Format]] = {
    ".json": Format(parse=_parse_json, insert=_insert_json, remove=_remove_json, snippet=_json_snippet),
    ".toml": Format(parse=_parse_toml, insert=_insert_toml, remove=_remove_toml, snippet=_toml_snippet),
    ".yaml": Format(parse=_parse_yaml, insert=_insert_yaml, remove=_remove_yaml, snippet=_yaml_snippet),
}

# ── files ───────────────────────────────────────────────────────────────────────────────────────────────────────


def read_text(path: str) -> str | None:
    """The text of a file; None when it does not exist. Raises `NotReadable` and `StorageError`."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise NotReadable("it is not a regular file")
        with open(path, "rb") as stream:
            return stream.read().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise NotReadable("it is not UTF-8 text") from None
    except OSError as problem:
        raise StorageError(f"{path} cannot be read: {problem.strerror}.", file=path) from problem


def replace_text(
    path: str, before: str | None, after: str, *, keep_copy: bool = True, new_mode: int | None = None
) -> str | None:
    """Replace the text of a file atomically. Returns the path of the copy of the old text, if there is one.

    Links are followed, and the mode is kept. A new file gets `new_mode`; with None the umask decides. Raises
    `StorageError`, also when the text is no longer `before`.
    """
    target = os.path.realpath(path)
    try:
        if read_text(path) != before:
            raise StorageError(f"Another program changed {path} in the meantime. Run the command again.", file=path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if before is None:
            replace_file(target, after.encode(), new_mode)
            return None
        mode = stat.S_IMODE(os.stat(target).st_mode)
        if keep_copy and not os.path.exists(target + ".bak"):  # the oldest copy is the user's original: keep it
            replace_file(target + ".bak", before.encode(), mode)
        replace_file(target, after.encode(), mode)
    except (OSError, NotReadable) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise StorageError(f"{path} cannot be written: {reason}.", file=path) from problem
    return target + ".bak" if keep_copy else None
