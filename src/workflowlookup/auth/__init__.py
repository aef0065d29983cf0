"""Who sends a request over HTTP, and what they may see and do."""
