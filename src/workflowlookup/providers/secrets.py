"""Environment variables in settings, `${NAME}`, and keeping their values out of what is shown or logged.

Variables are expanded when a system is opened, so one that is not set disables only the system that needs it.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from workflowlookup.providers.config import ServerConfig

_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class VariableNotSet(ValueError):
    """A required environment variable is not set, or its value cannot be used."""


def fill_variables(text: str, at: str, environment: Mapping[str, str] = os.environ) -> str:
    """Expand `${NAME}` and `${NAME:-default}`. Raises `VariableNotSet` with the name; `at` says who needs it."""

    def value_of(match: re.Match[str]) -> str:
        name, default = match.groups()
        value = environment.get(name, default)
        if value is None:
            raise VariableNotSet(f"{at} needs the environment variable {name}, which is not set")
        return value

    return _VARIABLE.sub(value_of, text)


def fill_headers(headers: Mapping[str, str], at: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Expand headers. Values are stripped, since one from a file may end with a line break. Raises `VariableNotSet`."""
    expanded = {name: fill_variables(value, at, environment).strip() for name, value in headers.items()}
    for name, value in expanded.items():
        if not value.isascii() or not value.replace("\t", " ").isprintable():
            raise VariableNotSet(
                f"{at} cannot send the header '{name}': its value has characters that no header can have"
            )
    return expanded


_MIN_SECRET_LENGTH: Final = 6
_SCHEMES: Final = frozenset(("bearer", "digest", "api-key", "apikey"))
_PUBLIC_VARIABLES: Final = frozenset(("HOME", "LOGNAME", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "USER"))


def secrets_in(
    texts: Iterable[str], values: Iterable[str], environment: Mapping[str, str] = os.environ
) -> frozenset[str]:
    """The words that must never be shown: values that `texts` take from the environment, and all words of `values`
    (headers and environments, which are secret as a whole).
    """

    def words() -> Iterator[str]:
        for text in texts:
            for name, default in _VARIABLE.findall(text):
                if name not in _PUBLIC_VARIABLES:
                    yield from environment.get(name, default).split()
        for value in values:
            yield from _VARIABLE.sub(" ", value).split()

    return frozenset(word for word in words() if len(word) >= _MIN_SECRET_LENGTH and word.lower() not in _SCHEMES)


def server_secrets(server: "ServerConfig", environment: Mapping[str, str] = os.environ) -> frozenset[str]:
    """The words of a server's configuration that must never be shown."""
    values = (*server.env.values(), *server.headers.values())
    return secrets_in((server.command, *server.args, server.url, *values), values, environment)


def expand_server(server: "ServerConfig", environment: Mapping[str, str] = os.environ) -> "ServerConfig":
    """The server with every `${NAME}` expanded, for opening a session. Raises `VariableNotSet`."""
    at = f"the MCP server '{server.name}'"

    def fill(text: str) -> str:
        return fill_variables(text, at, environment)

    return msgspec.structs.replace(
        server,
        command=fill(server.command),
        args=tuple(map(fill, server.args)),
        env={name: fill(value) for name, value in server.env.items()},
        url=fill(server.url),
        headers=fill_headers(server.headers, at, environment),
    )
