"""What the settings say about other systems, as frozen values. Secrets are in `repr` of none of them."""

from collections.abc import Mapping

import msgspec

from workflowlookup.core.values import Json


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server that steps call, or that has workflows: a command, or a URL. The familiar `mcpServers` form."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"ServerConfig({self.name})"


class ProviderConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A system that has workflows: which kind it is, and what its kind needs to know."""

    name: str
    kind: str
    """A key of `providers.KINDS`: "mcp" or "http"."""
    options: Mapping[str, Json] = {}

    def __repr__(self) -> str:
        return f"ProviderConfig({self.name}, {self.kind})"


class Filters(msgspec.Struct, frozen=True):
    """Which workflows become tools: those that an include admits (all, when there is none) and no exclude names."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All that the settings say about workflow tools and about work of our own; it can change while the server runs."""

    is_on: bool = True
    """Whether workflows become tools."""
    filters: Filters = Filters()
    servers: Mapping[str, ServerConfig] = {}
    providers: Mapping[str, ProviderConfig] = {}
    budget_bytes: int = 200_000
    """How long `tools/list` may become before the workflow tools fold into workflow_search and workflow_start."""
    refresh_seconds: float = 300.0
    timeout_seconds: float = 300.0
    """For runs that go by themselves, unless the workflow or the call says otherwise."""
    max_concurrent: int = 10
    """How many runs the server works on at once; the others are queued."""
