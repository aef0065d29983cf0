"""Where workflow tools come from: the library, MCP servers, HTTP services; and the MCP servers that steps call."""
