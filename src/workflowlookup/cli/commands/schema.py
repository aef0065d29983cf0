"""`workflowlookup schema`: prints the JSON Schema of workflow documents."""

import argparse
from pathlib import Path

from workflowlookup.cli.output import write_bytes
from workflowlookup.language.workflow_schema import WORKFLOW_SCHEMA_FILE
from workflowlookup.settings import Settings


def add_arguments(_: argparse.ArgumentParser) -> None:
    """None of its own."""


def run(_: argparse.Namespace, __: Settings) -> int:
    write_bytes(Path(WORKFLOW_SCHEMA_FILE).read_bytes())
    return 0


EXAMPLES = """\
  workflowlookup schema > workflow.schema.json     for "$schema" in an editor
  workflowlookup schema | jq '.required'           what a document must have"""
