"""MCP and the console over HTTP."""
