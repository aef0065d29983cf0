"""JSON-RPC and the two eras of MCP as values: bytes in, bytes out, no sockets."""
