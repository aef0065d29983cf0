"""Documents as hypothesis makes them: most of them invalid, with what Markdown could take for something else."""

from hypothesis import strategies as st

from support.json_values import Json, JsonObject

HAZARDS = (
    *("# a", "## a", "### a", "### Criteria", "#### Proof", "##### Criteria", "a\n===", "a\n---", "---", "***", "{#a}"),
    *("```\na", "```\na\n```", "```step\na: 1\n```", "~~~~\n```\n~~~~", "`", "<!-- a", "<!-- a -->", "<div>", "<pre>"),
    *(
        "- a\n  ## b",
        "> ## a",
        "1. a",
        "\ta",
        "    a",
        " a",
        "a ",
        "a  \nb",
        "\n\na",
        "a\n\n",
        "a\r\nb",
        "a\rb",
        " ",
        "",
    ),
    *("a: b", "at least 1 characters", "/", "a/", "/i: b", '"', "\\", "--> a", "a #", "#", "\x00", "\ufeff", "\u2028"),
    *("{{a}}", "Criteria", "proof", "step", "-", "- [ ] a", "a\n\n\nb", "\u00a0a", "[a]: b", "|a|\n|-|"),
)
"""What could be taken for something else in Markdown."""
TEXT = st.text(max_size=20) | st.sampled_from(HAZARDS) | st.lists(st.sampled_from(HAZARDS), max_size=4).map("\n".join)
PLAIN = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT
CHANCE = st.integers(0, 3).map(lambda number: number == 0)


@st.composite
def values(draw: st.DrawFn, depth: int = 2) -> Json:
    """What a field holds that nobody checks: of any shape."""
    if depth and draw(CHANCE):
        inner = values(depth - 1)
        return draw(st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
    return draw(PLAIN)


@st.composite
def rules(draw: st.DrawFn, depth: int = 2) -> Json:
    if depth and draw(CHANCE):
        return draw(
            st.sampled_from(
                [{"not": draw(rules(depth - 1))}, {"or": draw(st.lists(rules(depth - 1), max_size=2))}, draw(values())]
            )
        )
    limits = st.dictionaries(st.sampled_from(["min", "max"]), st.integers(0, 10**10) | st.booleans())
    fields: Json = {
        "contains": {"value": draw(TEXT)},
        "regex": {"pattern": draw(TEXT), **draw(st.sampled_from([{}, {"flags": ""}, {"flags": "im"}, {"flags": "x"}]))},
        "length": draw(limits),
    }
    kind = draw(st.sampled_from(list(fields)))
    return {"type": kind, **fields[kind], "message": draw(TEXT)}


@st.composite
def proofs(draw: st.DrawFn) -> Json:
    fields = {
        **dict.fromkeys(("name", "message", "use", "path", "url", "branch"), TEXT),
        **{name: st.lists(TEXT, max_size=3) for name in ("run", "unchanged", "changed")},
        **{name: st.booleans() for name in ("exists", "clean")},
        "since": st.sampled_from(["step", "run"]),
        "exitCode": st.sampled_from([0, "nonzero"]),
        "status": st.integers(100, 599),
    }
    chosen = draw(st.lists(st.sampled_from(list(fields)), max_size=4, unique=True))
    return {
        "kind": draw(st.sampled_from(["command", "file", "git", "http"])),
        **{name: draw(fields[name]) for name in chosen},
    }


@st.composite
def steps(draw: st.DrawFn, depth: int = 6) -> JsonObject:
    made: JsonObject = {"id": draw(st.just("one") | PLAIN), "title": draw(TEXT | PLAIN)}
    contents = {
        "prompt": TEXT | values(),
        "validationCriteria": st.lists(rules(), max_size=3) | values(),
        "proof": st.lists(proofs(), max_size=3) | values(),
        "x-mine": values(),
    }
    for name in draw(st.lists(st.sampled_from(list(contents)), unique=True)):
        made[name] = draw(contents[name])
    if depth and draw(CHANCE):
        made |= {"type": "loop", "loop": {"type": "for"}}
        made["body"] = draw(st.lists(steps(depth - 1), max_size=2) | values())
    return made


@st.composite
def documents(draw: st.DrawFn) -> JsonObject:
    """Documents, most of them invalid, with all that JSON can hold."""
    contents = {"id": TEXT, "name": PLAIN, "metaGuidance": st.lists(TEXT, max_size=2) | values()}
    chosen = draw(st.lists(st.sampled_from(list(contents)), unique=True))
    made = {name: draw(contents[name]) for name in chosen}
    return {**made, "steps": draw(st.lists(steps(), min_size=1, max_size=3))}
