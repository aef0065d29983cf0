"""Arguments that several commands take: context variables as `NAME=VALUE`, numbers within limits."""

import argparse
from collections.abc import Callable

import msgspec

from workflowlookup.language.values import Json


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
