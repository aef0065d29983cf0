"""`workflowlookup schema`."""

from pathlib import Path

from support.command_line import Cli
from workflowlookup.language.workflow_schema import WORKFLOW_SCHEMA_FILE


def test_the_schema_is_printed_unchanged(cli: Cli) -> None:
    done = cli("schema")

    assert (done.returncode, done.stdout, done.stderr) == (0, Path(WORKFLOW_SCHEMA_FILE).read_text("utf-8"), "")
