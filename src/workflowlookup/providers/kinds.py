"""The kinds of providers: a new one is a module here, its options in `config.OPTIONS`, and one line in `KINDS`."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from workflowlookup.providers.config import ProviderConfig
from workflowlookup.providers.provider import Provider

if TYPE_CHECKING:
    from workflowlookup.providers.upstream import Upstreams


def _mcp(config: ProviderConfig, upstreams: "Upstreams") -> Provider:
    from workflowlookup.providers.mcp import McpProvider  # noqa: PLC0415 - loaded when there is one

    return McpProvider(config, upstreams)


def _http(config: ProviderConfig, _: "Upstreams") -> Provider:
    from workflowlookup.providers.http import HttpProvider  # noqa: PLC0415

    return HttpProvider(config)


KINDS: Final[Mapping[str, Callable[[ProviderConfig, "Upstreams"], Provider]]] = {"mcp": _mcp, "http": _http}


def make_provider(config: ProviderConfig, upstreams: "Upstreams") -> Provider:
    """The provider that the settings describe; nothing is asked of it yet."""
    return KINDS[config.kind](config, upstreams)
