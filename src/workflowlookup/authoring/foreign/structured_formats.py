"""Formats that are data, not prose: goose recipes, spec-kit workflows, beads formulas."""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from workflowlookup.authoring.foreign.draft import (
    Draft,
    DraftStep,
    Note,
    NotImportable,
    Place,
    Source,
    Suggestion,
    SuggestionKind,
)
from workflowlookup.authoring.foreign.markdown_formats import read_body, stem, text_of, version_of
from workflowlookup.authoring.foreign.page import read_page
from workflowlookup.authoring.foreign.signals import proof_of
from workflowlookup.language.formats.syntax import SyntaxProblem, parse_json, parse_yaml
from workflowlookup.language.text import joined
from workflowlookup.language.values import Json

_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("bool", "boolean"), "boolean"),
    **dict.fromkeys(("int", "integer"), "integer"),
    "number": "number",
}


def _data(source: Source) -> dict[str, Any] | None:
    """The object in the main file; None for another kind of file. Raises `NotImportable`."""
    name = source.main.lower()
    try:
        if name.endswith(".toml"):
            return tomllib.loads(source.data.decode("utf-8-sig"))
        if name.endswith((".yaml", ".yml")):
            value = parse_yaml(source.data)
        elif name.endswith(".json"):
            value = parse_json(source.data)
        else:
            return None
    except (SyntaxProblem, tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as problem:
        if name.endswith(".json"):
            return None  # perhaps lines of JSON
        raise NotImportable(f"{source.main}: {str(problem).rstrip('.')}.") from problem
    return value if isinstance(value, dict) else None


def _objects(value: Json) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _object(value: Json) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _place(source: Source, key: str, value: str = "") -> Place:
    """The line where a key stands, with this value if one is given; else the first line."""
    wanted = re.compile(
        rf"[\s\[{{,-]*[\"']?{re.escape(key)}[\"']?\s*(?:[:=]\s*[\"']?{re.escape(value)}[\"']?\s*(?:[,}}#].*)?$|[:=\]])"
        if value
        else rf"[\s\[{{,]*[\"']?{re.escape(key)}\b[\"']?\s*[:=\]]"
    )
    lines = source.data.decode("utf-8", "replace").splitlines()
    number = next((number for number, line in enumerate(lines, 1) if wanted.match(line)), 1)
    return Place(source.main, number, number)


def _rest(data: Mapping[str, Json], known: Sequence[str]) -> dict[str, Json]:
    return {name: value for name, value in data.items() if name not in known}


def _parameters_schema(parameters: Mapping[str, Mapping[str, Json]]) -> dict[str, Json]:
    """The JSON Schema of inputs that a source declares, by name."""
    properties: dict[str, Json] = {}
    required: list[str] = []
    for name, declared in parameters.items():
        kind = text_of(declared.get("type") or declared.get("input_type"))
        schema: dict[str, Json] = {"type": _TYPES.get(kind, "string")}
        about = text_of(declared.get("description") or declared.get("prompt"))
        choices = declared.get("enum") or declared.get("options")
        if about:
            schema["description"] = joined(about)
        if isinstance(choices, list) and choices and all(isinstance(choice, str) for choice in choices):
            schema["enum"] = choices
        if isinstance(declared.get("pattern"), str):
            schema["pattern"] = declared["pattern"]
        if declared.get("default") is not None:
            schema["default"] = declared["default"]
        properties[name] = schema
        if declared.get("required") is True or declared.get("requirement") == "required":
            required.append(name)
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _inputs(parameters: Mapping[str, Mapping[str, Json]]) -> dict[str, Json]:
    return {"inputSchema": _parameters_schema(parameters)} if parameters else {}


def _named(declared: Json, key: str = "") -> dict[str, Mapping[str, Json]]:
    """Declared inputs by name, from an object or from a list of objects that have their name in `key`."""
    if isinstance(declared, dict):
        pairs = [(name, value if isinstance(value, dict) else {"default": value}) for name, value in declared.items()]
    else:
        pairs = [(text_of(item.get(key) or item.get("name")), item) for item in _objects(declared)]
    return {name: value for name, value in pairs if re.fullmatch(r"[^\W\d][\w.-]*", name)}


def _humanised(identifier: str) -> str:
    words = re.sub(r"[-_.]+", " ", identifier).strip()
    return words[:1].upper() + words[1:]


# ── goose ───────────────────────────────────────────────────────────────────────────────────────────────────────

_GOOSE_TEXT: Final = ("instructions", "prompt")


def is_goose_recipe(source: Source) -> bool:
    data = _data(source) or {}
    data = data["recipe"] if isinstance(data.get("recipe"), dict) else data
    return isinstance(data.get("title"), str) and any(isinstance(data.get(name), str) for name in _GOOSE_TEXT)


def read_goose_recipe(source: Source) -> Draft:
    """A recipe: its instructions and its prompt are one page, which is split as any other."""
    data = _data(source) or {}
    data = data["recipe"] if isinstance(data.get("recipe"), dict) else data
    text = "\n\n".join(data[name].strip() for name in _GOOSE_TEXT if isinstance(data.get(name), str))
    offset = min(_place(source, name).first for name in _GOOSE_TEXT if isinstance(data.get(name), str))
    draft = read_body(read_page(text.encode(), f"{source.main}, text from line {offset} on"), stem(source), ())
    parameters = _named(data.get("parameters"), "key")
    last = draft.steps[-1]
    fields = dict(last.fields)
    left_out = list(draft.left_out)
    suggestions: list[Suggestion] = []
    retry = _object(data.get("retry"))
    for check in _objects(retry.get("checks")):
        reading = proof_of(text_of(check.get("command")), _place(source, "checks"))
        if isinstance(reading, Note):
            left_out.append(reading)
        else:
            suggestions.append(reading)
    tries = retry.get("max_retries")
    if isinstance(tries, int) and not isinstance(tries, bool) and 0 < tries < 100:
        fields["maxAttempts"] = tries + 1
    schema = _object(data.get("response")).get("json_schema")
    if isinstance(schema, dict):
        message = "Answer with JSON in the form that the recipe asks for."
        fields["validationCriteria"] = [{"type": "schema", "schema": schema, "message": message}]
    if re.search(r"\{%.*?%\}", text):
        left_out.append(Note("Conditions and loops of the template, `{% … %}`, stay text", _place(source, "prompt")))
    left_out += [
        Note(f"`{name}` is for goose, and kept only in x-source", _place(source, name))
        for name in ("extensions", "sub_recipes", "settings", "activities")
        if data.get(name)
    ]
    return msgspec.structs.replace(
        draft,
        title=data["title"].strip(),
        description=joined(text_of(data.get("description"))) or draft.description,
        steps=[
            *draft.steps[:-1],
            msgspec.structs.replace(last, fields=fields, suggestions=[*last.suggestions, *suggestions]),
        ],
        fields={**draft.fields, **version_of(data.get("version")), **_inputs(parameters)},
        parameters=frozenset(parameters),
        header=_rest(data, ("title", "description", *_GOOSE_TEXT, "parameters")),
        guessed=[note for note in draft.guessed if "front matter" not in note.text],
        left_out=left_out,
    )


# ── spec-kit ────────────────────────────────────────────────────────────────────────────────────────────────────

_BRANCHES: Final = ("then", "else", "steps", "body", "default")
_SIMPLE: Final = re.compile(
    r"\{\{\s*inputs\.(?P<name>\w+)\s*(?:(?P<operator>==|!=)\s*(?P<value>true|false|'[^'}]*'|\"[^\"}]*\"|\d+)\s*)?\}\}"
)


def is_spec_kit_workflow(source: Source) -> bool:
    data = _data(source) or {}
    return isinstance(data.get("workflow"), dict) and bool(_objects(data.get("steps")))


def read_spec_kit_workflow(source: Source) -> Draft:
    data = _data(source) or {}
    about: dict[str, Any] = data["workflow"]
    parameters = _named(data.get("inputs"))
    reader = _SpecKit(source)
    reader.read(data["steps"], ())
    if not reader.steps:
        raise NotImportable(f"{source.main}: the workflow has gates only, so there is nothing to do.")
    return Draft(
        name=text_of(about.get("id")) or stem(source),
        title=text_of(about.get("name")),
        description=joined(text_of(about.get("description"))),
        steps=reader.steps,
        split=f"{len(reader.steps)} steps of the workflow",
        fields={**version_of(about.get("version")), **_inputs(parameters)},
        parameters=frozenset(parameters),
        header=_rest(data, ("steps", "inputs")),
        left_out=reader.left_out,
    )


class _SpecKit:
    """The steps in order; a gate becomes the confirmation of the step before it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.steps: list[DraftStep] = []
        self.left_out: list[Note] = []

    def read(self, steps: Json, conditions: tuple[str, ...]) -> None:
        for step in _objects(steps):
            identifier = text_of(step.get("id")) or f"step-{len(self.steps) + 1}"
            place = _place(self._source, "id", identifier)
            kind = text_of(step.get("type")) or ("prompt" if "prompt" in step else "command")
            if kind == "gate" and self.steps:
                self._confirm(text_of(step.get("message")), place)
            elif any(isinstance(step.get(branch), (list, dict)) for branch in (*_BRANCHES, "cases")):
                self._branch(step, kind, conditions, place)
            else:
                self._step(step, identifier, kind, conditions, place)

    def _confirm(self, question: str, place: Place) -> None:
        asked: Json = {"question": _inputs_as_variables(question)} if question else True
        self.steps[-1] = msgspec.structs.replace(
            self.steps[-1], fields={**self.steps[-1].fields, "requireConfirmation": asked}
        )
        self.left_out.append(Note("The options of the gate: a person says yes or no to the step before it", place))

    def _branch(self, step: Mapping[str, Any], kind: str, conditions: tuple[str, ...], place: Place) -> None:
        expression = text_of(step.get("condition") or step.get("expression") or step.get("items"))
        if kind not in ("if", "switch"):
            self.left_out.append(Note(f"The block '{kind}' is not repeated or run in parallel", place))
        for branch in _BRANCHES:
            if isinstance(step.get(branch), list):
                words = expression if branch != "else" else f"not {expression}"
                self.read(step[branch], (*conditions, words) if words and branch != "default" else conditions)
        for case, inner in _object(step.get("cases")).items():
            self.read(inner, (*conditions, f"{expression} is {case}"))

    def _step(
        self, step: Mapping[str, Any], identifier: str, kind: str, conditions: tuple[str, ...], place: Place
    ) -> None:
        lines: list[str] = []
        suggestions: list[Suggestion] = []
        inputs = _object(step.get("input"))
        if kind == "prompt":
            lines.append(text_of(step.get("prompt")))
        elif kind == "shell":
            command = text_of(step.get("run"))
            lines.append(f"Run this command, and report what it says:\n\n```sh\n{command}\n```")
            reading = proof_of(command, place)
            if isinstance(reading, Note):
                self.left_out.append(reading)
            else:
                suggestions.append(reading)
        else:
            command = text_of(step.get("command")) or kind
            lines.append(f"Run the command `/{command.lstrip('/')}`.")
        lines += [f"{_humanised(str(name))}: {value}" for name, value in inputs.items()]
        fields: dict[str, Json] = {}
        simple = [_SIMPLE.fullmatch(condition) for condition in conditions]
        if conditions and all(simple):
            parts = [_condition(match) for match in simple if match]
            fields["runCondition"] = parts[0] if len(parts) == 1 else {"and": parts}
        elif conditions:
            lines.insert(0, f"Only if this holds, else say that it does not: {'; and '.join(conditions)}")
            self.left_out.append(Note("The condition is not computed: it stands in the text of the step", place))
        self.steps.append(
            DraftStep(
                title=text_of(step.get("name")) or _humanised(identifier),
                text=_inputs_as_variables("\n\n".join(filter(None, lines))),
                place=place,
                identifier=identifier,
                fields=fields,
                suggestions=suggestions,
            )
        )
        extra = [f"`{name}`" for name in step if name in ("timeout", "continue_on_error", "output", "model", "options")]
        if extra:
            self.left_out.append(Note(f"{', '.join(extra)} of the step", place))


def _inputs_as_variables(text: str) -> str:
    return re.sub(r"\{\{\s*inputs\.([A-Za-z_][\w-]*)\s*\}\}", r"{{\1}}", text)


def _condition(match: re.Match[str]) -> Json:
    if match["operator"] is None:
        return {"var": match["name"], "equals": True}
    text = match["value"]
    value: Json = {"true": True, "false": False}.get(text, int(text) if text.isdigit() else text[1:-1])
    return {"var": match["name"], "equals" if match["operator"] == "==" else "not_equals": value}


# ── beads ───────────────────────────────────────────────────────────────────────────────────────────────────────

_BEADS_STEPS: Final = ("steps", "template", "legs")


def is_beads_formula(source: Source) -> bool:
    return ".formula." in source.main or "formula" in (_data(source) or {})


def read_beads_formula(source: Source) -> Draft:
    data = _data(source) or {}
    field = next((field for field in _BEADS_STEPS if _objects(data.get(field))), "")
    if not field:
        kind = text_of(data.get("type")) or "unknown"
        raise NotImportable(f"{source.main}: the formula, of type '{kind}', has no steps.")
    parameters = _named(data.get("vars") or data.get("inputs"))
    notes: list[Note] = []
    if field == "legs":
        notes.append(Note("The legs ran in parallel; here they are steps, one after the other", _place(source, "legs")))
    items = _in_order(_with_children(data[field]))
    if [item.get("id") for item in items] != [item.get("id") for item in _with_children(data[field])]:
        notes.append(Note("The steps were put in the order that `needs` asks for"))
    known = (*_BEADS_STEPS, "formula", "description", "version", "vars")
    notes += [
        Note(f"`{name}` is for beads, and kept only in x-source", _place(source, name))
        for name in _rest(data, (*known, "type"))
    ]
    steps = [_beads_step(source, item, notes) for item in items]
    return Draft(
        name=text_of(data.get("formula")) or stem(source),
        description=joined(text_of(data.get("description"))),
        steps=steps,
        split=f"{len(steps)} steps of the formula",
        fields=_inputs(parameters),
        parameters=frozenset(parameters),
        header=_rest(data, ("vars", *_BEADS_STEPS)),
        left_out=notes,
    )


def _with_children(items: Json) -> list[dict[str, Any]]:
    """The steps, each followed by its children."""
    found: list[dict[str, Any]] = []
    for item in _objects(items):
        found += [item, *_with_children(item.get("children"))]
    return found


def _in_order(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps so that each follows those that it needs, and otherwise as they stand; a circle stays as it stands."""
    waiting, ordered, done = list(items), list[dict[str, Any]](), set[str]()
    names = {text_of(item.get("id")) for item in items}
    while waiting:
        ready = next((item for item in waiting if {*_needs(item)} & names <= done), waiting[0])
        waiting.remove(ready)
        ordered.append(ready)
        done.add(text_of(ready.get("id")))
    return ordered


def _needs(item: Mapping[str, Any]) -> Iterator[str]:
    for field in ("needs", "depends_on"):
        for name in item.get(field) or () if isinstance(item.get(field), list) else ():
            yield text_of(name)


def _beads_step(source: Source, item: Mapping[str, Any], notes: list[Note]) -> DraftStep:
    identifier = text_of(item.get("id"))
    place = _place(source, "id", identifier)
    title = text_of(item.get("title")) or _humanised(identifier) or "Step"
    fields: dict[str, Json] = {}
    gate = item.get("gate")
    if text_of(item.get("type")) == "human" or (isinstance(gate, dict) and gate.get("type") == "human"):
        fields["requireConfirmation"] = True
    elif gate:
        notes.append(Note("The gate waits for something outside of the workflow", place))
    suggestions: list[Suggestion] = []
    acceptance = joined(text_of(item.get("acceptance")))
    if acceptance:
        rule = {"type": "contains", "value": acceptance[:80].rstrip(), "message": ""}
        at = _place(source, "acceptance", acceptance)
        suggestions.append(Suggestion(kind=SuggestionKind.CRITERION, value=rule, place=at, quote=acceptance))
    known = ("id", "title", "description", "needs", "depends_on", "type", "gate", "acceptance", "children", "name")
    extra = [f"`{name}`" for name in _rest(item, known)]
    if extra:
        notes.append(Note(f"{', '.join(extra)} of the step", place))
    text = text_of(item.get("description") or item.get("focus")).strip("\n")
    return DraftStep(
        title=title,
        text="\n\n".join(filter(None, [text, f"Acceptance: {acceptance}" if acceptance else ""])),
        place=place,
        identifier=identifier,
        fields=fields,
        suggestions=suggestions,
    )
