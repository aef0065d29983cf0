"""Workflows that AI agents follow and people trust, as an MCP server."""

__version__ = "1.0.0"
