"""The address that only this machine reaches, ports of it that are free, and why one is not had."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Iterator
from contextlib import closing, suppress

LOOPBACK = "127.0.0.1"


def in_address(host: str) -> str:
    """Return a host as addresses hold it: one of IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def cannot_listen(host: str, port: int, error: OSError) -> str:
    """Say in one line why nothing can listen there, and what to change."""
    of_host = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
    other = "--host" if of_host else "--port"
    return f"cannot listen on {host}:{port} ({error.strerror}); choose another {other}"


def free_ports(ports: range) -> Iterator[int]:
    """Yield those of the ports that nobody listens on now, in random order."""
    for port in random.sample(ports, len(ports)):
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.bind((LOOPBACK, port))
            yield port
