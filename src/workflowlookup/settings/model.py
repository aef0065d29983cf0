"""The settings in force, as one struct, and what other parts derive from them."""

import os
import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from workflowlookup import extras
from workflowlookup.repository import Project
from workflowlookup.store.journal_url import JournalUrl

if TYPE_CHECKING:
    from workflowlookup.library.git_source import GitSource
    from workflowlookup.notices.config import Recipient
    from workflowlookup.providers.config import Plan, ProviderConfig, ServerConfig
    from workflowlookup.trust import TrustEntry, TrustStore


class SettingsError(Exception):
    """A setting that cannot be used. The message says which, where it came from, and what was expected."""


def command_line(settings: "Settings", *words: str) -> str:
    """A command that a person can paste, with `--journal` if the journal is not the default.

    The password of a database is never in it; `PGPASSWORD=…` shows where to put it.
    """
    if settings.origins["journal"] == "default":
        return shlex.join(["workflowlookup", *words])
    url, has_password = JournalUrl(settings.journal).as_argument()
    command = shlex.join(["workflowlookup", *words, "--journal", url])
    return f"PGPASSWORD=… {command}" if has_password else command


def issuer_of(settings: "Settings") -> dict[str, str]:
    """The `oauth_` settings by their names without the prefix; empty when no issuer is set."""
    names = ("issuer", "audience", "jwks_url", "scopes_claim", "workflows_claim")
    issuer = {name: str(getattr(settings, f"oauth_{name}")) for name in names}
    return issuer if issuer["issuer"] else {}


class ConfiguredSource(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the table `sources`."""

    source: "GitSource"
    file: str
    """The settings file that it is in; the lock file is beside it."""
    may_fetch: bool
    """Whether the user has trusted the repository, or named it in their own file. What is cached is used anyway."""

    @property
    def lock_file(self) -> str:
        from workflowlookup.library.git_source import LOCK_NAME  # noqa: PLC0415 - loaded with the first source

        return os.path.join(os.path.dirname(self.file), LOCK_NAME)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in force; `origins` says where each came from."""

    bundled: bool
    user: bool
    project: bool
    directories: tuple[str, ...]
    frozen: bool
    git_timeout_seconds: float
    root: str
    proof_hosts: tuple[str, ...]
    witness_seconds: float
    journal: str
    journal_timeout_seconds: float
    confirmation: str
    person_confirmation: tuple[str, ...]
    hook_triggers: bool
    log_level: str
    log_format: str
    audit_log: str
    max_message_bytes: int
    workflow_tools: bool
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    tools_budget_bytes: int
    refresh_seconds: float
    discovery_wait_seconds: float
    timeout_seconds: float
    max_concurrent: int
    max_concurrent_total: int
    drain_seconds: float
    stop_delay_seconds: float
    http: str
    public_url: str
    allowed_hosts: tuple[str, ...]
    require_tokens: bool
    allowed_origins: tuple[str, ...]
    trusted_proxies: tuple[str, ...]
    max_sessions: int
    connections_per_address: int
    idle_seconds: float
    requests_per_minute: int
    oauth_issuer: str
    oauth_audience: str
    oauth_jwks_url: str
    oauth_scopes_claim: str
    oauth_workflows_claim: str
    origins: Mapping[str, str]
    servers: Mapping[str, "ServerConfig"] = {}
    providers: Mapping[str, "ProviderConfig"] = {}
    notify: tuple["Recipient", ...] = ()
    """Who gets notices."""
    commands: Mapping[str, tuple[str, ...]] = {}
    """The commands that proofs use, by name: the program and its arguments."""
    sources: Mapping[str, ConfiguredSource] = {}
    """The git repositories whose documents are in the library, by name; those of the user's file first."""
    cache_directory: str = ""
    """Where repositories are cached."""
    left_out: Mapping[str, str] = {}
    """Entries of servers, providers and sources that cannot be used, such as "providers.shop", each with the reason."""
    faults: tuple[str, ...] = ()
    """What is wrong in the project's settings file. It is ignored, because a repository must not stop the user."""
    from_repository: tuple["TrustEntry", ...] = ()
    """The entries of a repository's file that need trust."""
    ignored: tuple["TrustEntry", ...] = ()
    """The entries of `from_repository` that are not trusted and have no effect."""
    trust: "TrustFile"
    """The file with what the user has trusted."""
    config_directory: str = ""
    """The user's configuration directory; empty for an account without a home directory."""
    directory: str = "."
    """The working directory of the process."""
    enclosing_project: Project
    """The project around the working directory."""
    candidates: tuple[str, ...] = ()
    """The files that the settings are read from, whether or not they exist."""
    reload: Callable[[], "Settings"] | None = None
    """Reads the settings again with the same flags and environment. Raises `SettingsError`."""


def needed_extras(settings: Settings) -> dict[str, list[str]]:
    """The extras that the settings need, each with the names of the settings that need it."""
    systems = [f"[mcpServers.{name}]" for name in settings.servers if name not in settings.providers]
    systems += [f"[providers.{name}]" for name in settings.providers]
    needed = {
        extras.CALLS: systems,
        extras.HTTP: ["http"] if settings.http else [],
        JournalUrl(settings.journal).kind.extra: ["journal"],
    }
    return {extra: names for extra, names in needed.items() if extra and names}


def plan_of(settings: Settings) -> "Plan":
    """The settings about workflow tools and about what the server executes itself."""
    from workflowlookup.providers.config import Filters, Plan  # noqa: PLC0415 - `initialize` needs none of it

    return Plan(
        is_on=settings.workflow_tools,
        filters=Filters(settings.include, settings.exclude),
        servers=settings.servers,
        providers=settings.providers,
        budget_bytes=settings.tools_budget_bytes,
        refresh_seconds=settings.refresh_seconds,
        discovery_wait_seconds=settings.discovery_wait_seconds,
        timeout_seconds=settings.timeout_seconds,
        max_concurrent=settings.max_concurrent,
        max_concurrent_total=settings.max_concurrent_total,
    )


class TrustFile(msgspec.Struct, frozen=True):
    """The path of the trust store; empty if there is none, and `problem` says why."""

    path: str
    problem: str = ""

    @staticmethod
    def of(own: str, project: Project) -> "TrustFile":
        """The file in the user's configuration directory; none if that directory is in the project."""
        path = os.path.join(own, "trust.json")
        if project.brings(path):
            return TrustFile("", f"{own} is in the project, so it is not the user's own: nothing is trusted")
        return TrustFile(path)

    def store(self) -> "TrustStore":
        from workflowlookup.trust import TrustStore  # noqa: PLC0415 - only where a repository brings something

        return TrustStore(self.path, self.problem)
