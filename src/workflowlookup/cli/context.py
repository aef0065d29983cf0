"""Context variables on the command line: `--context NAME=VALUE`, for every command that takes a context."""

import argparse

import msgspec

from workflowlookup.core.values import Json


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
