"""Skills: each workflow of the library as an Agent Skill, for the extension `io.modelcontextprotocol/skills`.

A skill is a `SKILL.md`, which leads to a run of the workflow, and the files that the workflow brings along. Each of
them is the resource `skill://ID/PATH`; where the id is no name of a skill, `skill://ID/NAME/PATH`. A skill with a file
that cannot be served is not served at all, because its hosts verify all of it.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from workflowlookup.authoring.export.text import skill_description, skill_fields, skill_name
from workflowlookup.errors import ResourceNotFound, WorkflowLookupError, WorkflowNotFound
from workflowlookup.language.values import Json
from workflowlookup.library.files import SKILL_FILE
from workflowlookup.tools.contract import Services
from workflowlookup.tools.paging import encode_cursor, page
from workflowlookup.tools.resources import SKILL_SCHEME

if TYPE_CHECKING:
    from workflowlookup.language.model import Workflow
    from workflowlookup.library.attachments import Attachment
    from workflowlookup.library.files import WorkflowSummary

RESOURCES_PAGE_SIZE: Final = 100
SKILLS_PAGE_SIZE: Final = 50
"""Fewer, because each workflow is built and rendered for its digest."""
MAX_PAGE_BYTES: Final = 16 << 20
"""How much the skills of a page may have to read for their digests; the last one may exceed it."""
FILE_OVERHEAD: Final = 32 << 10
"""What a file counts for at least, in bytes, so that a page has about 512 files at most."""
MAX_URIS: Final = 20
"""How many files the answer to the start of a run names."""
MARKDOWN: Final = "text/markdown"
DIRECTORY: Final = "inode/directory"


def list_skills(services: Services, params: Mapping[str, Any]) -> Mapping[str, Json]:
    """The answer to `skills/list`. A skill that cannot be served is left out."""
    skills, next_cursor = _page(services, params.get("cursor"), SKILLS_PAGE_SIZE)
    entries = []
    for summary, files in skills:
        try:
            if files is not None:
                entries.append(_entry(services.catalog.get(summary.id), files))
        except WorkflowLookupError:
            continue  # changed or deleted since the snapshot; the next list is right
    return {"skills": entries, **({"nextCursor": next_cursor} if next_cursor else {})}


def get_skill(services: Services, params: Mapping[str, Any]) -> Mapping[str, Json]:
    """The answer to `skills/get`. Raises `ResourceNotFound`."""
    uri: str = params["uri"]
    workflow, files, path = _find(services, uri)
    if path != SKILL_FILE:
        raise ResourceNotFound(f"{uri} is not the {SKILL_FILE} of a skill. Call skills/list to see them.", uri=uri)
    return {"skill": _entry(workflow, files)}


def read_directory(services: Services, params: Mapping[str, Any]) -> Mapping[str, Json]:
    """The answer to `resources/directory/read`: the direct children of a directory of a skill."""
    uri: str = params["uri"]
    workflow, files, path = _find(services, uri)
    prefix = f"{path}/" if path else ""
    children: dict[str, Json] = {}
    for resource_path, resource in _resources(workflow.id, workflow.description, files):
        if resource_path.startswith(prefix):
            name, slash, _ = resource_path.removeprefix(prefix).partition("/")
            inner = _uri(workflow.id, prefix + name)
            children[name] = {"uri": inner, "name": name, "mimeType": DIRECTORY} if slash else resource
    if not children:
        raise ResourceNotFound(f"{uri} is not a directory of a skill.", uri=uri)
    return {"resources": list(children.values())}


def read_file(services: Services, uri: str) -> Mapping[str, Json]:
    """The content of a file of a skill, as `resources/read` answers it. Raises `ResourceNotFound`."""
    workflow, files, path = _find(services, uri)
    if path == SKILL_FILE:
        return {"uri": uri, "mimeType": MARKDOWN, "text": _manifest(workflow, files)}
    if path not in {file.path for file in files}:
        raise _no_such_file(uri)
    data = services.catalog.read_attachment(workflow.id, path)
    mime_type = _mime_type(path)
    try:
        return {"uri": uri, "mimeType": mime_type or "text/plain", "text": data.decode()}
    except UnicodeDecodeError:
        blob = base64.b64encode(data).decode()
        return {"uri": uri, "mimeType": mime_type or "application/octet-stream", "blob": blob}


def page_of_resources(
    services: Services, cursor: str | None
) -> "tuple[Iterator[tuple[WorkflowSummary, Sequence[Json]]], str | None]":
    """A page of workflows, each with the resources of its skill, and the cursor of the next page."""
    skills, next_cursor = _page(services, cursor, RESOURCES_PAGE_SIZE)
    return ((summary, _described(summary, files)) for summary, files in skills), next_cursor


def file_uris(services: Services, workflow_id: str) -> Sequence[str]:
    """The URIs of the files that a workflow brings along; none if they cannot be served."""
    return [_uri(workflow_id, file.path) for file in _files(services, workflow_id) or ()]


def advice_about_files(services: Services, workflow_id: str) -> Sequence[str]:
    """What an agent in a run should know about the files that the workflow brings along; nothing if there are none."""
    uris = file_uris(services, workflow_id)
    if not uris:
        return ()
    more = f" and {len(uris) - MAX_URIS:,} more, which workflow://{workflow_id} lists" if len(uris) > MAX_URIS else ""
    return (f"Files that the steps may name are resources: {', '.join(uris[:MAX_URIS])}{more}.",)


def _page(
    services: Services, cursor: str | None, limit: int
) -> "tuple[Sequence[tuple[WorkflowSummary, Sequence[Attachment] | None]], str | None]":
    """Workflows with their files, until the page is full; None in place of files that cannot be served."""
    summaries, next_cursor = page(services.catalog.snapshot().summaries, lambda summary: summary.id, cursor, limit)
    skills = []
    size = 0
    for summary in summaries:
        files = _files(services, summary.id)
        skills.append((summary, files))
        size += sum(max(file.size, FILE_OVERHEAD) for file in files or ())
        if size > MAX_PAGE_BYTES and summary is not summaries[-1]:
            return skills, encode_cursor(summary.id)
    return skills, next_cursor


def _files(services: Services, workflow_id: str) -> "Sequence[Attachment] | None":
    try:
        return services.catalog.attachments(workflow_id)
    except WorkflowLookupError:  # the catalog has logged it
        return None


def _find(services: Services, uri: str) -> "tuple[Workflow, Sequence[Attachment], str]":
    """The workflow of a skill's URI, its files, and the path within the skill. Raises `ResourceNotFound`."""
    workflow_id = uri.removeprefix(SKILL_SCHEME).partition("/")[0]
    root = root_uri(workflow_id)
    if uri != root and not uri.startswith(f"{root}/"):
        raise _no_such_file(uri)
    try:
        workflow = services.catalog.get(workflow_id)
        files = services.catalog.attachments(workflow_id)
    except WorkflowNotFound as problem:
        raise ResourceNotFound(f"{problem.remedy} Call skills/list to see them.", uri=uri) from problem
    except WorkflowLookupError as problem:
        message = f"The skill is not served: {problem.remedy}"
        raise ResourceNotFound(message, uri=uri, details=message) from problem
    return workflow, files, unquote(uri.removeprefix(root).removeprefix("/"))


def _no_such_file(uri: str) -> ResourceNotFound:
    return ResourceNotFound(f"No skill has the file '{uri}'. Call skills/list to see them all.", uri=uri)


def root_uri(workflow_id: str) -> str:
    """The URI of the directory of a skill; its last part is the name of the skill."""
    name = skill_name(workflow_id)
    return f"{SKILL_SCHEME}{workflow_id}" if name == workflow_id else f"{SKILL_SCHEME}{workflow_id}/{name}"


def _uri(workflow_id: str, path: str) -> str:
    return f"{root_uri(workflow_id)}/{quote(path)}"


def _manifest(workflow: "Workflow", files: "Sequence[Attachment]") -> str:
    from workflowlookup.authoring.export.targets import TARGETS, export_text  # noqa: PLC0415 - lists of resources do not need it

    return export_text(workflow, TARGETS["skill"], [(file.path, file.digest) for file in files])


def _entry(workflow: "Workflow", files: "Sequence[Attachment]") -> dict[str, Json]:
    """A skill as `skills/list` and `skills/get` show it, with the digest of each file."""
    import hashlib  # noqa: PLC0415 - lookups do not need it

    manifest = _manifest(workflow, files).encode()
    digests = [(SKILL_FILE, hashlib.sha256(manifest).hexdigest(), len(manifest))]
    digests += [(file.path, file.digest, file.size) for file in files]
    return {
        "uri": _uri(workflow.id, SKILL_FILE),
        "frontmatter": skill_fields(workflow),
        "resources": [
            {"uri": _uri(workflow.id, path), "digest": f"sha256:{digest}", "size": size}
            for path, digest, size in digests
        ],
    }


def _described(summary: "WorkflowSummary", files: "Sequence[Attachment] | None") -> Sequence[Json]:
    return [] if files is None else [each for _, each in _resources(summary.id, summary.description, files)]


def _resources(workflow_id: str, description: str, files: "Sequence[Attachment]") -> "Iterator[tuple[str, Json]]":
    """The files of a skill by path, as `resources/list` shows them."""
    yield (
        SKILL_FILE,
        {
            "uri": _uri(workflow_id, SKILL_FILE),
            "name": skill_name(workflow_id),
            "description": skill_description(description),
            "mimeType": MARKDOWN,
        },
    )
    for file in files:
        mime_type = _mime_type(file.path)
        yield (
            file.path,
            {
                "uri": _uri(workflow_id, file.path),
                "name": file.path.rpartition("/")[2],
                **({"mimeType": mime_type} if mime_type else {}),
                "size": file.size,
            },
        )


def _mime_type(path: str) -> str | None:
    import mimetypes  # noqa: PLC0415 - seldom needed

    return mimetypes.guess_type(path)[0]
