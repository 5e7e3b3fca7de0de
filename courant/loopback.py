"""The address that only this machine reaches, and ports of it that are free."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import closing, suppress

LOOPBACK = "127.0.0.1"


def free_ports(ports: range) -> Iterator[int]:
    """Yield those of the ports that nobody listens on now, in random order."""
    for port in random.sample(ports, len(ports)):
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.bind((LOOPBACK, port))
            yield port
