"""Follow a run from outside: report each epoch as it appears in the run directory."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from courant.runs.checkpoint import checkpoint_epochs
from courant.runs.directory import RunDirectory
from courant.runs.record import read_records, read_status
from courant.training.loop import OnEpoch, TrainingError
from simgen.errors import StoreError

logger = logging.getLogger("courant.training")

POLL_S = 1.0


def check_finished(run: RunDirectory) -> None:
    """Raise TrainingError, with the recorded reason, where the run has not come to its end."""
    status = read_status(run)
    if status.state != "finished":
        raise TrainingError(
            status.reason or f"{run.url}: the workers ended without finishing; train again to go on"
        )


@contextmanager
def following(run: RunDirectory, on_epoch: OnEpoch | None) -> Iterator[None]:
    """Call `on_epoch` for each epoch that appears in the run's metrics while the body runs.

    The last ones follow after the body. A store that does not answer for a moment is asked again;
    errors of `on_epoch` itself are raised after the training.
    """
    if on_epoch is None:
        yield
        return
    seen = max(checkpoint_epochs(run), default=0)
    # Epochs after the last checkpoint are trained again; until then their old records are there.
    stale = [record for record in read_records(run) if record.epoch > seen]
    stop = threading.Event()
    trouble: list[Exception] = []

    def report_new() -> None:
        nonlocal seen
        for record in read_records(run):
            if record.epoch > seen and record not in stale:
                seen = record.epoch
                on_epoch(record)

    def follow() -> None:
        while not stop.wait(POLL_S) and not trouble:
            try:
                report_new()
            except StoreError as error:
                logger.warning("%s", error)
            except Exception as error:
                trouble.append(error)

    # The caller's context variables are copied: through them Prefect knows which task is reporting.
    follower = threading.Thread(
        target=contextvars.copy_context().run, args=(follow,), name="follow-metrics", daemon=True
    )
    follower.start()
    try:
        yield
    finally:
        stop.set()
        follower.join()
    if trouble:
        raise trouble[0]
    report_new()
