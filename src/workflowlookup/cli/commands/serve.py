"""`workflowlookup serve`: the MCP server."""

import argparse
import logging

from workflowlookup import extras
from workflowlookup.app import serve_stdio
from workflowlookup.settings import Settings, needed_extras, warn_left_out

log = logging.getLogger(__name__)


def add_arguments(_: argparse.ArgumentParser) -> None:
    """None of its own."""


def run(_: argparse.Namespace, settings: Settings) -> int:
    warn_left_out(settings)
    for extra, names in needed_extras(settings).items():
        if extra != extras.CALLS:
            extras.require(extra)
        elif extras.is_missing(extra):
            remedy = f"{extras.explain_missing(extra)} {extras.how_to_install(extra)}"
            log.warning("%s cannot be used; the rest works. %s", ", ".join(names), remedy)
    if not settings.http:
        return serve_stdio(settings)
    from workflowlookup.app_http import serve_http  # noqa: PLC0415 - needs an extra

    return serve_http(settings)


EXAMPLES = """\
  workflowlookup serve                                   what an MCP client starts
  workflowlookup serve --directories ~/team/workflows    with more workflows
  workflowlookup serve --log-level info                  with more on standard error
  workflowlookup serve --http 127.0.0.1:8787             over HTTP, for many clients"""
