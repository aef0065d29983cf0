"""Authentication of requests over HTTP, and authorization: what each caller may see and do."""
