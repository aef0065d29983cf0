"""Other systems: providers of workflows (MCP servers, HTTP services), and the MCP servers that steps call."""
