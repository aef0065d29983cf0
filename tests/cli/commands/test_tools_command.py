"""`workflowlookup tools`, and what `doctor` reports about providers."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.command_line import Cli
from support.make import document, write
from upstream.upstreams import ONE, HttpUpstream, McpUpstream


@pytest.fixture
def service(tmp_path: Path) -> Iterator[HttpUpstream]:
    with HttpUpstream(tmp_path / "svc") as made:
        yield made


def test_the_tools_are_listed_with_their_providers(cli: Cli, service: HttpUpstream, tmp_path: Path) -> None:
    config = cli.own / "mine.toml"
    config.write_text(service.toml())

    done = cli("tools", "--json", "--config", str(config))

    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    rows = {row["name"]: (row["workflow"], row["provider"], row["state"]) for row in answer["tools"]}
    assert rows["deploy_a_service"] == ("deploy", "svc", "ready")
    assert rows["bug_investigation"] == ("bug-investigation", "library", "ready")
    assert (answer["folded"], answer["away"], answer["remarks"]) == (False, {}, [])


def test_an_unreachable_provider_is_reported(cli: Cli, service: HttpUpstream, tmp_path: Path) -> None:
    service.stop()
    config = cli.own / "mine.toml"
    config.write_text(service.toml())

    done = cli("tools", "--config", str(config))

    assert done.returncode == 1
    assert "bug_investigation" in done.stdout
    assert "workflowlookup: the provider 'svc' cannot be reached at 127.0.0.1:" in done.stderr
    assert "Start it, or fix [providers.svc] in the settings." in done.stderr


def test_a_variable_that_is_not_set_is_named_with_where_to_set_it(cli: Cli, service: HttpUpstream) -> None:
    config = cli.own / "mine.toml"
    config.write_text(service.toml(headers={"Authorization": "Bearer ${NO_SUCH_TOKEN}"}))

    done = cli("tools", "--config", str(config))
    problems = json.loads(cli("doctor", "--json", "--config", str(config)).stdout)["problems"]

    words = "he provider 'svc' needs the environment variable NO_SUCH_TOKEN, which is not set."
    advice = "Set the variable where workflowlookup is started; for a client, in `env` of its entry."
    assert done.stderr == f"workflowlookup: t{words} {advice}\n"
    assert problems == [{"problem": f"T{words}", "remedy": advice}]


def test_there_are_no_workflow_tools_when_switched_off(cli: Cli) -> None:
    done = cli("tools", "--workflow-tools", "false")

    assert (done.returncode, done.stdout) == (1, "")
    assert "workflow_tools is false (--workflow-tools)" in done.stderr


def test_doctor_shows_what_patterns_match_and_the_state_of_providers(
    cli: Cli, service: HttpUpstream, tmp_path: Path
) -> None:
    upstream = McpUpstream(tmp_path / "up")
    service.control(workflows=[ONE, {"id": "bad"}])
    config = cli.own / "mine.toml"
    filters = 'include = ["provider:svc", "bug-*"]\nexclude = ["nothing-like-this"]\n'
    config.write_text(filters + upstream.toml() + service.toml(headers={"Authorization": "hush-hush"}))

    done = cli("doctor", "--json", "--config", str(config))

    tools = json.loads(done.stdout)["tools"]
    admits = {pattern["pattern"]: (pattern["setting"], pattern["examples"]) for pattern in tools["patterns"]}
    assert admits == {
        "provider:svc": ("include", ["deploy"]),
        "bug-*": ("include", ["bug-investigation"]),
        "nothing-like-this": ("exclude", []),
    }
    assert tools["tools"] == 2
    states = {state["name"]: (state["kind"], state["state"], state["workflows"]) for state in tools["providers"]}
    assert states == {"library": ("library", "ready", 10), "svc": ("http", "ready", 1)}
    assert [(state["name"], state["state"]) for state in tools["servers"]] == [("up", "ready")]
    problems = " ".join(problem["problem"] for problem in json.loads(done.stdout)["problems"])
    assert "'nothing-like-this' of exclude matches no workflow" in problems
    assert "workflow 'bad' is skipped" in problems
    assert "hush" not in done.stdout


def test_an_unreadable_entry_is_reported_and_the_others_are_listed(
    cli: Cli, service: HttpUpstream, tmp_path: Path
) -> None:
    config = cli.own / "mine.toml"
    config.write_text(service.toml() + '[providers.broken]\nkind = "soap"\n')

    plain = cli("tools", "--config", str(config))
    listed = cli("tools", "--json", "--config", str(config))
    doctor = cli("doctor", "--json", "--config", str(config))

    problem = f"{config}: providers.broken.kind must be one of mcp, http; found 'soap'"
    assert (plain.returncode, listed.returncode, doctor.returncode) == (1, 1, 1)
    assert "deploy_a_service" in plain.stdout
    assert f"[providers.broken] is ignored; the rest works: {problem}. Fix the entry." in plain.stderr
    assert json.loads(listed.stdout)["leftOut"] == {"providers.broken": problem}
    report = json.loads(doctor.stdout)
    assert f"[providers.broken] is ignored: {problem}." in [entry["problem"] for entry in report["problems"]]
    assert report["selfTest"]["error"] == ""


def test_doctor_names_calls_without_a_target(cli: Cli, service: HttpUpstream, tmp_path: Path) -> None:
    steps = [
        {"provider": "nobody", "workflow": "deploy"},
        {"provider": "broken", "workflow": "deploy"},
        {"provider": "svc", "workflow": "deplyo"},
        {"provider": "svc", "workflow": "deploy"},
        {"server": "up", "tool": "ecoh"},
        {"server": "up", "tool": "echo"},
    ]
    calls = [{"id": f"step-{at}", "title": "Call", "call": call} for at, call in enumerate(steps)]
    write(tmp_path / "library", document(identifier="caller", steps=calls))
    upstream = McpUpstream(tmp_path / "up")
    config = cli.own / "mine.toml"
    config.write_text(upstream.toml() + service.toml() + '[providers.broken]\nkind = "soap"\n')

    done = cli("doctor", "--json", "--config", str(config), "--directories", str(tmp_path / "library"))

    problems = [entry["problem"] for entry in json.loads(done.stdout)["problems"]]
    assert [problem for problem in problems if "'caller' calls" in problem] == [
        "The workflow 'caller' calls the provider 'nobody', which is not in the settings.",
        "The workflow 'caller' calls the provider 'broken', which is ignored because of a mistake.",
        "The workflow 'caller' calls the workflow 'deplyo' (did you mean 'deploy'?) of the provider 'svc', "
        "which lists no such workflow.",
        "The workflow 'caller' calls the tool 'ecoh' (did you mean 'echo'?) of the MCP server 'up', "
        "which has no such tool.",
    ]
