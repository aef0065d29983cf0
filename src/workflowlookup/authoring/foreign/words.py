"""What the words of a heading say about its section: a procedure, a verification, an example, a topic.

Each question is one pattern. It is a guess, so the report of an import says which lines it was made from.
"""

import re
from typing import Final


def _words(*parts: str) -> re.Pattern[str]:
    return re.compile("|".join(parts), re.IGNORECASE)


_PROCEDURE: Final = _words(
    r"\b(?:work ?flow|process|procedure|steps?|instructions?|method(?:ology)?|how (?:to|it works)|protocol|pipeline)\b",
    r"\b(?:play ?book|routine|algorithm|phases?|stages|execution|your task|what to do)\b",
    r"\b(?:implementation|approach|sequence|runbook|flow|the loop|loop|checklist|lifecycle|walkthrough|plan)\b",
    r"流程|步骤|步驟|工作流|手順|절차|ablauf|vorgehen|proceso|pasos|étapes|processo|passos|порядок|шаги",
)
_VERIFICATION: Final = _words(
    r"\b(?:verif(?:y|ication|ying)|validat(?:e|ion|ing)|check ?lists?|acceptance|definition of done|done when)\b",
    r"\b(?:success|completion|exit|quality|pass(?:ing)?) (?:criteria|checks?|gates?)\b|\bself-?review\b",
    r"\bbefore (?:you |we )?(?:finish|finali[sz]e|commit|submit|complet|deliver|merg|claim|respond|ship)\w*",
    r"\b(?:final|sanity|post-?\w+|completion|pre-?flight|quality) checks?\b|检查清单|验证|検証|검증",
)
_EXAMPLE: Final = _words(
    r"\b(?:examples?|sample|scenarios?|demo|templates?|anti-?patterns?|use cases?|(?:output|report|response) format)\b",
    r"\b(?:red flags|rationali[sz]ations?|common (?:mistakes|errors|issues|failures))\b|示例|例子",
)
_TOPIC: Final = _words(
    r"\b(?:principles?|rules?|guidelines?|best practices?|mistakes?|pitfalls?|tips?|concepts?|patterns?|reference)\b",
    r"\b(?:trouble-?shooting|faq|features?|options?|common|don'?ts?|cases?|questions?|resources?|related|glossary)\b",
    r"\b(?:requirements?|constraints?|notes?|limitations?|capabilit(?:y|ies)|components?|categor(?:y|ies)|types?)\b",
    r"\b(?:triggers?|when to use|modes?|strateg(?:y|ies)|techniques?|commands?|metrics?|problems?|issues?|errors?)\b",
    r"\b(?:domains?|agents?|tools?|outputs?|deliverables?|architecture|integrations?|areas?|dimensions?|lenses)\b",
    r"\b(?:getting started|quick ?start|install(?:ation|ing)|set-?up|prerequisites?|usage|workflows|procedures)\b",
    r"\bnext steps\b",
)
_GENERIC: Final = _words(
    r"^(?:overview|instructions?|introduction|purpose|skill|workflow|description|steps?|goal|role|when to use.*)$"
)

_VERBS: Final = frozenset(
    """
    accept access acquire act activate adapt add address adjust advance agree align allocate analyse analyze announce
    answer append apply approve archive ask assemble assess assign attach audit authenticate author await backup batch
    begin benchmark bind bootstrap brainstorm branch break bring browse build bump bundle calculate call capture cast
    categorize challenge change characterize chart check choose clarify classify clean clear click clone close collate
    collect combine come commit communicate compare compile complete compose compress compute conduct configure
    confirm connect consider consolidate construct consult continue convert copy correct correlate count craft create
    cross-check cut debug decide declare decompose deduplicate deepen default define delegate delete deliver
    demonstrate deploy derive describe design detect determine develop diagnose diff disable discover discuss dispatch
    display distill distribute do document double-check download draft draw drive dry-run edit elicit embed emit
    enable enforce engage enrich ensure enter enumerate escalate establish estimate evaluate evolve examine execute
    exit expand experiment explain explore export expose extend extract fan fetch file fill filter finalise finalize
    find finish fix flag focus fold follow forecast form format formulate frame gate gather generate get give go grade
    greet ground group grow guide hand handle harden highlight hold hunt identify ignore imagine implement import
    improve incorporate index infer inform ingest initialise initialize inject inspect install integrate interact
    interpret interview introduce inventory invest investigate invoke isolate issue iterate join judge keep kick know
    label land launch lay learn let limit link lint list listen load localize locate lock log look loop make manage
    map mark measure merge migrate minimize mock model monitor move name narrow navigate negotiate normalize note
    notify observe obtain offer open optimise optimize orchestrate order organise organize orient outline output own
    package parse pass patch pause perform persist pick pin pitch place plan plot poll port post prefer prepare
    present preserve preview prime print prioritise prioritize probe process produce profile promote prompt propose
    protect prototype prove provide provision prune publish pull push put qualify quantify query queue quote raise
    rank rate re-run read rebase recall receive recognize recommend reconcile reconnect record recover reduce refactor
    refine reflect refresh register reject relate release reload remember remove rename render repair repeat replace
    replay reply report reproduce request require rerun reset resolve respond restart restate restore resume retrieve
    retry return reuse revert review revise rewrite roll route run sanitize save scaffold scale scan schedule scope
    score scrape screen script seal search secure seed segment select send separate sequence serve set settle setup
    shape share ship show shut sign simplify simulate sketch skip slice smoke solve sort source spawn specify split
    stage standardize start state stop store stream stress-test structure study style submit subscribe suggest
    summarise summarize supply survey swap switch sync synthesise synthesize tag tailor take target teach tell
    terminate test think tidy tie tighten toggle touch trace track train transcribe transform translate triage trigger
    trim try tune turn type uncover understand undo unify update upgrade upload use validate vary verify version view
    visit visualize wait walk warn watch weigh wire work wrap write you your
    """.split()  # noqa: SIM905 - a list of strings would be a page long
)
_FIRST_WORD: Final = re.compile(r"[^A-Za-z]*(?P<word>[A-Za-z][A-Za-z'-]*)")


def is_procedure(heading: str) -> bool:
    """Whether numbered parts below the heading are probably steps."""
    return _PROCEDURE.search(heading) is not None


def is_verification(heading: str) -> bool:
    """Whether the section says how to see that the work is right."""
    return _VERIFICATION.search(heading) is not None


def is_example(heading: str) -> bool:
    """Whether the section shows something that is not to be done."""
    return _EXAMPLE.search(heading) is not None


def is_topic(heading: str) -> bool:
    """Whether numbered parts below the heading are probably things to know, not steps."""
    return _TOPIC.search(heading) is not None and _STRONG_PROCEDURE.search(heading) is None


_STRONG_PROCEDURE: Final = _words(r"\b(?:workflow|process|procedure|(?<!next )steps|instructions)\s*$")


def is_generic_title(heading: str) -> bool:
    """Whether the heading is no name for the page."""
    return _GENERIC.search(heading.strip()) is not None


def starts_with_verb(text: str) -> bool:
    """Whether the text begins with what to do, such as "Read" or "Gathering"."""
    match = _FIRST_WORD.match(text)
    if match is None:
        return False
    word = match["word"].lower()
    return word in _VERBS or (len(word) > 5 and word.endswith("ing"))
