"""`workflowlookup schema`: the JSON Schema of workflow documents, as it is."""

import argparse
import sys
from pathlib import Path

from workflowlookup.cli.main import Command
from workflowlookup.core.schemas import WORKFLOW_SCHEMA_FILE
from workflowlookup.settings import Settings


def run(_: argparse.Namespace, __: Settings) -> int:
    sys.stdout.buffer.write(Path(WORKFLOW_SCHEMA_FILE).read_bytes())
    sys.stdout.buffer.flush()
    return 0


COMMAND = Command(
    run=run,
    arguments=lambda _: None,
    examples="""\
  workflowlookup schema > workflow.schema.json     for "$schema" in an editor
  workflowlookup schema | jq '.required'           what a document must have""",
)
