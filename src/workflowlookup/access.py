"""Who asks, and what they may see and do. Pure: how somebody proves who they are is not decided here.

Scopes are words: `read`, `run`, `confirm`, `admin`. Whoever may do anything may look, and `admin` is all of them; the
others include none. Patterns of workflow ids say where they hold: what no pattern admits does not exist for the one who
asks.
"""

import functools
import re
from collections.abc import Iterable
from typing import Final

import msgspec

from workflowlookup.errors import Forbidden

SCOPES: Final = ("read", "run", "confirm", "admin")
EVERYTHING: Final = ("*",)
MOST_PATTERN: Final = 64
MOST_PATTERNS: Final = 100

_PRETENDS: Final = re.compile(r"(token|oauth|loopback|client)\b|.* via ", re.IGNORECASE | re.DOTALL)
"""Matches the name of a client that could be mistaken for an authenticated caller."""
_PATTERN: Final = r"[a-z0-9._*?-]+"


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """One who asks, for as long as the request takes."""

    name: str
    """As the journal names them, such as `token ci-bot`; empty for the local person, who needs no name."""
    kind: str
    """`person` or `agent` for those with a token; `local` for the person who started the server for themselves;
    `loopback` for a caller without a token on this machine, where none is required.
    """
    scopes: frozenset[str]
    workflows: tuple[str, ...] = EVERYTHING
    """Patterns of ids: `*` is any text, `?` any character."""
    credential: str = ""
    """The id of the token, where it is one of ours: another token with the same name is another caller's."""

    def may(self, scope: str, workflow_id: str | None = None) -> bool:
        """Whether they have this scope, and for this workflow if one is named."""
        has_scope = bool(self.scopes) if scope == "read" else not self.scopes.isdisjoint((scope, "admin"))
        return has_scope and (workflow_id is None or admits(self.workflows, workflow_id))

    def need(self, scope: str, workflow_id: str | None = None) -> None:
        """Raises `Forbidden`. Only for what they see: it tells that there is something."""
        if not self.may(scope, workflow_id):
            raise missing(scope)

    @property
    def sees_all(self) -> bool:
        """Whether every workflow exists for them."""
        return self.may("read") and "*" in self.workflows

    @property
    def administers_all(self) -> bool:
        """Whether they look after every workflow, and so after what belongs to none."""
        return self.may("admin") and self.sees_all

    @property
    def is_unbound(self) -> bool:
        """Whether they may see and do everything, and have no name of their own."""
        return self.kind in ("local", "loopback") and self.administers_all

    @property
    def may_trust(self) -> bool:
        """Whether they may trust what a repository brings. Only a person may, and `loopback` may be a program."""
        return self.kind in ("local", "person") and self.administers_all

    @property
    def caller(self) -> str:
        """What their requests count against. All on this machine who need no token are one caller."""
        return self.name or self.kind

    def may_confirm(self, confirmation: str) -> bool:
        """Whether their word on a step counts, where the setting `confirmation` says whose does."""
        return self.may("confirm") and not (confirmation == "person" and self.kind == "agent")

    def sign(self, client: str) -> str:
        """Who did it, for the journal, when it came by a client of this name, such as `token ada (person) via curl`.

        What is before ` via ` is what this server knows; a client's own name cannot pretend to be that.
        """
        who = "loopback" if self.kind == "loopback" else self.name
        if not who:
            return f"client {client}" if _PRETENDS.match(client) else client
        if self.kind == "person":
            who += " (person)"
        return f"{who} via {client}" if client else who


LOCAL: Final = Access(name="", kind="local", scopes=frozenset({"admin"}))
"""The person who started the server for themselves: over pipes, or for the console that only they can open."""
LOOPBACK: Final = Access(name="", kind="loopback", scopes=frozenset({"admin"}))
"""A caller on the machine of a server that requires no tokens: they could read its files as well."""


def missing(scope: str) -> Forbidden:
    message = f"This needs the scope '{scope}', which your token does not have. Use one that has it."
    return Forbidden(message, scope=scope)


def admits(patterns: Iterable[str], workflow_id: str) -> bool:
    return any(_compiled(pattern).fullmatch(workflow_id) is not None for pattern in patterns)


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    """The pattern as an expression that never tries anything twice: what stands between two `*` is found once."""
    parts = [re.escape(part).replace(r"\?", ".") for part in re.split(r"\*+", pattern)]
    if len(parts) == 1:
        return re.compile(parts[0], re.DOTALL)
    first, *middle, last = parts
    found = "".join(f"(?>.*?{part})" for part in middle)
    return re.compile(f"{first}{found}.*{last}", re.DOTALL)


def checked_patterns(patterns: Iterable[str]) -> tuple[str, ...]:
    """The patterns, each once. Raises `ValueError` for what cannot be one."""
    found = tuple(dict.fromkeys(patterns))
    for pattern in found:
        if not re.fullmatch(_PATTERN, pattern) or len(pattern) > MOST_PATTERN:
            raise ValueError(f"patterns of workflow ids, such as 'docs-*' or 'release-?'; found {pattern!r}")
    if not found or len(found) > MOST_PATTERNS:
        raise ValueError(f"one to {MOST_PATTERNS} patterns of workflow ids")
    return found


def checked_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """Raises `ValueError` for a word that is no scope."""
    found = frozenset(scopes)
    if not found or not found <= set(SCOPES):
        raise ValueError(f"one or more of {', '.join(SCOPES)}")
    return found
