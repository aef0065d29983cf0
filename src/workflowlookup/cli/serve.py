"""`workflowlookup serve`: the MCP server."""

import argparse

from workflowlookup.app import serve_http, serve_stdio
from workflowlookup.settings import Settings, warn_left_out


def add_arguments(_: argparse.ArgumentParser) -> None:
    """None of its own."""


def run(_: argparse.Namespace, settings: Settings) -> int:
    warn_left_out(settings)
    return serve_http(settings) if settings.http else serve_stdio(settings)


EXAMPLES = """\
  workflowlookup serve                                   what an MCP client starts
  workflowlookup serve --directories ~/team/workflows    with more workflows
  workflowlookup serve --log-level info                  with more on standard error
  workflowlookup serve --http 127.0.0.1:8787             over HTTP, for many clients"""
