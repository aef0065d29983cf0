"""Arguments that several commands take, and the types of their values: runs, context variables, numbers, times."""

import argparse
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from workflowlookup.language.values import Json

_UNITS: Final = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def add_run_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="id of the run, or a unique prefix of it")


def add_context_argument(
    parser: argparse.ArgumentParser, flag: str = "--context", meaning: str = "a context variable"
) -> None:
    """Add a repeatable NAME=VALUE option; its value is a list of (name, value)."""
    parser.add_argument(
        flag,
        metavar="NAME=VALUE",
        action="append",
        type=variable,
        default=[],
        help=f"{meaning}; the value is JSON, or text if it is not; may be repeated",
    )


def whole_number(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """The type of an argument that is a number within limits."""
    limits = f"from {minimum:,} to {maximum:,}" if maximum else f"of at least {minimum:,}"

    def parse(text: str) -> int:
        if not text.isdecimal() or not minimum <= int(text[:10]) <= (maximum or int(text[:10])):
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number {limits}")
        return int(text)

    return parse


def variable(text: str) -> tuple[str, Json]:
    """Parse NAME=VALUE. The value is JSON, or text if it is not."""
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE, such as taskSize=large")
    try:
        encoded = value.encode()
        name.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("the name and the value must be UTF-8 text") from None
    try:
        return name, msgspec.json.decode(encoded)
    except msgspec.DecodeError:
        return name, value
    except RecursionError:
        raise argparse.ArgumentTypeError(f"the value of '{name}' nests too deep") from None


def age(text: str) -> int:
    """The type of an argument such as `30d`; in milliseconds."""
    match = re.fullmatch(r"(\d{1,6})([mhdw])", text.strip().lower())
    if match is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not an age such as 90m, 12h, 30d or 4w")
    return int(match[1]) * _UNITS[match[2]] * 1000


def time_or_age(text: str) -> str:
    """The type of an argument that is a time, a date or an age; as ISO 8601."""
    from workflowlookup.store.journal import now  # noqa: PLC0415 - few commands take a time

    try:
        when = datetime.fromtimestamp((now() - age(text)) / 1000, UTC)
    except (argparse.ArgumentTypeError, OverflowError, ValueError, OSError):
        try:
            when = datetime.fromisoformat(text.strip())
            when = when if when.tzinfo else when.astimezone()
        except (OverflowError, ValueError, OSError):
            message = (
                f"'{text}' is neither a time such as 2026-11-16T09:30 or 2026-11-16, nor an age such as 12h or 30d"
            )
            raise argparse.ArgumentTypeError(message) from None
    return when.isoformat()
