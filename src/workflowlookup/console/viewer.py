"""Who looks, and what they may see and do."""

from workflowlookup.access import Access

FROM_HERE = "console"
"""What the journal says of how somebody came."""


class Viewer(Access, frozen=True, kw_only=True):
    """A person in front of the console; or a program that asks for its pages."""

    kind: str = "person"
    session: str = ""
    """What tells one visit from another; forms are bound to it."""
    sign_out: str = ""
    """Where a form is sent that ends the visit; empty where nobody signed in."""
