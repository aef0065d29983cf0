"""`make oracle`: what the reference implementation answered, asked again of the real process.

`python tests/support/oracle.py CASES`: CASES is a record of requests and assertions on the answers. Each case agrees, or the table
of `docs/decisions/0007-where-we-differ-from-the-reference.md` lists it with the sentence that overrides it. Exits with 1 for
a difference that is not listed, and for a listed case that agrees. The project itself does not need the record.
"""

import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.client import Server
from support.json_values import Json, JsonObject

DECISION = Path(__file__).parents[2] / "docs" / "decisions" / "0007-where-we-differ-from-the-reference.md"
MISSING = "(absent)"


def listed(text: str) -> dict[str, str]:
    """From case to what overrides it, out of the table of the decision record."""
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines()]
    return {case: row[-1] for row in rows for case in re.findall(r"\bcase-\d+\b", row[0]) if len(row) > 1}


def write_library(directory: Path, case: JsonObject) -> None:
    for workflow in [*filter(None, [case.get("workflow")]), *(case.get("workflows") or [])]:
        (directory / f"{workflow['id']}.json").write_text(json.dumps(workflow), "utf-8")
    for name, content in (case.get("files") or {}).items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(content, "utf-8")


def expand(value: Json) -> Json:
    """`{"$repeat": [text, times]}` stands for a long text."""
    if isinstance(value, dict):
        if "$repeat" in value:
            return value["$repeat"][0] * value["$repeat"][1]
        return {key: expand(inner) for key, inner in value.items()}
    return [expand(inner) for inner in value] if isinstance(value, list) else value


def at(value: Json, path: str) -> Json:
    """The part of an answer that a dotted path leads to."""
    for part in path.split(".") if path != "$text" else ():
        if part == "length" and isinstance(value, (list, str)):
            return len(value)
        if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict) and part in value:
            value = value[part]
        else:
            return MISSING
    return value


def differences(case: JsonObject, server: Server) -> list[str]:
    """Where our answers are not those of the record, in words."""
    reasons: list[str] = []
    context: JsonObject = {}
    for request in case.get("sequence") or [case]:
        arguments = expand(request.get("arguments") or {})
        if "workflowId" in arguments and arguments["workflowId"] is None:
            arguments["workflowId"] = case["workflow"]["id"]
        if request.get("carryContext"):
            context = arguments["context"] = {**context, **(arguments.get("context") or {})}
        result = server.call(case["tool"], arguments)
        reasons += compare(case, request["expected"], result)
    return reasons


def compare(case: JsonObject, expected: JsonObject, result: JsonObject) -> list[str]:
    answer, is_error = result["structuredContent"], bool(result.get("isError"))
    if is_error != bool(expected.get("isError")):
        return [f"{'refused' if is_error else 'answered'}: {json.dumps(answer)[:160]}"]
    if is_error:
        code = case.get("spec_error_code")
        return [f"code {answer['code']}, the spec has {code}"] if code and answer["code"] != code else []
    return [
        f"{field['path']}: {json.dumps(got, ensure_ascii=False)[:120]}"
        for field in expected["fields"]
        if not holds(field, got := at(answer, field["path"]))
    ]


def holds(field: JsonObject, got: Any) -> bool:
    text = got if isinstance(got, str) else json.dumps(got)
    if "absent" in field:
        return (got == MISSING) is bool(field["absent"])
    if "contains" in field:
        return field["contains"] in text
    if "matches" in field:
        return re.search(field["matches"], text) is not None
    return "eq" in field and type(got) is type(field["eq"]) and bool(got == field["eq"])


def run(cases: list[JsonObject]) -> dict[str, list[str]]:
    """The differences of each case; those that do not mind share one process."""
    reasons_by_case: dict[str, list[str]] = {}
    alone = [[case] for case in cases if case.get("isolated")]
    for group in [[case for case in cases if not case.get("isolated")], *alone]:
        with tempfile.TemporaryDirectory(prefix="oracle-") as home:
            library = Path(home) / "library"
            library.mkdir()
            for case in group:
                write_library(library, case)
            server = Server(Path(home), directory=library, environment={"WORKFLOWLOOKUP_LOG_LEVEL": "error"})
            try:
                server.initialize()
                for case in group:
                    reasons_by_case[case["id"]] = differences(case, server)
            finally:
                server.stop()
    return reasons_by_case


def main(path: str) -> int:
    out = Console(highlight=False, soft_wrap=True, markup=False)
    if not Path(path).is_file():
        out.print(f"no record at {path}: make oracle CASES=…")
        return 1
    started = time.perf_counter()
    cases = json.loads(Path(path).read_text("utf-8"))["cases"]
    accepted = listed(DECISION.read_text("utf-8"))
    reasons_by_case = run(cases)
    unexplained = {case: reasons for case, reasons in reasons_by_case.items() if reasons and case not in accepted}
    needless = [case for case in accepted if not reasons_by_case.get(case, ())]
    notes = {case["id"]: case.get("note") or case["group"] for case in cases}
    for case, reasons in unexplained.items():
        out.print(f"differs    {case} ({notes[case]}): {'; '.join(reasons)}")
    for case in needless:
        out.print(
            f"no longer  {case} is listed as a difference, and {'agrees' if case in reasons_by_case else 'is no case'}"
        )
    agree = sum(not reasons for reasons in reasons_by_case.values())
    out.print(
        f"{agree} of {len(reasons_by_case)} cases agree, {len(reasons_by_case) - agree - len(unexplained)} differ as {DECISION.name} says, "
        f"{len(unexplained)} differ without a reason, in {time.perf_counter() - started:.1f} s"
    )
    return 1 if unexplained or needless else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1] if len(sys.argv) > 1 else "cases.json"))
