"""JSON Schemas of results that several tools share; without anything of runs, so that listing the tools loads none."""

from collections.abc import Mapping
from typing import Final

from workflowlookup.language.values import Json

TEXTS: Final[Mapping[str, Json]] = {"type": "array", "items": {"type": "string"}}

VERDICT_SCHEMA: Final[Mapping[str, Json]] = {
    "type": "object",
    "properties": {
        "valid": {"type": "boolean"},
        "issues": {**TEXTS, "description": "What is wrong; empty when valid."},
        "suggestions": {**TEXTS, "description": "What to do about it."},
        "warnings": {**TEXTS, "description": "Remarks that do not make it invalid."},
    },
    "required": ["valid", "issues", "suggestions"],
}

GUIDANCE_SCHEMA: Final[Mapping[str, Json]] = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string", "description": "What to do now: role, advice and prompt in one text."},
        "modelHint": {"type": "string", "description": "The kind of model that suits the step."},
        "requiresConfirmation": {"type": "boolean", "description": "Ask the user before you continue."},
        "validationCriteria": {**TEXTS, "description": "What the output must meet."},
    },
    "required": ["prompt", "requiresConfirmation", "validationCriteria"],
}

STEP_SCHEMA: Final[Mapping[str, Json]] = {
    "type": ["object", "null"],
    "properties": {
        "id": {"type": "string", "description": "Add this id to completedSteps when the step is done."},
        "title": {"type": "string"},
        "prompt": {"type": "string"},
        "agentRole": {"type": "string"},
        "guidance": TEXTS,
        "askForFiles": {"type": "boolean"},
        "requireConfirmation": {"type": "boolean"},
        "runCondition": {"type": "object"},
        "loop": {
            "type": "object",
            "description": "Inside a loop: its id, the iteration, the item, the index, the total.",
        },
    },
    "required": ["id", "title", "prompt"],
}


# ── runs ────────────────────────────────────────────────────────────────────────────────────────────────────────────

STATES: Final = ["queued", "running", "waiting", "completed", "failed", "cancelled", "unknown"]
RESULT_PART: Final[Mapping[str, Json]] = {
    "type": "object",
    "description": "A part of the result as text, if the whole result is too long for an answer.",
    "properties": {
        "text": {"type": "string"},
        "from": {"type": "integer"},
        "to": {"type": "integer", "description": "Where the next part begins: send it as resultFrom."},
        "characters": {"type": "integer", "description": "How long the result is."},
        "kept": {
            "type": "integer",
            "description": "How many characters were stored, if the result was too long to store.",
        },
        "isJson": {"type": "boolean", "description": "Whether all parts together are JSON."},
        "resource": {"type": "string", "description": "The resource that has the result."},
    },
    "required": ["text", "from", "to", "characters"],
}

PROGRESS_SCHEMA: Final[Mapping[str, Json]] = {
    "type": "object",
    "properties": {
        "done": {"type": "number", "description": "Completed steps, or what the only call of the run counts."},
        "total": {"type": "number", "description": "As far as it is known."},
        "message": {"type": "string", "description": "What the server does now."},
    },
    "required": ["done"],
}

WORKFLOW_SCHEMA: Final[Mapping[str, Json]] = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "name": {"type": "string"},
        "version": {"type": "string"},
        "preconditions": {**TEXTS, "description": "What must be true before the first step."},
        "clarificationPrompts": {**TEXTS, "description": "Questions to ask the user first."},
        "metaGuidance": {**TEXTS, "description": "Advice that holds for every step."},
    },
    "required": ["id", "name", "version"],
}

_STEP: Final[Mapping[str, Json]] = {
    **STEP_SCHEMA,
    "description": "The step whose output the run waits for.",
    "properties": {
        **STEP_SCHEMA["properties"],
        "id": {"type": "string", "description": "Pass it to workflow_submit as stepId, with your output."},
    },
}
_GUIDANCE: Final[Mapping[str, Json]] = {
    **GUIDANCE_SCHEMA,
    "properties": {
        **GUIDANCE_SCHEMA["properties"],
        "requiresConfirmation": {
            "type": "boolean",
            "description": "A person must agree to the output once it is submitted; next will say how.",
        },
    },
}

RUN_PROPERTIES: Final[Mapping[str, Json]] = {
    "runId": {"type": "string"},
    "state": {"type": "string", "enum": STATES},
    "next": {"type": "string", "description": "What to do now, in one sentence."},
    "progress": PROGRESS_SCHEMA,
    "waitingFor": {
        "type": "string",
        "description": "output: of the step; context: variables that a loop needs, as missing says; confirmation: a "
        "person's word; call: of a tool or another system, by the server itself.",
    },
    "call": {
        "type": "object",
        "description": "What the server does now.",
        "properties": {
            "stepId": {"type": "string"},
            "title": {"type": "string"},
            "calls": {
                "type": "string",
                "description": "Which tool of which server, or which workflow of which system.",
            },
            "attempt": {"type": "integer"},
            "failure": {"type": "string", "description": "Why the previous attempt failed."},
        },
        "required": ["stepId", "title"],
    },
    "queue": {
        "type": "object",
        "description": "While the run is queued: its position, from 1, and the length of the queue.",
        "properties": {"position": {"type": "integer"}, "length": {"type": "integer"}},
        "required": ["position", "length"],
    },
    "result": {"description": "The result of the run: of its last call, or the output of its last step."},
    "resultPart": RESULT_PART,
    "stopped": {
        "type": "array",
        "description": "Calls that were running when the run ended, and whether they were stopped.",
        "items": {
            "type": "object",
            "properties": {
                "stepId": {"type": "string"},
                "stopped": {
                    "type": "boolean",
                    "description": "Whether it is known that nothing runs any more: its process was killed, or the "
                    "other system said so.",
                },
                "told": {"type": "string"},
            },
            "required": ["stepId", "stopped", "told"],
        },
    },
    "step": _STEP,
    "guidance": _GUIDANCE,
    "verdict": {**VERDICT_SCHEMA, "description": "Verdict on the last output."},
    "attempts": {"type": "integer", "description": "How many outputs of this step were refused."},
    "missing": {
        "type": "array",
        "items": {"type": "object"},
        "description": "Variables that the step needs or should have produced, each with an example to send.",
    },
    "confirmation": {
        "type": "object",
        "properties": {
            "stepId": {"type": "string"},
            "title": {"type": "string"},
            "question": {"type": "string", "description": "The question to the person, with the output quoted."},
            "answers": {
                "type": "object",
                "description": "The fields that the person fills in, each with its JSON Schema.",
            },
        },
        "required": ["stepId", "title", "question"],
    },
    "skipped": {"type": "array", "items": {"type": "object"}, "description": "Steps that were skipped, and why."},
    "error": {
        "type": "object",
        "properties": {
            "reason": {"type": "string"},
            "remedy": {"type": "string"},
            "timedOut": {"type": "boolean", "description": "True if the run exceeded its time limit."},
            "code": {"type": "string", "description": "This and the next three: what the other system reported."},
            "message": {"type": "string"},
            "detail": {},
            "output": {},
        },
        "required": ["reason", "remedy"],
    },
    "reason": {"type": "string", "description": "Why the run was cancelled, or why its end is unknown."},
    "warnings": TEXTS,
}

RUN_SCHEMA: Final[Mapping[str, Json]] = {
    "type": "object",
    "properties": RUN_PROPERTIES,
    "required": ["runId", "state", "next", "progress"],
}
