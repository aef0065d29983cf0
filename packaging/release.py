"""Builds everything that is published, from one version number, and checks it; nothing leaves this machine.

    python packaging/release.py dist          everything
    python packaging/release.py dist mcpb     only the bundle

The version is `workflowlookup.__version__`. The wheel and the sdist are for PyPI, `server.json` for the MCP registry,
the `.mcpb` bundle for desktop clients, and `claude-plugin/` for Claude Code. The container image is built from
`deploy/Containerfile` where there is an engine to build it with.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import fresh_install
from workflowlookup import __version__
from workflowlookup.cli.client_hooks import groups

ROOT: Final = Path(__file__).parent.parent
NAME: Final = "workflowlookup"
REGISTRY_NAME: Final = "io.github.workflowlookup/workflowlookup"
DESCRIPTION: Final = "Workflows that AI agents follow and people trust, one judged step at a time."
HOMEPAGE: Final = "https://github.com/workflowlookup/workflowlookup"
MAX_DESCRIPTION: Final = 100
"""Of the registry."""
CHANGE_KINDS: Final = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
_HELLO: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "release", "version": "1"}},
}
_ENTRY: Final = '''"""Starts the server from the bundle."""

import sys

from workflowlookup.__main__ import main

if __name__ == "__main__":
    sys.argv[1:] = ["serve"]
    raise SystemExit(main())
'''


class ReleaseError(Exception):
    """Something that would be published is not right; the text says what."""


def server_json(version: str) -> Mapping[str, Any]:
    """The entry of the MCP registry; the README has its name, which proves that both belong together."""
    return {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": REGISTRY_NAME,
        "title": "Workflow Lookup",
        "description": DESCRIPTION,
        "version": version,
        "repository": {"url": HOMEPAGE, "source": "github"},
        "packages": [
            {
                "registryType": "pypi",
                "identifier": NAME,
                "version": version,
                "runtimeHint": "uvx",
                "transport": {"type": "stdio"},
                "packageArguments": [{"type": "positional", "value": "serve"}],
            }
        ],
    }


def bundle_manifest(version: str) -> Mapping[str, Any]:
    """The manifest of the MCPB bundle: a server of type `uv`, for which the client brings Python."""
    return {
        "manifest_version": "0.4",
        "name": NAME,
        "display_name": "Workflow Lookup",
        "version": version,
        "description": DESCRIPTION,
        "author": {"name": "The workflowlookup maintainers", "url": HOMEPAGE},
        "repository": {"type": "git", "url": f"{HOMEPAGE}.git"},
        "license": "MIT",
        "keywords": ["workflow", "agents", "checklist", "runbook"],
        "server": {
            "type": "uv",
            "entry_point": "server.py",
            "mcp_config": {"command": "uv", "args": ["run", "--directory", "${__dirname}", "server.py"]},
        },
        "tools_generated": True,
        "prompts_generated": True,
        "compatibility": {"platforms": ["darwin", "linux"], "runtimes": {"python": ">=3.11"}},
    }


def plugin_files(version: str) -> Mapping[str, Any]:
    """The Claude Code plugin: its manifest, the server's entry, and the hooks."""
    server = {"command": "uvx", "args": [f"{NAME}=={version}", "serve"]}
    hooks = groups("claude-code", ["uvx", f"{NAME}=={version}"])
    return {
        ".claude-plugin/plugin.json": {
            "name": NAME,
            "version": version,
            "description": DESCRIPTION,
            "homepage": HOMEPAGE,
            "license": "MIT",
        },
        ".mcp.json": {"mcpServers": {NAME: server}},
        "hooks/hooks.json": {"hooks": {event: [group] for event, group in hooks.items()}},
    }


def image_command(engine: str, version: str) -> list[str]:
    """What builds the container image."""
    file = str(ROOT / "deploy" / "Containerfile")
    return [engine, "build", "-f", file, "--build-arg", f"VERSION={version}", "-t", f"{NAME}:{version}", str(ROOT)]


def build(target: Path, version: str = __version__) -> list[Path]:
    """Build all of it into an empty directory; what was built."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    _run([sys.executable, "-m", "build", "--outdir", str(target), str(ROOT)])
    _write_json(target / "server.json", server_json(version))
    for name, content in plugin_files(version).items():
        _write_json(target / "claude-plugin" / name, content)
    (target / "claude-plugin" / "skills").mkdir()
    build_bundle(target, version)
    return sorted(path for path in target.rglob("*") if path.is_file())


def build_bundle(target: Path, version: str = __version__) -> Path:
    """Build the MCPB bundle into a directory; its path."""
    target.mkdir(parents=True, exist_ok=True)
    path = target / f"{NAME}-{version}.mcpb"
    project = (
        f'[project]\nname = "{NAME}-bundle"\nversion = "{version}"\nrequires-python = ">=3.11"\n'
        f'dependencies = ["{NAME}=={version}"]\n'
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("manifest.json", json.dumps(bundle_manifest(version), indent=2))
        bundle.writestr("pyproject.toml", project)
        bundle.writestr("server.py", _ENTRY)
        bundle.write(ROOT / "LICENSE", "LICENSE")
    return path


def check(target: Path, version: str = __version__) -> None:
    """Use what was built as those would who get it. Raises `ReleaseError`."""
    (wheel,), (sdist,) = target.glob("*.whl"), target.glob("*.tar.gz")
    _run([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)])
    _require(f"-{version}-" in wheel.name, f"the wheel is not of version {version}: {wheel.name}")
    _require(len(DESCRIPTION) <= MAX_DESCRIPTION, "the registry takes shorter descriptions only")
    readme = (ROOT / "README.md").read_text("utf-8")
    _require(f"mcp-name: {REGISTRY_NAME}" in readme, "the README lacks the mcp-name of the registry")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    _require({"pyproject.toml", "LICENSE", "README.md"} <= names, "the sdist lacks files that every release has")
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        python = fresh_install.install_wheel(wheel, place / "venv")
        _require(_answers([str(python.with_name(NAME)), "serve"], place), "the server of the wheel does not answer")
        zipfile.ZipFile(target / f"{NAME}-{version}.mcpb").extractall(place / "bundle")
        manifest = json.loads((place / "bundle" / "manifest.json").read_text("utf-8"))
        _require(
            _answers(_bundle_command(manifest, place / "bundle", python), place, UV_FIND_LINKS=str(target)),
            "the server of the bundle does not answer",
        )
    check_changelog(version)


def check_changelog(version: str) -> None:
    """Require a dated section for the version right below Unreleased, and each kind of change once a section.

    Raises `ReleaseError`.
    """
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    newest = [line for line in changelog.splitlines() if line.startswith("## ")][1:2]
    is_dated = re.fullmatch(rf"## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", "".join(newest))
    _require(is_dated is not None, f"the changelog has no dated section for {version} below Unreleased")
    _require(f"\n[{version}]: " in changelog, f"the changelog has no link for {version}")
    for section in changelog.split("\n## ")[1:]:
        kinds = re.findall(r"^### (.*)$", section, re.MULTILINE)
        in_order = [kind for kind in CHANGE_KINDS if kind in kinds]
        _require(kinds == in_order, f"the changelog has {kinds} in {section.splitlines()[0]}, and needs {in_order}")


def _image_engine() -> str | None:
    """The program that builds images here; one whose daemon does not run builds none."""
    for name in ("docker", "podman"):
        if shutil.which(name) and subprocess.run([name, "info"], capture_output=True, check=False).returncode == 0:
            return name
    return None


def _bundle_command(manifest: Mapping[str, Any], place: Path, python: Path) -> list[str]:
    """What a client starts for the unpacked bundle; where there is no uv, its entry point with this interpreter."""
    start = manifest["server"]["mcp_config"]
    if shutil.which(start["command"]) is None:
        return [str(python), str(place / manifest["server"]["entry_point"])]
    return [start["command"], *(word.replace("${__dirname}", str(place)) for word in start["args"])]


def _answers(command: Sequence[str], place: Path, **environment: str) -> bool:
    done = subprocess.run(
        command,
        input=json.dumps(_HELLO) + "\n",
        capture_output=True,
        text=True,
        cwd=place,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )
    return done.returncode == 0 and f'"version":"{__version__}"' in done.stdout


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    _require(done.returncode == 0, f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def _require(holds: bool, problem: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not holds:
        raise ReleaseError(problem)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


def main() -> int:
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "dist").absolute()
    if sys.argv[2:] == ["mcpb"]:
        print(f"built {build_bundle(target)}")
        return 0
    try:
        for path in build(target):
            print(f"built {path}")
        check(target)
        engine = _image_engine()
        image = image_command(engine or "docker", __version__)
        if engine:
            _run(image)
        print(
            f"built the image {NAME}:{__version__}"
            if engine
            else f"no image: here is no engine for {shlex.join(image)}"
        )
    except ReleaseError as problem:
        print(f"not ready: {problem}", file=sys.stderr)
        return 1
    print(f"{NAME} {__version__} is ready in {target}. Nothing was published: docs/releasing.md says how to.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
