"""Give work to processes of this machine; `flows.ray_jobs` does so on a Ray cluster.

Notable features:
- A machine has a slot for each case that its cores have room for. A slot is a thread with a pool of
  one process, which imports everything once. If that process dies, its slot starts another one and
  tries the case again; the cases of other slots are not touched.
- Interrupted, an executor kills its processes. One whose parent is gone, even by kill -9, ends
  itself. An application ends with the process that has started it (`simgen.foam.guard`).
"""

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any, Protocol, TypeVar

from simgen.errors import InputError, ProgramError, SimgenError
from simgen.log_lines import LogContext, log_context
from simgen.machine import usable_cores

Item = TypeVar("Item")
Result = TypeVar("Result")

ATTEMPTS = 3
PAUSE_S = 5.0  # Before another attempt: a store or a disk may be back by then
LOOK_S = 0.5
"""A wait without an end is not interrupted where the kernel gives the signal to another thread"""


class LostWorkerError(SimgenError):
    """A process that died with its case, at every attempt."""


class Executor(AbstractContextManager["Executor"], Protocol):
    """Run functions in other processes, which end with the block; at once after an error."""

    def at_once(self) -> int:
        """Return how many may be submitted and not ended; of a cluster it may change."""

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        """Run a module's function; errors that may pass are tried again, ATTEMPTS times in all."""


def check_cores(cores: int, most: int) -> None:
    """InputError where no machine has as many."""
    if cores > most:
        raise InputError(f"a case has {cores} cores, the largest machine has {most}; lower --cores")


def attempt(pause_s: float, function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function in a worker, ATTEMPTS times as long as its error may pass.

    A bad request does not, nor a mistake in code.
    """
    for left in reversed(range(ATTEMPTS)):
        try:
            return function(*arguments)
        except Exception as error:
            if not left or isinstance(error, InputError | ProgramError):
                raise
        time.sleep(pause_s)
    raise AssertionError


class LocalExecutor(AbstractContextManager["LocalExecutor"]):
    """Processes of this machine, as many at a time as its cores have room for."""

    def __init__(self, cores: int) -> None:
        check_cores(cores, usable_cores())
        self._cores, self._num_slots = cores, usable_cores() // cores
        self._slots = ThreadPoolExecutor(self._num_slots, thread_name_prefix="slot")
        self._slot = threading.local()
        self._pools: list[ProcessPoolExecutor] = []
        self._closed = threading.Event()

    def at_once(self) -> int:
        return 2 * self._num_slots  # no slot waits while the last case is committed

    def submit(self, function: Callable[..., Result], *arguments: Any) -> Future[Result]:
        return self._slots.submit(self._run, function, *arguments)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        interrupted = kind is not None
        self._closed.set()
        self._slots.shutdown(wait=not interrupted, cancel_futures=interrupted)
        if interrupted:
            for child in multiprocessing.active_children():
                child.kill()  # and its solver with it
                child.join()
        for pool in self._pools:
            pool.shutdown()

    def _run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        for _ in range(ATTEMPTS):
            try:
                return self._pool().submit(attempt, PAUSE_S, function, *arguments).result()
            except BrokenExecutor:
                self._slot.pool = None
                if self._closed.is_set():  # `__exit__` has killed it
                    raise
            self._closed.wait(PAUSE_S)
        raise LostWorkerError(
            f"its process died {ATTEMPTS} times: give more memory, fewer cases at once"
            " or more --cores, with --retry-failed"
        )

    def _pool(self) -> ProcessPoolExecutor:
        """Return this thread's pool of one process, which imports nothing of this process."""
        pool: ProcessPoolExecutor | None = getattr(self._slot, "pool", None)
        if pool is None:
            pool = self._slot.pool = ProcessPoolExecutor(
                1,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_begin_process,
                initargs=(self._cores, log_context()),
            )
            self._pools.append(pool)
            # Inherited by the process, which Ctrl-C in a terminal would end in a traceback.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        return pool


def _begin_process(num_threads: int, logs: LogContext) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its parent ends it
    # Read when numpy is loaded, which nothing imported so far has done.
    os.environ["OMP_NUM_THREADS"] = str(num_threads)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, name="end-with-parent", daemon=True).start()
    logs.apply()


def as_they_end(
    items: Iterable[Item],
    submit: Callable[[Item], Future[Result]],
    at_once: Callable[[], int],
    on_wait: Callable[[], None] = lambda: None,
) -> Iterator[Future[Result]]:
    """Yield the items' futures, each as its work ends.

    No more than `at_once` are under way. `on_wait` is called before each wait, of LOOK_S at most.
    """
    ended: queue.SimpleQueue[Future[Result]] = queue.SimpleQueue()
    left, num_under_way = iter(items), 0
    while True:
        for item in islice(left, max(0, at_once() - num_under_way)):
            submit(item).add_done_callback(ended.put)
            num_under_way += 1
        if not num_under_way:
            return
        on_wait()
        try:
            future = ended.get(timeout=LOOK_S)
        except queue.Empty:
            continue
        num_under_way -= 1
        yield future
