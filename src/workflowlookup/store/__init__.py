"""Runs: the journals that keep them, and the service that starts, advances and ends them."""
