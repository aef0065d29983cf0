"""Synchronous code that can wait on an event loop without blocking the loop.

`run` executes a coroutine in a greenlet. When synchronous code that it calls must wait, `wait_for` switches back to the
loop, which runs other tasks and resumes the code when the result is there. So handlers stay plain functions on one
thread. Other tasks run only during a wait, so what was read before a wait may be out of date after it.
"""

import contextlib
import threading
import time
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

try:
    import greenlet
except ModuleNotFoundError:  # without the extra `http` nothing runs in a greenlet, and threads hold the locks
    greenlet = types.SimpleNamespace(greenlet=object, getcurrent=threading.current_thread)

if TYPE_CHECKING:
    import asyncio

P = ParamSpec("P")
T = TypeVar("T")

MAX_IDLE: Final = 64
"""How many idle greenlets a thread keeps for reuse, because creating one costs more than using it."""


class _Greenlet(greenlet.greenlet):  # type: ignore[misc]  # it has no types
    """Executes one coroutine after another. To await something, it switches to its parent, the loop, and passes it."""

    def __init__(self, loop: greenlet.greenlet) -> None:
        super().__init__(parent=loop)
        self.is_done = True
        """Whether the coroutine has ended."""
        self._waited, self._waited_at = 0.0, 0.0
        """How long the coroutine has waited for slow calls, and when this was last updated."""
        self.cancelled: BaseException | None = None
        """The cancellation that came while synchronous code waited; raised where the coroutine next awaits."""

    @property
    def waited_seconds(self) -> float:
        """How long the coroutine has waited for slow calls, less the time since then."""
        return max(0.0, self._waited - (time.monotonic() - self._waited_at))

    def add_wait(self, seconds: float) -> None:
        """Add a wait of this length, which has just ended."""
        now = time.monotonic()
        self._waited = max(0.0, self._waited - (now - seconds - self._waited_at)) + seconds
        self._waited_at = now

    def begin(self) -> None:
        """Reset the state for another coroutine."""
        self.is_done, self._waited, self.cancelled = False, 0.0, None

    def run(self) -> None:
        coroutine = self.parent.switch()
        while True:
            outcome: tuple[Any, BaseException | None]
            try:
                outcome = (self._execute(coroutine), None)
            except BaseException as problem:  # noqa: BLE001 - raised by `run`
                outcome = (None, problem)
            self.is_done = True
            coroutine = None
            coroutine = self.parent.switch(outcome)
            del outcome

    def _execute(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        resume: Callable[[Any], Any] = coroutine.send
        value: Any = None
        while True:
            try:
                awaited = resume(value)
                if self.cancelled is not None:
                    resume, value, self.cancelled = coroutine.throw, self.cancelled, None
                    continue
            except StopIteration as end:
                if self.cancelled is not None:
                    raise self.cancelled from None
                return end.value
            try:
                resume, value = coroutine.send, self.parent.switch(awaited)
            except BaseException as problem:  # noqa: BLE001 - raised where the coroutine awaits
                resume, value = coroutine.throw, problem


class _Idle(threading.local):
    """The idle greenlets of a thread."""

    def __init__(self) -> None:
        self.greenlets: list[_Greenlet] = []


_idle: Final = _Idle()


async def run(function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Await a call of a coroutine function; synchronous code that it calls may use `wait_for`.

    Cancelling the task does not interrupt such a wait: the cancellation is raised where the coroutine next awaits.
    """
    result: T = await _run(function(*args, **kwargs))
    return result


@types.coroutine
def _run(coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    idle, loop = _idle.greenlets, greenlet.getcurrent()
    if idle:
        current = idle.pop()
        current.parent = loop
    else:
        current = _Greenlet(loop)
        current.switch()
    current.gr_context = loop.gr_context
    current.begin()
    awaited = current.switch(coroutine)
    while not current.is_done:
        try:
            value = yield awaited
        except BaseException as problem:  # noqa: BLE001 - raised within the coroutine
            awaited = current.throw(problem)
        else:
            awaited = current.switch(value)
    if len(idle) < MAX_IDLE:
        idle.append(current)
    result, raised = awaited
    if raised is not None:
        raise raised
    return result


def is_running() -> bool:
    """Whether the caller is executed by `run`, and may use `wait_for`."""
    return isinstance(greenlet.getcurrent(), _Greenlet)


def wait_for(future: "asyncio.Future[None]") -> None:
    """Wait until a future is done, while the loop runs other tasks. Raises `RuntimeError` outside of `run`."""
    import asyncio  # noqa: PLC0415 - a server on standard input and output has no loop

    current = _current()
    while not future.done():
        try:
            for awaited in asyncio.shield(future).__await__():
                current.parent.switch(awaited)
        except asyncio.CancelledError as problem:
            current.cancelled = problem


def resolve(future: "asyncio.Future[None]") -> None:
    """Make `wait_for` return, unless the future is done already."""
    if not future.done():
        future.set_result(None)


def add_wait(seconds: float) -> None:
    """Count a wait of the caller for a slow call, which has just ended."""
    _current().add_wait(seconds)


def waited_seconds() -> float:
    """The sum of these waits, less the time in between: a request that waits long for its run starts over."""
    return _current().waited_seconds


def _current() -> _Greenlet:
    current = greenlet.getcurrent()
    if not isinstance(current, _Greenlet):
        raise RuntimeError("only what greenlets.run executes can wait")  # noqa: TRY004 - not about a wrong type
    return current


class Busy(Exception):
    """A lock was not released in time."""


class Lock:
    """A reentrant lock between the greenlets of one thread, first come, first served.

    Outside of `run` a held lock raises `Busy` at once, because its holder could not run during a wait.
    """

    def __init__(self) -> None:
        self._holder: object = None
        self._depth = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._holder_waited = 0.0
        """How long the last holder waited for slow calls. The greenlets behind it waited for them, too."""

    @property
    def is_free(self) -> bool:
        return self._holder is None

    @contextlib.contextmanager
    def hold(self, seconds: float) -> Iterator[None]:
        """Hold the lock for a block. Raises `Busy` when it is not free within this time.

        The caller's earlier waits count, and so do the waits of the holder for slow calls meanwhile.
        """
        current = greenlet.getcurrent()
        if self._holder not in (None, current):
            self._wait(seconds)
        self._holder = current
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self._release()

    def _wait(self, seconds: float) -> None:
        if not is_running():
            raise Busy
        import asyncio  # noqa: PLC0415 - there is a loop only over HTTP

        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        started = loop.time()
        # Cancelling `waiter` would look like a cancelled task.
        timer = loop.call_later(seconds - waited_seconds(), resolve, waiter)
        self._waiting.append(waiter)
        wait_for(waiter)
        timer.cancel()
        if self._holder is not waiter:
            raise Busy
        add_wait(min(loop.time() - started, self._holder_waited))

    def _release(self) -> None:
        self._holder_waited = self._holder.waited_seconds if isinstance(self._holder, _Greenlet) else 0.0
        self._holder = None
        while self._waiting and self._holder is None:
            waiter = self._waiting.popleft()
            if not waiter.done():
                self._holder = waiter  # until the waiting greenlet is resumed
                waiter.set_result(None)
