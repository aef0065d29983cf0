"""What a notice says, in the forms of webhooks, e-mail and feeds. Outputs are in it only if the recipient asks."""

from typing import Final
from urllib.parse import quote

import msgspec

from workflowlookup.language.text import clip_line, how_often, printable
from workflowlookup.language.values import Json
from workflowlookup.runs.triage import Triage
from workflowlookup.store.journal import RunSummary

MAX_OUTPUT: Final = 2_000
HEADLINES: Final = {
    Triage.PERSON: "A run needs a person",
    Triage.FAILED: "A run failed",
    Triage.STUCK: "A run is stuck",
}


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a run that people are told about. The texts come from agents and authors."""

    id: str
    """The same for every attempt to send it, so that a receiver can drop repeats."""
    kind: Triage
    run_id: str
    workflow_id: str
    name: str
    about: str
    step: str
    why: str
    time: int
    link: str = ""
    """The page of the run; empty if the server does not know its URL."""
    output: str = ""

    @property
    def headline(self) -> str:
        return f"{HEADLINES[self.kind]}: {self.name}"

    @property
    def lines(self) -> list[str]:
        """What happened, a fact a line."""
        facts = (("About", self.about), ("Step", self.step), ("Why", self.why), ("Run", self.run_id))
        return [f"{name}: {text}" for name, text in facts if text]


def notice_of(run: RunSummary, kind: Triage, *, public_url: str = "", output: str = "") -> Notice:
    """The notice for a run that is in a group of the triage."""
    attempts = run.attempts or 0
    why = f"{how_often(attempts)} refused" if attempts else ""
    if kind is Triage.STUCK and not why:
        why = "no progress"
    moment = run.updated if kind is Triage.FAILED else run.waiting_since
    return Notice(
        id=f"{run.id}:{kind}:{moment}",
        kind=kind,
        run_id=run.id,
        workflow_id=run.workflow_id,
        name=clip_line(run.name or run.workflow_id, 120),
        about=clip_line(run.subject or "", 200),
        step=clip_line(run.title or run.step, 200),
        why=why,
        time=moment,
        link=f"{public_url.rstrip('/')}/runs/{quote(run.id, safe='')}" if public_url else "",
        output=printable(output[:MAX_OUTPUT]),
    )


def body_of(notice: Notice, form: str) -> bytes:
    """The body of a webhook."""
    return msgspec.json.encode(FORMS[form](notice))


def _as_json(notice: Notice) -> dict[str, Json]:
    return {
        "id": notice.id,
        "event": str(notice.kind),
        "headline": notice.headline,
        "run": notice.run_id,
        "workflow": notice.workflow_id,
        "name": notice.name,
        "about": notice.about,
        "step": notice.step,
        "why": notice.why,
        "time": notice.time,
        **({"link": notice.link} if notice.link else {}),
        **({"output": notice.output} if notice.output else {}),
    }


def _as_slack(notice: Notice) -> dict[str, Json]:
    """A message of Slack. `<`, `>` and `&` mean something there, and so mentions are escaped with them."""
    title = f"<{notice.link}|{_slack(notice.headline)}>" if notice.link else _slack(notice.headline)
    text = "\n".join([f"*{title}*", *map(_slack, notice.lines)])
    blocks: list[Json] = [{"type": "section", "text": {"type": "mrkdwn", "text": text[:2_900]}}]
    if notice.output:
        blocks.append({"type": "section", "text": {"type": "plain_text", "text": notice.output, "emoji": False}})
    return {"text": _slack(notice.headline), "blocks": blocks, "unfurl_links": False}


def _slack(text: str) -> str:
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"{character}\N{WORD JOINER}" if character in "*_~`" else character for character in escaped)


def _as_teams(notice: Notice) -> dict[str, Json]:
    """An adaptive card, as the workflows of Teams take it."""
    body: list[Json] = [
        {"type": "TextBlock", "text": _plain(notice.headline), "weight": "Bolder", "wrap": True},
        *({"type": "TextBlock", "text": _plain(line), "wrap": True, "spacing": "Small"} for line in notice.lines),
    ]
    if notice.output:
        body.append({"type": "TextBlock", "text": _plain(notice.output), "wrap": True, "fontType": "Monospace"})
    link: Json = [{"type": "Action.OpenUrl", "title": "Open the run", "url": notice.link}] if notice.link else []
    card: Json = {"type": "AdaptiveCard", "version": "1.4", "body": body, "actions": link}
    attachment: Json = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [attachment]}


def _plain(text: str) -> str:
    """Text without the meaning that Markdown gives to its characters."""
    return "".join(f"\\{character}" if character in r"\*_[]()`#!<>" else character for character in text)


FORMS: Final = {"json": _as_json, "slack": _as_slack, "teams": _as_teams}


def text_of(notice: Notice) -> str:
    """The text of an e-mail."""
    parts = ["\n".join(notice.lines), notice.link, notice.output]
    return "\n\n".join(part for part in parts if part) + "\n"
