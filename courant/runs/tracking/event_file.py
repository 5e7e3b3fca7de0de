"""Write TensorBoard's event files into a run directory: `tensorboard --logdir <runs>`.

Each start of a run begins a new file, which tells TensorBoard to drop earlier entries of the epochs
that are trained again. Written here rather than by a SummaryWriter, which knows neither the run
directory's storage nor when an epoch is complete.
"""

from __future__ import annotations

import math
import struct
import time

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c

from courant.runs.directory import RunDirectory
from courant.runs.record import EpochRecord

VERSION = "brain.Event:2"
"""The first event of every file, by which readers recognise the format"""
NAME = "events.out.tfevents"


class EventFile:
    """The event file of one start of a run, whose first epoch is `first_epoch`.

    Holds losses, NMAE, learning rate and speed by epoch.
    """

    def __init__(self, run: RunDirectory, first_epoch: int) -> None:
        began = time.time()
        self._run, self._name = run, f"{NAME}.{int(began)}.{first_epoch:06d}"
        restart = Event(
            wall_time=began, step=first_epoch, session_log=SessionLog(status=SessionLog.START)
        )
        self._content = _framed(Event(wall_time=began, file_version=VERSION)) + _framed(restart)

    def epoch(self, record: EpochRecord) -> None:
        values = {
            "loss/train": record.train_loss,
            "loss/validation": record.validation_loss,
            "nmae/validation": record.validation_nmae,
            "speed/learning_rate": record.learning_rate,
            "speed/samples_per_s": record.samples_per_s,
            "speed/data_wait_share": record.data_wait_share,
            "speed/flops_per_s": record.flops_per_s,
            "speed/peak_memory_gb": record.peak_memory_gb,
        }
        scalars = [
            Summary.Value(tag=tag, simple_value=value)
            for tag, value in values.items()
            if value is not None and math.isfinite(value)
        ]
        self._content += _framed(
            Event(wall_time=time.time(), step=record.epoch, summary=Summary(value=scalars))
        )
        self._run.grow_file(self._name, self._content)

    def end(self, state: str) -> None:
        """Do nothing: every epoch is in the file already."""


def _framed(event: Event) -> bytes:
    """Frame a TFRecord: length, its checksum, content, its checksum."""
    content = event.SerializeToString()
    length = struct.pack("<Q", len(content))
    return (
        length
        + struct.pack("<I", masked_crc32c(length))
        + content
        + struct.pack("<I", masked_crc32c(content))
    )
