"""The methods for resources, prompts and completion, in both eras, and for skills."""

from collections.abc import Callable, Mapping
from typing import Final

from workflowlookup.errors import InvalidParams
from workflowlookup.language.values import Json
from workflowlookup.protocol.backend import Backend
from workflowlookup.protocol.requests import Call, cacheable_in, refuse_cursor
from workflowlookup.tools.prompts import get_prompt, list_prompts
from workflowlookup.tools.resources import complete, list_resources, list_templates, read_resource


def _list_resources(backend: Backend, call: Call) -> Json:
    call.optional("cursor", str, "text")
    return cacheable_in(call, list_resources(backend.services, call.object_params()))


def _list_templates(backend: Backend, call: Call) -> Json:
    refuse_cursor(call)
    return cacheable_in(call, list_templates(backend.services, call.object_params()))


def _read_resource(backend: Backend, call: Call) -> Json:
    call.text("uri")
    return cacheable_in(call, read_resource(backend.services, call.object_params(), call.report))


def _list_prompts(backend: Backend, call: Call) -> Json:
    call.optional("cursor", str, "text")
    return cacheable_in(call, list_prompts(backend.services, call.object_params()))


def _get_prompt(backend: Backend, call: Call) -> Json:
    call.text("name")
    call.optional("arguments", dict, "an object")
    return get_prompt(backend.services, call.object_params())


def _complete(backend: Backend, call: Call) -> Json:
    for name in ("ref", "argument"):
        if call.optional(name, dict, "an object") is None:
            raise InvalidParams(f"{name} is required")
    return complete(backend.services, call.object_params())


def _list_skills(backend: Backend, call: Call) -> Json:
    from workflowlookup.tools.skills import list_skills  # noqa: PLC0415 - with the first list of skills

    call.optional("cursor", str, "text")
    return cacheable_in(call, list_skills(backend.services, call.object_params()))


def _get_skill(backend: Backend, call: Call) -> Json:
    from workflowlookup.tools.skills import get_skill  # noqa: PLC0415 - with the first list of skills

    call.text("uri")
    return cacheable_in(call, get_skill(backend.services, call.object_params()))


def _read_directory(backend: Backend, call: Call) -> Json:
    from workflowlookup.tools.skills import read_directory  # noqa: PLC0415 - with the first list of skills

    refuse_cursor(call)
    call.text("uri")
    return read_directory(backend.services, call.object_params())


LIBRARY_METHODS: Final[Mapping[str, Callable[[Backend, Call], Json]]] = {
    "resources/list": _list_resources,
    "resources/templates/list": _list_templates,
    "resources/read": _read_resource,
    "resources/directory/read": _read_directory,
    "skills/list": _list_skills,
    "skills/get": _get_skill,
    "prompts/list": _list_prompts,
    "prompts/get": _get_prompt,
    "completion/complete": _complete,
}
