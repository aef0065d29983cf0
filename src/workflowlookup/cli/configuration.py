"""The configuration files of MCP clients: what servers they name, and a change to one that leaves the rest as it is.

The files are other programs' and people's own. So a change is made in the text, not by writing the values anew, it is
checked by reading the result, and a file that cannot be changed safely is not changed at all.
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
from workflowlookup.authoring.positions import JsonNode, scan
from workflowlookup.errors import StorageError
from workflowlookup.language.values import Json

Entry = Mapping[str, Json]
"""A server as a client's file describes it."""


class NotReadable(ValueError):
    """The file does not hold what its client expects; the text says why."""


class NotEditable(ValueError):
    """The file is in order, but we cannot change it safely; the text says why."""


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of file."""

    parse: Callable[[str], Json]
    """Its content, as the client understands it. Raises `NotReadable`."""
    insert: Callable[[str, str, str, Entry], str]
    """The text with this entry in (text, section, name, entry). May raise `NotEditable`."""
    remove: Callable[[str, str, str], str]
    """The text without an entry that it has (text, section, name). May raise `NotEditable`."""
    snippet: Callable[[str, str, Entry], str]
    """What a person would paste."""


def format_of(path: str) -> Format:
    return FORMATS[os.path.splitext(path)[1]]


def servers(text: str, path: str, section: str) -> dict[str, Any]:
    """The servers that a file names. Raises `NotReadable`."""
    content = format_of(path).parse(text) if text.strip() else None
    entries = (content.get(section) or {}) if isinstance(content, dict) else {} if content is None else None
    if not isinstance(entries, dict):
        raise NotReadable(f"it has no object '{section}' where one is expected")
    return entries


def with_server(text: str, path: str, section: str, name: str, entry: Entry) -> str:
    """The text with this entry in; the same text when it is there. Raises `NotReadable` and `NotEditable`.

    What else an older entry of this name holds, such as its environment, stays.
    """
    before = servers(text, path, section)
    older = before.get(name)
    wanted = {**older, **entry} if isinstance(older, dict) else dict(entry)
    if older == wanted:
        return text
    form = format_of(path)
    try:
        changed = form.insert(text, section, name, wanted)
    except RecursionError:
        raise NotEditable("it nests too deep") from None
    content = form.parse(text) if text.strip() else {}
    if _parsed_or_none(form, changed) != {**(content or {}), section: {**before, name: wanted}}:
        raise NotEditable("the change would touch more than the entry")
    return changed


def without_server(text: str, path: str, section: str, name: str) -> str:
    """The text without this entry; the same text when it is not there. Raises `NotReadable` and `NotEditable`."""
    before = servers(text, path, section)
    if name not in before:
        return text
    form = format_of(path)
    try:
        changed = form.remove(text, section, name)
    except RecursionError:
        raise NotEditable("it nests too deep") from None
    left = {other: entry for other, entry in before.items() if other != name}
    content, rest = form.parse(text), _parsed_or_none(form, changed) if changed.strip() else {}
    if not isinstance(rest, dict) or {**rest, section: rest.get(section) or {}} != {**content, section: left}:
        raise NotEditable("the change would touch more than the entry")
    return changed


def json_section(text: str, section: str) -> Json:
    """What JSON text has in a section; None when there is nothing. Raises `NotReadable`."""
    content = _parse_json(text) if text.strip() else {}
    if not isinstance(content, dict):
        raise NotReadable("it does not hold an object")
    return content.get(section)


def with_added(text: str, section: str, name: str | None, value: Json) -> str:
    """JSON text with one more member of an object, or one more item of a list, in a section that it may lack.

    Raises `NotReadable` and `NotEditable`.
    """
    content = _parse_json(text) if text.strip() else {}
    empty: Json = [] if name is None else {}
    found = json_section(text, section)
    before = empty if found is None else found
    if type(before) is not type(empty):
        raise NotReadable(f"its '{section}' is not what its program expects")
    wanted = [*before, value] if name is None else {**before, name: value}
    changed = _insert_json(text, section, name, value)
    if _parsed_or_none(FORMATS[".json"], changed) != {**content, section: wanted}:
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
    """The value, also of JSON with comments and trailing commas, which VS Code and others read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        try:
            return json.loads(_without_comments(text))
        except (ValueError, RecursionError):
            raise NotReadable(f"it is not valid JSON: {problem}") from None


def _without_comments(text: str) -> str:
    """The text with blanks in place of comments and trailing commas, so that everything stays where it is."""

    def blank(found: re.Match[str]) -> str:
        return found[1] or " " * len(found[0])

    return _LAST_COMMA.sub(blank, _COMMENT.sub(blank, text))


def _insert_json(text: str, section: str, name: str | None, entry: Json) -> str:
    """The text with a member of the section, or with one more item where it has no name."""
    if not text.strip():
        return _json_snippet(section, name, entry)
    bare = _without_comments(text)
    root = scan(bare)
    if section not in root.members:
        return _with_member(text, root, section, [entry] if name is None else {name: entry}, depth=1)
    parent = root.members[section]
    if name is None or name not in parent.members:
        return _with_member(text, parent, name, entry, depth=2)
    older = parent.members[name]
    if bare[older.start : older.end] != text[older.start : older.end]:
        raise NotEditable("its older entry has comments, which would be lost")
    return text[: older.start] + _dumped(text, entry, depth=2) + text[older.end :]


def _remove_json(text: str, section: str, name: str) -> str:
    bare = _without_comments(text)
    parent = scan(bare).members[section]
    entry = parent.members[name]
    start, end = entry.at, entry.end
    if text[end : parent.end].lstrip().startswith(","):
        end += text[end:].index(",") + 1
        end += len(text[end:]) - len(text[end:].lstrip())
    else:  # the last one: the comma before it goes
        start = max((node.end for node in parent.members.values() if node.end < start), default=parent.start + 1)
    if bare[start:end].rstrip(", ") != text[start:end].rstrip(", "):
        raise NotEditable("the entry has comments, which would be lost")
    return text[:start] + text[end:]


def _with_member(text: str, parent: JsonNode, name: str | None, value: Json, depth: int) -> str:
    """The text with one more member at the end of an object, or one more item at the end of a list."""
    member = ("" if name is None else f"{json.dumps(name)}: ") + _dumped(text, value, depth)
    close = parent.end - 1
    end = max((node.end for node in parent.members.values()), default=parent.start + 1)
    rest = text[end:close]  # perhaps with comments, and a trailing comma
    is_first_or_after_comma = not parent.members or "," in _COMMENT.sub("", rest)
    kept = rest.rstrip()
    after = rest[len(kept) :] if parent.members else _line(text, depth - 1)
    before = text[:end] + ("" if is_first_or_after_comma else ",") + kept
    return before + _line(text, depth) + member + after + text[close:]


def _dumped(text: str, value: Json, depth: int) -> str:
    indent = _indentation(text)
    return json.dumps(value, indent=indent, ensure_ascii=False).replace("\n", _line(text, depth))


def _line(text: str, depth: int) -> str:
    """A new line at this depth, as the file has them; a blank in a file that is one line."""
    indent = _indentation(text)
    return " " if indent is None else ("\r\n" if "\r\n" in text else "\n") + indent * depth


def _indentation(text: str) -> str | None:
    """One level of indentation; None for a file that is written in one line."""
    found = re.search(r'\n([ \t]+)"', text)
    if found:
        return found[1]
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


def _insert_toml(text: str, section: str, name: str, entry: Entry) -> str:
    if name not in _parse_toml(text).get(section, {}):
        gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
        added = gap + _toml_snippet(section, name, entry)
        return text + (added.replace("\n", "\r\n") if "\r\n" in text else added)
    lines = text.splitlines(keepends=True)
    header, end = _toml_table(lines, section, name)
    older = [line for line in lines[header + 1 : end] if line.partition("=")[0].strip() not in entry]
    newer = [line + "\n" for line in _toml_fields({key: entry[key] for key in entry if _is_flat(entry[key])})]
    return "".join([*lines[: header + 1], *newer, *older, *lines[end:]])


def _remove_toml(text: str, section: str, name: str) -> str:
    lines = text.splitlines(keepends=True)
    while name in _parse_toml("".join(lines)).get(section, {}):  # its own table, and those below it
        header, end = _toml_table(lines, section, name)
        del lines[header:end]
    return "".join(lines)


def _toml_table(lines: Sequence[str], section: str, name: str) -> tuple[int, int]:
    """The line of a table's header, and that of the next header. Raises `NotEditable`."""
    headers = [number for number, line in enumerate(lines) if line.lstrip().startswith("[")]
    this = re.compile(rf'\s*\[\s*{re.escape(section)}\s*\.\s*"?{re.escape(name)}"?\s*[\].]')
    header = next((number for number in headers if this.match(lines[number])), None)
    if header is None:
        raise NotEditable(f"the entry has no table [{section}.{name}] of its own")
    return header, next((number for number in headers if number > header), len(lines))


def _toml_snippet(section: str, name: str, entry: Entry) -> str:
    return "\n".join([f"[{section}.{name}]", *_toml_fields(entry), ""])


def _toml_fields(entry: Entry) -> list[str]:
    return [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]  # the same in TOML


def _is_flat(value: Json) -> bool:
    return not isinstance(value, dict)


# ── YAML ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _parse_yaml(text: str) -> Json:
    import yaml  # noqa: PLC0415 - one client has YAML

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        raise NotReadable(f"it is not valid YAML: {str(problem).partition(chr(10))[0]}") from None


def _insert_yaml(text: str, section: str, name: str, entry: Entry) -> str:
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


def _yaml_snippet(section: str, name: str, entry: Entry) -> str:
    return f"{section}:\n{_yaml_entry(name, entry, 2)}"


def _yaml_entry(name: str, entry: Entry, indent: int) -> str:
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
    """The text of a file; None when there is none. Raises `NotReadable` and `StorageError`."""
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
    """Put a text in place of another, whole or not at all; the path of the copy of the older one, if there was one.

    A link is followed, and the mode stays. A new file gets `new_mode`; None leaves it to the umask. Raises
    `StorageError`, also when the file is not as it was any more.
    """
    target = os.path.realpath(path)
    try:
        if read_text(path) != before:
            raise StorageError(f"{path} was changed by another program meanwhile. Run the command again.", file=path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if before is None:
            replace_file(target, after.encode(), new_mode)
            return None
        mode = stat.S_IMODE(os.stat(target).st_mode)
        if keep_copy and not os.path.exists(target + ".bak"):  # the oldest is the user's own: it stays
            replace_file(target + ".bak", before.encode(), mode)
        replace_file(target, after.encode(), mode)
    except (OSError, NotReadable) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise StorageError(f"{path} cannot be written: {reason}.", file=path) from problem
    return target + ".bak" if keep_copy else None
