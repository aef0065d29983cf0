"""What else of the library is offered: how resources, prompts and completions are asked for, in both eras."""

from collections.abc import Callable, Mapping
from typing import Final

from workflowlookup.errors import InvalidParams
from workflowlookup.language.values import Json
from workflowlookup.protocol.backend import Surface
from workflowlookup.protocol.replies import cacheable_in
from workflowlookup.protocol.requests import Call, refuse_cursor
from workflowlookup.tools.prompts import get_prompt, list_prompts
from workflowlookup.tools.resources import complete, list_resources, list_templates, read_resource


def _list_resources(surface: Surface, call: Call) -> Json:
    call.optional("cursor", str, "text")
    return cacheable_in(call, list_resources(surface.services, call.object_params()))


def _list_templates(surface: Surface, call: Call) -> Json:
    refuse_cursor(call)
    return cacheable_in(call, list_templates(surface.services, call.object_params()))


def _read_resource(surface: Surface, call: Call) -> Json:
    call.text("uri")
    return cacheable_in(call, read_resource(surface.services, call.object_params(), call.report))


def _list_prompts(surface: Surface, call: Call) -> Json:
    call.optional("cursor", str, "text")
    return cacheable_in(call, list_prompts(surface.services, call.object_params()))


def _get_prompt(surface: Surface, call: Call) -> Json:
    call.text("name")
    call.optional("arguments", dict, "an object")
    return get_prompt(surface.services, call.object_params())


def _complete(surface: Surface, call: Call) -> Json:
    for name in ("ref", "argument"):
        if call.optional(name, dict, "an object") is None:
            raise InvalidParams(f"{name} is required")
    return complete(surface.services, call.object_params())


OFFERS: Final[Mapping[str, Callable[[Surface, Call], Json]]] = {
    "resources/list": _list_resources,
    "resources/templates/list": _list_templates,
    "resources/read": _read_resource,
    "prompts/list": _list_prompts,
    "prompts/get": _get_prompt,
    "completion/complete": _complete,
}
