"""Synchronous code that can wait on an event loop without blocking the loop.

`run` executes a coroutine in a greenlet. Where synchronous code that it calls must wait, `wait_for` switches back to
the loop, which runs other tasks and resumes the code when the result is there. So handlers stay plain functions
on one thread: between two waits nothing else runs, and only what was read before a wait may have changed after it.
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
except ModuleNotFoundError:  # without the extra `http` nothing runs in a greenlet, and a thread holds the locks
    greenlet = types.SimpleNamespace(greenlet=object, getcurrent=threading.current_thread)

if TYPE_CHECKING:
    import asyncio

P = ParamSpec("P")
T = TypeVar("T")

MAX_IDLE: Final = 64
"""How many idle greenlets a thread keeps for reuse: creating one costs more than using it."""


class _Greenlet(greenlet.greenlet):  # type: ignore[misc]  # it has no types
    """Executes one coroutine after the other. To await something, it switches to its parent, the loop, with it."""

    def __init__(self, loop: greenlet.greenlet) -> None:
        super().__init__(parent=loop)
        self.is_done = True
        """Whether the coroutine has ended."""
        self._lost, self._lost_at = 0.0, 0.0
        """How long the coroutine has waited for slow calls, and when that was last so."""
        self.cancelled: BaseException | None = None
        """The cancellation that came while synchronous code waited; raised where the coroutine next awaits."""

    @property
    def seconds_lost(self) -> float:
        """How long the coroutine has waited for slow calls, less the time that it has done something else since."""
        return max(0.0, self._lost - (time.monotonic() - self._lost_at))

    def lose(self, seconds: float) -> None:
        """The last so many seconds are lost."""
        now = time.monotonic()
        self._lost = max(0.0, self._lost - (now - seconds - self._lost_at)) + seconds
        self._lost_at = now

    def begin(self) -> None:
        """Another coroutine is executed from now on."""
        self.is_done, self._lost, self.cancelled = False, 0.0, None

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
    """The greenlets of a thread that have nothing to do."""

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


def lose(seconds: float) -> None:
    """Add the time that the caller has just waited for a slow call."""
    _current().lose(seconds)


def seconds_lost() -> float:
    """The sum of these times, less the time in between: a request that waits for its run for long gets it back."""
    return _current().seconds_lost


def _current() -> _Greenlet:
    current = greenlet.getcurrent()
    if not isinstance(current, _Greenlet):
        raise RuntimeError("only what greenlets.run executes can wait")  # noqa: TRY004 - it is about when, not what
    return current


class Busy(Exception):
    """A lock was not free in time."""


class Lock:
    """A reentrant lock between the greenlets of one thread, in the order of requests.

    Outside of `run` a lock that is held raises `Busy` at once: its holder could not run during a wait.
    """

    def __init__(self) -> None:
        self._holder: object = None
        self._depth = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._seconds_lost = 0.0
        """By the last holder: whoever waited for it has lost them, too."""

    @property
    def is_free(self) -> bool:
        return self._holder is None

    @contextlib.contextmanager
    def held(self, seconds: float) -> Iterator[None]:
        """A context in which the caller holds the lock. Raises `Busy` when it is not free within this time.

        Time that the caller has lost before counts, and time that the holder loses meanwhile is lost for the caller.
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
                self._pass_on()

    def _wait(self, seconds: float) -> None:
        if not is_running():
            raise Busy
        import asyncio  # noqa: PLC0415 - there is a loop only over HTTP

        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        begun = loop.time()
        # Cancelling `turn` would look like a cancelled task.
        timer = loop.call_later(seconds - seconds_lost(), resolve, turn)
        self._waiting.append(turn)
        wait_for(turn)
        timer.cancel()
        if self._holder is not turn:
            raise Busy
        lose(min(loop.time() - begun, self._seconds_lost))

    def _pass_on(self) -> None:
        self._seconds_lost = self._holder.seconds_lost if isinstance(self._holder, _Greenlet) else 0.0
        self._holder = None
        while self._waiting and self._holder is None:
            turn = self._waiting.popleft()
            if not turn.done():
                self._holder = turn  # until the waiting greenlet is resumed
                turn.set_result(None)
