"""Who looks, and what they may see and do."""

from fnmatch import fnmatchcase
from typing import Literal

import msgspec

Scope = Literal["read", "run", "confirm", "admin"]


class Viewer(msgspec.Struct, frozen=True, kw_only=True):
    """A person in front of the console. Whoever may do anything may look; an administrator may do all."""

    name: str
    scopes: frozenset[str]
    workflows: tuple[str, ...] = ("*",)
    """Patterns of the ids that exist for them."""
    session: str = ""
    """What tells one visit from another; forms are bound to it."""

    def may(self, scope: Scope, workflow_id: str | None = None) -> bool:
        """Whether they may do this, and with this workflow if one is named."""
        has_scope = bool(self.scopes) if scope == "read" else bool(self.scopes & {scope, "admin"})
        return has_scope and (workflow_id is None or self._sees(workflow_id))

    @property
    def sees_all(self) -> bool:
        return self.may("read") and "*" in self.workflows

    def _sees(self, workflow_id: str) -> bool:
        return any(fnmatchcase(workflow_id, pattern) for pattern in self.workflows)
