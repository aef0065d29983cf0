"""Environment variables in settings, `${NAME}`, and keeping their values out of what is shown or logged.

A variable is filled in when it is used: one that is not set costs the one system that needs it.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from workflowlookup.providers.config import ServerConfig

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class NotSet(ValueError):
    """An environment variable that is needed is not there, or is not what it is needed for."""


def filled(text: str, at: str, environment: Mapping[str, str] = os.environ) -> str:
    """The text with `${NAME}` and `${NAME:-default}` filled in. Raises `NotSet` naming the variable."""

    def value(found: re.Match[str]) -> str:
        name, default = found.groups()
        known = environment.get(name, default)
        if known is None:
            raise NotSet(f"{at} needs the environment variable {name}, which is not set")
        return known

    return _VARIABLE.sub(value, text)


def filled_headers(headers: Mapping[str, str], at: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The headers filled in, as they can be sent: what comes from a file may end with a line break. Raises `NotSet`."""
    whole = {name: filled(value, at, environment).strip() for name, value in headers.items()}
    for name, value in whole.items():
        if not value.isascii() or not value.replace("\t", " ").isprintable():
            raise NotSet(f"{at} cannot send the header '{name}': there are characters in it that no header can have")
    return whole


_SHORTEST_SECRET: Final = 6
_SCHEMES: Final = frozenset(("bearer", "digest", "api-key", "apikey"))
_KNOWN_TO_ALL: Final = frozenset(("HOME", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "USER"))


def secrets_of(
    texts: Iterable[str], values: Iterable[str], environment: Mapping[str, str] = os.environ
) -> frozenset[str]:
    """What is never told: what the texts of a setting take from the environment, and the words of values that are
    secret as they stand (headers, environments).
    """

    def words() -> Iterator[str]:
        for text in texts:
            for name, default in _VARIABLE.findall(text):
                if name not in _KNOWN_TO_ALL:
                    yield from environment.get(name, default).split()
        for value in values:
            yield from _VARIABLE.sub(" ", value).split()

    return frozenset(word for word in words() if len(word) >= _SHORTEST_SECRET and word.lower() not in _SCHEMES)


def hidden(text: str, secrets: Collection[str]) -> str:
    """The text of another system without our secrets, which it may repeat."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "…")
    return text


def server_secrets(server: "ServerConfig", environment: Mapping[str, str] = os.environ) -> frozenset[str]:
    """What is never told of a server, as the settings have it."""
    values = (*server.env.values(), *server.headers.values())
    return secrets_of((server.command, *server.args, server.url, *values), values, environment)


def expanded(server: "ServerConfig", environment: Mapping[str, str] = os.environ) -> "ServerConfig":
    """The server with every `${NAME}` filled in, for the one who opens it. Raises `NotSet`."""
    at = f"the MCP server '{server.name}'"

    def fill(text: str) -> str:
        return filled(text, at, environment)

    return msgspec.structs.replace(
        server,
        command=fill(server.command),
        args=tuple(map(fill, server.args)),
        env={name: fill(value) for name, value in server.env.items()},
        url=fill(server.url),
        headers=filled_headers(server.headers, at, environment),
    )
