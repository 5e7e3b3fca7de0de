"""Listen on an address, and list the hosts that its requests may name."""

import errno
import ipaddress
import socket
from collections.abc import Sequence

from simgen.errors import InputError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Hosts that mean this machine; the first one is listened on where no other is named"""


def in_address(host: str) -> str:
    """Return a host as addresses hold it: one of IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def listen(host: str, port: int, backlog: int) -> socket.socket:
    """Listen on host:port, any free port for 0; InputError where that is not possible."""
    is_ipv6 = ":" in host
    family, both = socket.AF_INET6 if is_ipv6 else socket.AF_INET, socket.has_dualstack_ipv6()
    try:
        return socket.create_server(
            (host, port), family=family, backlog=backlog, dualstack_ipv6=is_ipv6 and both
        )
    except OSError as error:
        # Those of a name's look-up are negative.
        of_host = error.errno == errno.EADDRNOTAVAIL or (error.errno or 0) < 0
        other = "--host" if of_host else "--port"
        why = f"{str(error.strerror).partition(' (')[0]}; choose another {other}"  # no address
        why = why.replace("Address already in use", "another program does")
        raise InputError(f"cannot listen on {in_address(host)}:{port}: {why}") from error


def answered_names(listener: socket.socket, host: str, names: Sequence[str]) -> list[str]:
    """Return the hosts that requests may name; any where others than this machine may ask.

    A page of another site that a person on this machine opens asks in its own name.
    """
    own = [*map(in_address, (*LOOPBACK, host)), *names]
    is_loopback = ipaddress.ip_address(listener.getsockname()[0]).is_loopback
    return own if is_loopback or names else ["*"]
