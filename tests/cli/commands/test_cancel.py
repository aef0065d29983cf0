"""`workflowlookup cancel`."""

import json

from support.command_line import Cli
from support.make import document, step

SAMPLE = document(step("only-step"))


def test_cancelling_again_changes_nothing(cli: Cli) -> None:
    run_id = cli.start_run()

    first = cli("cancel", run_id[:7], "--reason", "Not \x1b[1mneeded.")
    again = cli("cancel", run_id, "--reason", "Another reason.")

    assert (first.returncode, first.stdout) == (0, "The run is cancelled: Not \ufffd[1mneeded.\n")
    assert (again.returncode, again.stdout) == (0, first.stdout)


def test_json_is_what_the_tool_answers(cli: Cli) -> None:
    answer = json.loads(cli("cancel", cli.start_run(), "--json").stdout)

    assert (answer["state"], "reason" in answer) == ("cancelled", False)


def test_a_run_that_is_over_is_not_cancelled(cli: Cli) -> None:
    done = cli("cancel", cli.start_run(stdin=b"done"))

    assert (done.returncode, done.stdout) == (1, "")
    assert "The run is completed. Start a new one with `workflowlookup run`." in done.stderr
