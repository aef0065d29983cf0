"""JSON Schemas of results that several tools share. Imports nothing of `runs`: `tools/list` must not load it."""

from collections.abc import Mapping
from typing import Final

from workflowlookup.language.values import Json

TEXTS: Final[Mapping[str, Json]] = {"type": "array", "items": {"type": "string"}}

VERDICT_SCHEMA: Final[Mapping[str, Json]] = {
    "type": "object",
    "properties": {
        "valid": {"type": "boolean"},
        "issues": {**TEXTS, "description": "What is wrong; empty when valid."},
        "suggestions": {**TEXTS, "description": "How to fix it."},
        "warnings": {**TEXTS, "description": "Remarks that leave it valid."},
        "proofs": {**TEXTS, "description": "What the server itself checked, a sentence each."},
    },
    "required": ["valid", "issues", "suggestions"],
}

GUIDANCE_SCHEMA: Final[Mapping[str, Json]] = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string", "description": "What to do now: role, advice and prompt in one."},
        "modelHint": {"type": "string", "description": "The kind of model that suits the step."},
        "requiresConfirmation": {"type": "boolean", "description": "Ask the user before you continue."},
        "validationCriteria": {**TEXTS, "description": "What the output must meet."},
        "proofs": {**TEXTS, "description": "What the server itself checks in a run before the output counts."},
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
        "tools": {"type": "string"},
        "requireConfirmation": {"type": "boolean"},
        "runCondition": {"type": "object"},
        "loop": {
            "type": "object",
            "description": "In a loop: its id, iteration, item, index and total.",
        },
    },
    "required": ["id", "title", "prompt"],
}


# ── runs ────────────────────────────────────────────────────────────────────────────────────────────────────────────

STATES: Final = ["queued", "running", "waiting", "completed", "failed", "cancelled", "unknown"]
RESULT_PART: Final[Mapping[str, Json]] = {
    "type": "object",
    "description": "A part of a result that is too long for an answer.",
    "properties": {
        "text": {"type": "string"},
        "from": {"type": "integer"},
        "to": {"type": "integer", "description": "Start of the next part: send it as resultFrom."},
        "characters": {"type": "integer", "description": "Length of the result."},
        "kept": {
            "type": "integer",
            "description": "Characters that were stored, if the result was too long to store.",
        },
        "isJson": {"type": "boolean", "description": "Whether the result is JSON."},
        "resource": {"type": "string", "description": "The resource with the result."},
    },
    "required": ["text", "from", "to", "characters"],
}

PROGRESS_SCHEMA: Final[Mapping[str, Json]] = {
    "type": "object",
    "properties": {
        "done": {"type": "number", "description": "Completed steps; in a run of one call, its own count."},
        "total": {"type": "number", "description": "If known."},
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
    "type": ["object", "null"],
    "description": "The step whose output the run waits for; guidance says what to do.",
    "properties": {
        "id": {"type": "string", "description": "Pass it to workflow_submit as stepId, with your output."},
        "title": {"type": "string"},
        "askForFiles": {"type": "boolean"},
        "loop": {"type": "object", "description": "In a loop: its id, iteration, index and total."},
    },
    "required": ["id", "title"],
}
_GUIDANCE: Final[Mapping[str, Json]] = {
    **GUIDANCE_SCHEMA,
    "properties": {
        **GUIDANCE_SCHEMA["properties"],
        "requiresConfirmation": {
            "type": "boolean",
            "description": "If true, a person must confirm the submitted output; next will say how.",
        },
    },
    "required": ["prompt", "validationCriteria"],
}

RUN_PROPERTIES: Final[Mapping[str, Json]] = {
    "runId": {"type": "string"},
    "state": {"type": "string", "enum": STATES},
    "next": {"type": "string", "description": "What to do now, in one sentence."},
    "progress": PROGRESS_SCHEMA,
    "waitingFor": {
        "type": "string",
        "description": "output: of the step; context: variables that a loop needs, see missing; confirmation: by a "
        "person; call: the server calls a tool or another system; proof: the server checks the project.",
    },
    "proving": {
        "type": "object",
        "description": "What the server checks now.",
        "properties": {
            "stepId": {"type": "string"},
            "title": {"type": "string"},
            "due": {**TEXTS, "description": "Proofs that are not taken yet."},
            "taken": {**TEXTS, "description": "Proofs that were taken."},
        },
        "required": ["stepId", "title"],
    },
    "proofs": {
        "type": "object",
        "description": "How much of the run is proven. waived: a person accepted an output without; unproved: could "
        "not be judged; skipped: switched off by a variable.",
        "properties": {
            **{name: {"type": "integer"} for name in ("taken", "passed", "failed", "waived", "unproved", "skipped")},
            "summary": {"type": "string", "description": "proved 7 of 8"},
        },
        "required": ["taken", "passed", "failed", "waived", "unproved", "summary"],
    },
    "call": {
        "type": "object",
        "description": "What the server does now.",
        "properties": {
            "stepId": {"type": "string"},
            "title": {"type": "string"},
            "calls": {
                "type": "string",
                "description": "The tool and its server, or the workflow and its system.",
            },
            "attempt": {"type": "integer"},
            "failure": {"type": "string", "description": "Why the previous attempt failed."},
        },
        "required": ["stepId", "title"],
    },
    "queue": {
        "type": "object",
        "description": "While queued: position, from 1, and length of the queue.",
        "properties": {"position": {"type": "integer"}, "length": {"type": "integer"}},
        "required": ["position", "length"],
    },
    "result": {"description": "Result of the last call, or output of the last step."},
    "resultPart": RESULT_PART,
    "stopped": {
        "type": "array",
        "description": "Calls that ran when the run ended, and whether they were stopped.",
        "items": {
            "type": "object",
            "properties": {
                "stepId": {"type": "string"},
                "stopped": {
                    "type": "boolean",
                    "description": "True if it has ended for certain: killed, or reported so by the other system.",
                },
                "told": {"type": "string"},
            },
            "required": ["stepId", "stopped", "told"],
        },
    },
    "step": _STEP,
    "guidance": _GUIDANCE,
    "verdict": {**VERDICT_SCHEMA, "description": "Verdict on the last output."},
    "attempts": {"type": "integer", "description": "Refused outputs of this step."},
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
                "description": "Fields for the person to fill in, with their JSON Schemas.",
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
            "code": {
                "type": "string",
                "description": "This to output: as the other system reported it.",
            },
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
