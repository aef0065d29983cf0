"""Every criterion of the requirements for dynamic workflow tools, as data: 002, retold criterion by criterion."""

from typing import Final

from spec.clauses import Clause, section

DYNAMIC_CLAUSES: Final[tuple[Clause, ...]] = (
    *section(
        "002",
        "1 Discovery",
        ("1.1/query-at-start", "a server that starts asks for the list of workflows"),
        ("1.1/remembered", "what a provider had is in the first list of the next server, marked until it is confirmed"),
        ("1.2/register", "each workflow that was found becomes a tool"),
        ("1.3/remove", "the tool of a workflow that is gone is gone"),
        ("1.4/list-unavailable", "when nobody answers with a list, that is logged and the static tools work"),
    ),
    *section(
        "002",
        "2 Execution by the standard endpoints",
        ("2.1/tools-list", "tools/list has the workflow tools beside the static ones"),
        ("2.2/tools-call", "tools/call of a workflow tool executes the workflow with the arguments"),
        ("2.3/results", "the results come back in the form of every tool's result"),
        ("2.3/long-results", "a result too long for an answer is kept, and comes in parts or as a resource"),
        (
            "2.4/failure",
            "a failed execution is an error with the details",
            "from 2025-03-26 on it is a result with isError, as with every tool of ours",
        ),
        (
            "2.5/invalid-arguments",
            "arguments that do not fit get the standard error for parameters",
            "from 2025-11-25 on it is a result with isError, as that version wants it",
        ),
    ),
    *section(
        "002",
        "3 Metadata",
        ("3.1/extract", "name, description and parameters of the tool come from the definition"),
        ("3.2/required-fields", "a definition has id, name and description, and may have an inputSchema"),
        ("3.3/defaults", "what is missing gets a sensible default: any object, the category workflow"),
        ("3.4/schema-validation", "an inputSchema is what the arguments are checked against, as JSON Schema"),
        ("3.5/generic-schema", "without an inputSchema any object is taken"),
    ),
    *section(
        "002",
        "4 Configuration",
        ("4.1/switch", "workflow tools can be switched on and off"),
        ("4.2/filters", "only workflows that the filters admit become tools"),
        ("4.3/refresh", "a refresh asks for the list again and brings the tools up to date"),
        ("4.4/live-settings", "changed settings count without a restart"),
    ),
    *section(
        "002",
        "5 Errors and logging",
        ("5.1/discovery-fails", "a failed discovery is logged with its cause, and the server goes on"),
        ("5.2/execution-fails", "a failed execution is logged with its cause, and the caller is told in plain words"),
        ("5.3/registration-fails", "a workflow that cannot become a tool is logged with the reason and passed over"),
        ("5.4/retry", "a list that is away is asked for again and again"),
    ),
    *section(
        "002",
        "6 Definitions",
        ("6.1/form", "a definition has this form, with these defaults"),
        ("6.2/missing-fields", "a definition without a required field is logged and passed over"),
        ("6.3/invalid-schema", "an invalid inputSchema is replaced by one that takes any object"),
        ("6.4/same-name", "workflows of the same name get tools of different names, by their ids"),
    ),
    *section(
        "002",
        "7 Asynchronous execution",
        ("7.1/wait", "the call waits until the workflow is done"),
        ("7.2/timeout", "an execution that takes too long is ended"),
        ("7.3/progress", "progress is logged"),
        ("7.4/asynchronous-failure", "what goes wrong later is in the answer"),
        ("7.4/error-information", "code, message, detail and output of a failure reach the caller and the journal"),
        ("7.5/clean-up", "after a cancellation or a timeout what runs beneath is stopped, and the caller is told"),
        ("7.5/client-leaves", "the job of a client that closes its end and sends SIGTERM does not go on"),
    ),
    *section(
        "002",
        "8 Status",
        ("8.1/status", "the status of an execution can be asked for"),
        ("8.2/information", "it has the state, the progress and the results so far"),
        ("8.3/updates", "what the workflow reports on the way is in it"),
        ("8.4/final-results", "after the end it has the final results"),
        ("8.5/not-supported", "where the other system cannot tell, the answer is that this is not supported"),
        ("8.5/end-unknown", "a job that nobody can be asked about was started, and its end is unknown"),
    ),
)
