"""Transports: standard input and output, HTTP, and signals."""
