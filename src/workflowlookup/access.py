"""Authorization: who a caller is, and what they may see and do. Pure; authentication is in `auth/`.

The scopes are `read`, `run`, `confirm`, `witness` and `admin`. Every scope includes `read`, and `admin` includes all of
them but `witness`: what a witness reports counts as proof, so that right is always given by name.
Patterns of workflow ids limit where the scopes apply: a workflow that matches no pattern does not exist for the caller.
"""

import functools
import re
from collections.abc import Iterable
from typing import Final

import msgspec

from workflowlookup.errors import Forbidden

WITNESS: Final = "witness"
NAMELESS: Final = "somebody"
"""The name of all tokens of an issuer that have no subject."""
WITNESS_SUFFIX: Final = "+witness"
SCOPES: Final = ("read", "run", "confirm", WITNESS, "admin")
EVERYTHING: Final = ("*",)
SIGNED_KINDS: Final = ("passkey", "key")
PERSON_KINDS: Final = (*SIGNED_KINDS, "form", "terminal", "console")
"""The kinds of a person's answers that the setting `person_confirmation` can allow. What an agent relays is none."""
MAX_PATTERN_CHARS: Final = 64
MAX_PATTERNS: Final = 100

_IMPERSONATES: Final = re.compile(r"(token|oauth|loopback|client)\b|.* via ", re.IGNORECASE | re.DOTALL)
"""Matches the name of a client that could be mistaken for an authenticated caller."""
_PATTERN: Final = r"[a-z0-9._*?-]+"


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """The caller of a request, and the caller's rights."""

    name: str
    """As stored in journals, such as `token ci-bot`; empty for `local` and `loopback` callers."""
    kind: str
    """`person` or `agent` with a token; `local` for the user who started the server over pipes or opened the console;
    `loopback` for a caller without a token on this machine, where none is required.
    """
    scopes: frozenset[str]
    workflows: tuple[str, ...] = EVERYTHING
    """Patterns of workflow ids: `*` is any text, `?` any character."""
    credential: str = ""
    """The id of a token of ours: two tokens with the same name are two callers."""

    def may(self, scope: str, workflow_id: str | None = None) -> bool:
        """Whether the caller has this scope, and for this workflow if one is given."""
        if scope == "read":
            has_scope = bool(self.scopes)
        else:
            has_scope = scope in self.scopes or (scope != WITNESS and "admin" in self.scopes)
        return has_scope and (workflow_id is None or admits(self.workflows, workflow_id))

    def require(self, scope: str, workflow_id: str | None = None) -> None:
        """Raises `Forbidden` without this scope. Only for what the caller sees: the error reveals that it exists."""
        if not self.may(scope, workflow_id):
            raise missing_scope(scope)

    @property
    def sees_all(self) -> bool:
        """Whether the caller sees every workflow."""
        return self.may("read") and "*" in self.workflows

    @property
    def administers_all(self) -> bool:
        """Whether the caller administers every workflow, and so also what belongs to no workflow."""
        return self.may("admin") and self.sees_all

    @property
    def is_unrestricted(self) -> bool:
        """Whether this is a caller without a name who may see and do everything."""
        return self.kind in ("local", "loopback") and self.administers_all

    @property
    def may_trust(self) -> bool:
        """Whether the caller may trust what a repository brings. Only a person may; `loopback` may be a program."""
        return self.kind in ("local", "person") and self.administers_all

    @property
    def may_register(self) -> bool:
        """Whether the caller may register a passkey for a person. As for `may_trust`, an agent may not."""
        return self.kind in ("local", "person") and self.may("confirm")

    @property
    def caller(self) -> str:
        """The key for rate limits and fair shares. All callers on this machine without a token are one."""
        return self.name or self.kind

    @property
    def witnessed_name(self) -> str:
        """Whose runs the caller can be the witness of: its own; for a token `ada+witness`, those of `ada`. Names of
        tokens are unique, and the agent's token should not be able to prove what the agent claims.
        """
        return self.name.removesuffix(WITNESS_SUFFIX) if self.name.startswith("token ") else self.name

    def may_confirm(self, confirmation: str) -> bool:
        """Whether the caller's answer confirms a step, given the setting `confirmation`."""
        return self.may("confirm") and not (confirmation == "person" and self.kind == "agent")

    def sign(self, client: str) -> str:
        """The actor for the journal, given the client's name, such as `token ada (person) via curl`.

        The part before ` via ` is authenticated; the name of a client cannot imitate it.
        """
        actor = "loopback" if self.kind == "loopback" else self.name
        if not actor:
            return f"client {client}" if _IMPERSONATES.match(client) else client
        if self.kind == "person":
            actor += " (person)"
        return f"{actor} via {client}" if client else actor


LOCAL: Final = Access(name="", kind="local", scopes=frozenset({"admin"}))
"""The user who started the server over pipes, or opened the console with its one-time URL."""
LOOPBACK: Final = Access(name="", kind="loopback", scopes=frozenset({"admin"}))
"""A caller on the same machine as a server that requires no tokens. They could read its files anyway."""


def authenticated_name(actor: str) -> str:
    """The `Access.name` in an actor that `Access.sign` made, such as `token ada`; empty if it was not authenticated, or
    is of a token without a subject: such tokens may be those of different people.
    """
    name = actor.partition(" via ")[0].removesuffix(" (person)")
    return name if name.startswith(("token ", "oauth ")) and name != f"oauth {NAMELESS}" else ""


def missing_scope(scope: str) -> Forbidden:
    message = f"This needs the scope '{scope}', which your token does not have. Use one that has it."
    return Forbidden(message, scope=scope)


def admits(patterns: Iterable[str], workflow_id: str) -> bool:
    return any(_compiled(pattern).fullmatch(workflow_id) is not None for pattern in patterns)


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    """The pattern as a regular expression that does not backtrack: each part between two `*` is matched once."""
    parts = [re.escape(part).replace(r"\?", ".") for part in re.split(r"\*+", pattern)]
    if len(parts) == 1:
        return re.compile(parts[0], re.DOTALL)
    first, *middle, last = parts
    inner = "".join(f"(?>.*?{part})" for part in middle)
    return re.compile(f"{first}{inner}.*{last}", re.DOTALL)


def checked_patterns(patterns: Iterable[str]) -> tuple[str, ...]:
    """The patterns without duplicates. Raises `ValueError` for a pattern that is not valid."""
    unique = tuple(dict.fromkeys(patterns))
    for pattern in unique:
        if not re.fullmatch(_PATTERN, pattern) or len(pattern) > MAX_PATTERN_CHARS:
            raise ValueError(f"patterns of workflow ids, such as 'docs-*' or 'release-?'; found {pattern!r}")
    if not unique or len(unique) > MAX_PATTERNS:
        raise ValueError(f"one to {MAX_PATTERNS} patterns of workflow ids")
    return unique


def checked_scopes(scopes: Iterable[str]) -> frozenset[str]:
    """The scopes as a set. Raises `ValueError` for a word that is not a scope."""
    unique = frozenset(scopes)
    if not unique or not unique <= set(SCOPES):
        raise ValueError(f"one or more of {', '.join(SCOPES)}")
    return unique
