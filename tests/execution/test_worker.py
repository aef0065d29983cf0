"""The worker's thread: work runs there in the context of its caller."""

import contextvars
import threading

from workflowlookup.execution.service import Worker

WHO = contextvars.ContextVar("who", default="nobody")


class Host:
    """Services of the loop that do nothing."""

    async def aclose(self) -> None:
        """Nothing is open."""


def test_work_keeps_the_context_of_its_caller() -> None:
    """Also where several asked before the loop took anything up."""
    is_ready = threading.Event()
    heard, is_heard = [], threading.Event()

    def make() -> Host:
        is_ready.wait()
        return Host()

    async def tell(_: object) -> None:
        heard.append(WHO.get())
        if len(heard) == 3:
            is_heard.set()

    worker = Worker(make)

    def post_as(who: str) -> None:
        WHO.set(who)
        worker.post(tell)

    for who in ("a", "b", "c"):
        contextvars.copy_context().run(post_as, who)
    is_ready.set()

    assert is_heard.wait(20)
    assert heard == ["a", "b", "c"]
    worker.close(5)
