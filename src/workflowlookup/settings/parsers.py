"""Parsers for the values of settings. Each returns the value, or raises `ValueError` saying what was expected."""

import contextlib
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import msgspec

from workflowlookup.store.journal_url import JournalUrl

if TYPE_CHECKING:
    from workflowlookup.library.git_source import GitSource

Number = TypeVar("Number", int, float)


def boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if isinstance(value, str) and value.strip().lower() in words:
        return words[value.strip().lower()]
    raise ValueError("true or false")


def _parts(value: object, plural: str, separator: str) -> list[str]:
    """The parts of a list; `plural` names them in the error."""
    if isinstance(value, str):
        value = [part for part in value.split(separator) if part.strip()]
    if isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value):
        return list(value)
    raise ValueError(f"a list of {plural} (in the environment separated by '{separator}')")


def paths(value: object) -> tuple[str, ...]:
    return tuple(os.path.expanduser(part) for part in _parts(value, "directories", os.pathsep))


def path(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("a directory")
    return os.path.expanduser(value)


def commands(value: object) -> dict[str, tuple[str, ...]]:
    """The commands of a project, by name."""
    expected = 'a table of lists, such as test = ["make", "test"]'
    if not isinstance(value, dict):
        raise ValueError(expected)  # noqa: TRY004 - as every parser
    for name, words in value.items():
        is_list = isinstance(words, list) and all(isinstance(word, str) and "\0" not in word for word in words)
        if not is_list or not words or not words[0].strip():
            raise ValueError(f"{expected}: '{name}' must be a list of texts, the program first")
    return {name: tuple(words) for name, words in value.items()}


def source(name: str, value: object) -> "GitSource":
    """An entry of the table `sources`."""
    from workflowlookup.library.git_source import (  # noqa: PLC0415 - most people name no repository
        SOURCE_NAME,
        GitSource,
        check_revision,
        check_url,
        checked,
        checked_path,
    )

    if not re.fullmatch(SOURCE_NAME, name):
        raise ValueError("the name of a source has letters, digits, dashes and underscores, 64 at most")
    try:
        source = msgspec.convert(value, GitSource)
    except msgspec.ValidationError as problem:
        raise ValueError(f"it must have a url, and may have a rev and a path: {problem}") from None
    for field, check in (("url", check_url), ("rev", check_revision), ("path", checked_path)):
        try:
            check(getattr(source, field))
        except ValueError as problem:
            raise ValueError(f"{field} must be {problem}") from None
    return checked(source)


def journal_url(value: object) -> str:
    return JournalUrl(value if isinstance(value, str) else "").text


def web_address(value: object) -> str:
    """A URL that can be trusted: over TLS, or on this machine."""
    match = (
        re.fullmatch(r"(https?)://(\[[0-9a-f:]+\]|[\w.-]+)(:\d+)?(/[^\s?#]*)?", value)
        if isinstance(value, str)
        else None
    )
    if value == "" or (match and (match[1] == "https" or match[2] in ("localhost", "127.0.0.1", "[::1]"))):
        return str(value)
    raise ValueError("a URL that begins with https:// (http:// only for this machine)")


def word(value: object) -> str:
    if isinstance(value, str) and (not value or re.fullmatch(r"[!-~]+", value)):
        return value
    raise ValueError("one word")


def _number_between(kind: type[Number], minimum: Number, maximum: Number, expected: str) -> Callable[[object], Number]:
    def parse(value: object) -> Number:
        with contextlib.suppress(ValueError, OverflowError):
            if isinstance(value, (str, int, kind)) and not isinstance(value, bool):
                number = kind(value)
                if minimum <= number <= maximum:  # false for NaN
                    return number
        raise ValueError(expected)

    return parse


def whole_number(minimum: int, maximum: int) -> Callable[[object], int]:
    return _number_between(int, minimum, maximum, f"a whole number from {minimum:,} to {maximum:,}")


def seconds(minimum: float, maximum: float) -> Callable[[object], float]:
    return _number_between(float, minimum, maximum, f"a number of seconds from {minimum:g} to {maximum:,g}")


def patterns(value: object) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in _parts(value, "patterns", ","))
    if parts:
        from workflowlookup.providers.config import FilterPattern  # noqa: PLC0415 - most people filter nothing

        for part in parts:
            FilterPattern(part)
    return parts


def names(value: object) -> tuple[str, ...]:
    parts = tuple(part.strip().lower().rstrip("/") for part in _parts(value, "names", ","))
    if not all(parts):
        raise ValueError("a list of names, none of them empty")
    return parts


def networks(value: object) -> tuple[str, ...]:
    import ipaddress  # noqa: PLC0415 - seldom needed

    try:
        return tuple(str(ipaddress.ip_network(part)) for part in names(value))
    except ValueError:
        raise ValueError("a list of addresses and networks, such as 10.0.0.5 and 172.16.0.0/12") from None


def address(value: object) -> str:
    if value == "":
        return ""
    from workflowlookup.web import split_address  # noqa: PLC0415 - only a server over HTTP has an address

    split_address(value if isinstance(value, str) else "")
    return str(value)


def audit_destination(value: object) -> str:
    path = os.path.expanduser(value) if isinstance(value, str) else "?"
    if path in ("", "log") or os.path.isabs(path):
        return path
    raise ValueError("log, or an absolute path")


def some_of(*options: str) -> Callable[[object], tuple[str, ...]]:
    def parse(value: object) -> tuple[str, ...]:
        words = tuple(dict.fromkeys(part.strip().lower() for part in _parts(value, "words", ",")))
        if not words or not set(words) <= set(options):
            raise ValueError(f"a list of one or more of {', '.join(options)}")
        return words

    return parse


def one_of(*options: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if isinstance(value, str) and value.lower() in options:
            return value.lower()
        raise ValueError(f"one of {', '.join(options)}")

    return parse
