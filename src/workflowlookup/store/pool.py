"""A journal for a server with many clients on one event loop, which a journal that hangs must not block.

Each method runs on one of a few threads, each with its own connection to the journal. Meanwhile the caller, a greenlet
that `greenlets.run` executes, waits with a deadline, and the loop serves others. Outside of the loop the calling thread
waits.

A thread whose journal hangs is abandoned until the journal returns; there are at most `MAX_THREADS` threads. Not all of
them may write, and fewer may write runs (`Kind`): while writes of runs wait for a lock, sessions are stored, and while
those wait, too, reads go on. Calls that wait for a thread are made round-robin over the callers of the server, so that
no caller waits behind all calls of another. After a call timed out on a thread, all calls fail at once until a poll, on
a thread of its own, succeeds.
"""

import asyncio
import contextlib
import contextvars
import enum
import inspect
import itertools
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from workflowlookup import greenlets
from workflowlookup.errors import JournalBusy, JournalUnavailable, StorageError
from workflowlookup.store.journal import Journal, NoRoom

log = logging.getLogger(__name__)

MAX_THREADS: Final = 5


class Kind(enum.IntEnum):
    """What a call does. The value: how many threads may make calls of this kind and of those with a smaller value."""

    READ = MAX_THREADS
    WRITE_SESSION = 4
    WRITE_RUN = 3


POLL_SECONDS: Final = 1.0
"""Between two polls of a journal that answers."""
RETRY_SECONDS: Final = 0.2
"""Between two polls of a journal that does not."""
FIRST_POLL_SECONDS: Final = 1.0
"""How long `start` waits for the first poll."""
CLOSE_SECONDS: Final = 0.5
"""How long `close` waits for threads that are at work."""
CALL_SHARE: Final = 0.9
"""Of the time limit: journals time out by themselves within this share."""
WRITE_SHARE: Final = 0.5
READ_SHARE: Final = 0.1
"""Of the time limit, which a request has once, for all its calls. With less than this share left, a call is not made: a
write might be abandoned, and its outcome would be unknown.
"""
FREE_SHARE: Final = 0.02
"""A call that is answered within this share of the time limit is not counted."""
AWAY_SHARE: Final = 0.5
"""A call that was on a thread for less than this share of the time limit does not show that the journal hangs."""
_KEPT_BUSY: Final = "Other requests kept the journal of runs busy"
CALLER: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("caller", default="")
"""The caller over HTTP that calls are made for; empty for the server itself."""
_UNREPEATABLE: Final = frozenset({"append", "delete", "purge"})
"""Methods that report an unknown outcome when they time out; the others can safely be repeated."""
_READS: Final = frozenset(
    {
        "ping",
        "head",
        "revision",
        "workflow_of",
        "imported",
        "read",
        "summaries",
        "overdue",
        "open_runs",
        "at_work",
        "waiting_for_proof",
        "runs_to_stop",
        "queue_position",
        "counts",
        "triage_counts",
        "due_notices",
        "tool_names",
        "freed_names",
        "provider_listings",
        "heads",
        "version",
        "tokens",
        "tokens_by_id",
        "count_tokens",
        "requires_tokens",
        "session_opening",
        "subscriptions",
        "console_session",
        "announcements",
        "last_announcement",
        "schema_version",
        "damaged_journals",
        "require_tokens",
    }
)
"""Methods that do not wait for the lock for writing. Also `require_tokens`, which `add_token` calls from its thread."""
_SESSION_WRITES: Final = frozenset(
    {
        "add_session",
        "touch_sessions",
        "end_session",
        "subscribe",
        "unsubscribe",
        "add_console_session",
        "end_console_session",
        "announce",
        "add_notices",
        "claim_notice",
        "postpone_notice",
        "end_notice",
    }
)
"""Methods that write no table of runs: in a database, they do not wait for its locks."""


class _Call:
    """A call of a method on a thread, and its outcome."""

    def __init__(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], done: Callable[[], None]) -> None:
        self.name, self._args, self._kwargs = name, args, kwargs
        self.begin_by = math.inf
        """By `time.monotonic`: when it is too late to begin it, because its caller would not wait for the outcome."""
        self._done = done
        """Called on the thread once there is an outcome."""
        self.caller = CALLER.get()
        self.kind = _kind_of(name)
        self.begun_at: float | None = None
        """When a thread began to make it."""
        self.is_abandoned = self.is_done = False
        self.thread_number = 0
        self._result: Any = None
        self.problem: BaseException | None = None

    @property
    def is_begun(self) -> bool:
        return self.begun_at is not None

    def begin(self) -> None:
        """Record that a thread makes the call now."""
        self.begun_at = time.monotonic()

    def make(self, journal: Journal, thread_number: int) -> None:
        self.thread_number = thread_number
        try:
            result = getattr(journal, self.name)(*self._args, **self._kwargs)
            self._result = list(result) if inspect.isgenerator(result) else result
        except BaseException as problem:  # noqa: BLE001 - raised where the caller waits
            self.problem = problem
        self._finish()

    def refuse(self, problem: StorageError) -> None:
        """Report that the call is not made."""
        self.problem = problem
        self._finish()

    def _finish(self) -> None:
        self.is_done = True
        self._done()

    @property
    def result(self) -> Any:
        """What the method returned; raises what it raised."""
        if self.problem is not None:
            raise self.problem
        return self._result


class _Thread(threading.Thread):
    """A daemon thread with a journal of its own."""

    numbers = itertools.count()

    def __init__(self, pool: "JournalPool", journal: Journal, first: _Call) -> None:
        super().__init__(name="workflowlookup-journal", daemon=True)
        self.wakes = threading.Semaphore(0)
        self.call: _Call | None = first
        """The current call; None when the thread is idle, or must end."""
        self._number = next(self.numbers)
        self._pool = pool
        self._journal = journal

    def run(self) -> None:
        while (call := self.call) is not None:
            call.make(self._journal, self._number)
            if call.is_abandoned:  # for its caller, the write is like one by another process
                self._number = next(self.numbers)
            del call
            if not self._pool.give_next_call(self):
                self.wakes.acquire()
        with contextlib.suppress(StorageError):
            self._journal.close()


class _Poll(threading.Thread):
    """Polls the journal, to know whether it answers."""

    def __init__(
        self, open_journal: Callable[[], Journal], seconds: float, report: Callable[[StorageError | None], None]
    ) -> None:
        super().__init__(name="workflowlookup-poll", daemon=True)
        self.first = threading.Event()
        """Set after the first poll."""
        self._open_journal = open_journal
        self._seconds = seconds
        self._report = report
        self._begun_at: float | None = None
        """When the current poll began; None between polls."""
        self._problem = "the journal has not answered yet"
        self.has_no_room = False
        """Whether the last poll found the disk full: the journal can still be read."""
        self._next = threading.Event()
        self._is_ended = False

    @property
    def fault(self) -> str:
        if not self.is_alive():
            return ""
        begun_at = self._begun_at
        waited = time.monotonic() - begun_at if begun_at is not None else 0.0
        return self._problem or (_no_answer(waited) if waited > self._seconds else "")

    def poll_now(self) -> None:
        """Poll without waiting for the next time."""
        self._next.set()

    def end(self) -> None:
        self._is_ended = True
        self._next.set()

    def run(self) -> None:
        journal = self._open_journal()
        while not self._is_ended:
            self._next.clear()
            self._begun_at = time.monotonic()
            problem: StorageError | None = None
            try:
                journal.ping()
            except StorageError as refusal:
                problem = refusal
            except Exception as bug:  # broad on purpose: without polls no request would be served again
                log.exception("the journal could not be polled")
                problem = StorageError(repr(bug))
            self._problem, self._begun_at = str(problem or ""), None
            self.has_no_room = isinstance(problem, NoRoom)
            self._report(problem)
            self.first.set()
            self._next.wait(RETRY_SECONDS if problem else POLL_SECONDS)
        with contextlib.suppress(StorageError):
            journal.close()


class JournalPool:
    """The threads, and whether their journals answer. `journal` is what the rest of the server uses."""

    def __init__(self, open_journal: Callable[[], Journal], seconds: float) -> None:
        """`seconds`: how long a caller waits for an answer."""
        self.journal = cast("Journal", _PooledJournal(self, open_journal().names))
        """Every method except `close` may raise `JournalUnavailable`."""
        self._open_journal = open_journal
        self._seconds = seconds
        self._lock = threading.Lock()
        self._threads: set[_Thread] = set()
        self._idle: list[_Thread] = []
        """A stack, so that under low load one connection does most of the work."""
        self._waiting: dict[tuple[str, Kind], deque[_Call]] = {}
        """By caller and kind, the next one to be served first."""
        self._away = ""
        """Why all calls fail at once; empty while the journal is used."""
        self._poll = _Poll(open_journal, seconds, self._on_poll)

    def close(self) -> None:
        """End the threads that do not hang; a later call starts new ones."""
        self._poll.end()
        with self._lock:
            threads, self._threads, self._idle = self._threads, set(), []
            idle = [thread for thread in threads if thread.call is None]
        for thread in idle:
            thread.wakes.release()
        end = time.monotonic() + CLOSE_SECONDS
        for thread in idle:
            thread.join(max(0.0, end - time.monotonic()))

    # ── health ──────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Poll from now on; returns after the first poll, or after `FIRST_POLL_SECONDS`."""
        self._poll.start()
        self._poll.first.wait(FIRST_POLL_SECONDS)

    @property
    def fault(self) -> str:
        """Why the journal cannot be used, by the last poll; empty when it can."""
        return self._away or self._poll.fault

    @property
    def read_fault(self) -> str:
        """The same, but empty if only the disk is full: the journal can be read."""
        return "" if self._poll.has_no_room else self.fault

    def _on_poll(self, problem: StorageError | None) -> None:
        if isinstance(problem, JournalUnavailable):
            self._refuse_all(problem)
        elif self._away:
            log.warning("the journal answers again")
            self._away = ""

    def _refuse_all(self, problem: JournalUnavailable) -> None:
        """Fail every call at once until a poll succeeds. Does nothing without polls, because nothing would end it."""
        if not self._away and self._poll.is_alive() and not isinstance(problem, JournalBusy):
            log.warning("requests that need the journal are refused until it answers: %s", problem)
            self._away = problem.reason
            self._poll.poll_now()

    # ── calls ───────────────────────────────────────────────────────────────────────────────────────────────────

    def make_call(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Call:
        """Make a call and wait for its outcome. Raises `JournalUnavailable` when that takes too long."""
        if self._away:
            raise JournalUnavailable(self._away)
        begun, seconds = time.monotonic(), self._seconds
        if greenlets.is_running():
            seconds -= greenlets.waited_seconds()
            if seconds < self._min_seconds(name):
                raise JournalBusy(_no_answer(self._seconds))
            call = self._make_on_loop(name, args, kwargs, seconds)
            waited = time.monotonic() - begun
            if waited > FREE_SHARE * self._seconds:
                greenlets.add_wait(waited)
        else:
            call = self._make_on_thread(name, args, kwargs)
        with self._lock:
            call.is_abandoned = not call.is_done
        problem = self._timeout_error(call, seconds) if call.is_abandoned else call.problem
        if isinstance(problem, JournalUnavailable):
            self._refuse_all(problem)
            raise problem
        return call

    def _min_seconds(self, name: str) -> float:
        """The time that must be left for a call of a method."""
        return (WRITE_SHARE if name in _UNREPEATABLE else READ_SHARE) * self._seconds

    def _make_on_loop(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], seconds: float) -> _Call:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        call = _Call(name, args, kwargs, lambda: _resolve_soon(loop, done))
        timer = loop.call_later(seconds, greenlets.resolve, done)
        self._submit(call, seconds)
        greenlets.wait_for(done)
        timer.cancel()
        return call

    def _make_on_thread(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Call:
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            log.error("the event loop waits for the journal (%s)", name, stack_info=True)
        done = threading.Event()
        call = _Call(name, args, kwargs, done.set)
        self._submit(call, self._seconds)
        done.wait(self._seconds)
        return call

    def _timeout_error(self, call: _Call, seconds: float) -> JournalUnavailable:
        is_unknown = call.is_begun and call.name in _UNREPEATABLE
        if call.begun_at is None or time.monotonic() - call.begun_at < AWAY_SHARE * self._seconds:
            return JournalBusy(_KEPT_BUSY, is_unknown=is_unknown)
        has_little_time = seconds < CALL_SHARE * self._seconds  # other requests may have more
        kind = JournalBusy if has_little_time else JournalUnavailable
        return kind(_no_answer(self._seconds), is_unknown=is_unknown)

    def _submit(self, call: _Call, seconds: float) -> None:
        call.begin_by = time.monotonic() + seconds - self._min_seconds(call.name)
        with self._lock:
            may_begin = self._may_begin(call.kind)
            if may_begin and self._idle:
                thread = self._idle.pop()
                call.begin()
                thread.call = call
                thread.wakes.release()
            elif may_begin:
                call.begin()
                thread = _Thread(self, self._open_journal(), call)
                self._threads.add(thread)
                thread.start()
            else:
                self._waiting.setdefault((call.caller, call.kind), deque()).append(call)

    def _may_begin(self, kind: Kind) -> bool:
        """Whether another thread may make a call of this kind."""
        kinds = [thread.call.kind for thread in self._threads if thread.call is not None]
        return all(sum(other <= limit for other in kinds) < limit for limit in Kind if limit >= kind)

    def give_next_call(self, thread: _Thread) -> bool:
        """Give a thread that has finished its call the next one; False when there is none, and it must wait."""
        with self._lock:
            thread.call = None
            if thread not in self._threads:  # the pool was closed meanwhile
                return True
            while (call := self._next_waiting()) is not None:
                if call.begin_by < time.monotonic():
                    call.refuse(JournalBusy(_KEPT_BUSY))
                elif not call.is_abandoned:
                    call.begin()
                    thread.call = call
                    return True
            self._idle.append(thread)
            return False

    def _next_waiting(self) -> _Call | None:
        """Take the call whose turn it is out of the queues; None when there is none that may begin."""
        startable = [kind for kind in Kind if self._may_begin(kind)]
        key = next((key for key in self._waiting if key[1] in startable), None)
        if key is None:
            return None
        calls = self._waiting.pop(key)
        call = calls.popleft()
        if calls:
            self._waiting[key] = calls  # after the other callers
        return call


class _PooledJournal:
    """Implements `Journal`: a pool makes each call."""

    def __init__(self, pool: JournalPool, names: frozenset[str]) -> None:
        self._pool = pool
        self.names = names
        self.close = pool.close

    def version(self) -> int:
        """Also changes with the thread that answers, because versions of two connections cannot be compared."""
        call = self._pool.make_call("version", (), {})
        return int(call.result) << 20 | call.thread_number & 0xFFFFF

    def group(self) -> None:
        """Every write is committed by itself, because another thread may make the next one."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def method(*args: Any, **kwargs: Any) -> Any:
            return self._pool.make_call(name, args, kwargs).result

        self.__dict__[name] = method
        return method


def _kind_of(method: str) -> Kind:
    if method in _READS:
        return Kind.READ
    return Kind.WRITE_SESSION if method in _SESSION_WRITES else Kind.WRITE_RUN


def _no_answer(seconds: float) -> str:
    return f"The journal of runs has not answered for {seconds:.0f} seconds"


def _resolve_soon(loop: asyncio.AbstractEventLoop, done: "asyncio.Future[None]") -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(greenlets.resolve, done)
