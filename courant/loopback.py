"""Listen on an address, and list the hosts that its requests may name."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Sequence

from simgen.errors import InputError

LOOPBACK = "127.0.0.1"
OWN_NAMES = ("127.0.0.1", "localhost", "[::1]")  # As requests write this machine's own


def in_address(host: str) -> str:
    """Return a host as addresses hold it: one of IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def cannot_listen(host: str, port: int, error: OSError) -> str:
    """Return one line: why nothing can listen there, and what to change."""
    of_host = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
    other = "--host" if of_host else "--port"
    return f"cannot listen on {host}:{port} ({error.strerror}); choose another {other}"


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """Listen on host:port, any free port for 0; InputError where that is not possible."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        raise InputError(cannot_listen(host, port, error)) from error
    return listener


def answered_names(listener: socket.socket, host: str, names: Sequence[str]) -> list[str]:
    """Return the hosts that requests may name; any where others than this machine may ask.

    A page of another site that a person on this machine opens asks in its own name.
    """
    own = [*OWN_NAMES, in_address(host), *names]
    is_loopback = ipaddress.ip_address(listener.getsockname()[0]).is_loopback
    return own if is_loopback or names else ["*"]
