"""Arguments that several commands take: context variables as `NAME=VALUE`, numbers within limits."""

import argparse
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from workflowlookup.language.values import Json

_UNITS: Final = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def add_run_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="id of the run, or a unique beginning of it")


def add_context_argument(
    parser: argparse.ArgumentParser, flag: str = "--context", what: str = "a context variable"
) -> None:
    """`options.context` becomes a list of names and values."""
    parser.add_argument(
        flag,
        metavar="NAME=VALUE",
        action="append",
        type=variable,
        default=[],
        help=f"{what}; the value is JSON, or text if it is not; may be repeated",
    )


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of an argument that is a number within limits."""
    limits = f"from {least:,} to {most:,}" if most else f"above {least - 1:,}"

    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text[:10]) <= (most or int(text[:10])):
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number {limits}")
        return int(text)

    return parse


def variable(text: str) -> tuple[str, Json]:
    """The value is JSON, or text if it is not."""
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
    """`30d` in milliseconds, for argparse."""
    found = re.fullmatch(r"(\d{1,6})([mhdw])", text.strip().lower())
    if found is None:
        raise argparse.ArgumentTypeError(f"'{text}' is not an age such as 90m, 12h, 30d or 4w")
    return int(found[1]) * _UNITS[found[2]] * 1000


def moment(text: str) -> str:
    """A time in ISO 8601, from one, from a date, or from an age, for argparse."""
    from workflowlookup.store.journal import now  # noqa: PLC0415 - few commands take a time

    try:
        when = datetime.fromtimestamp((now() - age(text)) / 1000, UTC)
    except (argparse.ArgumentTypeError, OverflowError, ValueError, OSError):
        try:
            when = datetime.fromisoformat(text.strip())
            when = when if when.tzinfo else when.astimezone()
        except (OverflowError, ValueError, OSError):
            told = f"'{text}' is neither a time such as 2026-11-16T09:30 or 2026-11-16, nor an age such as 12h or 30d"
            raise argparse.ArgumentTypeError(told) from None
    return when.isoformat()
