"""The processes that a command has started, and what they listen on."""

import contextlib
import subprocess
import time
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import psutil


@dataclass(frozen=True)
class Listener:
    """A TCP socket that takes connections, and the process that holds it."""

    process: str
    address: IPv4Address | IPv6Address
    port: int

    @property
    def on_loopback(self) -> bool:
        mapped = getattr(self.address, "ipv4_mapped", None)
        return (mapped or self.address).is_loopback


def parent(process: int) -> int:
    """The process that started it, or that took it over from there; OSError where it is gone."""
    try:
        return psutil.Process(process).ppid()
    except psutil.Error as error:
        raise ProcessLookupError(process) from error


def tree(root: int) -> list[int]:
    """A process and all that it has started, and they in turn."""
    with contextlib.suppress(psutil.Error):
        return [root, *(child.pid for child in psutil.Process(root).children(recursive=True))]
    return [root]


def lives(process: int) -> bool:
    """Whether it is there, and more than an entry of the process table."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    return False


def listeners(processes: list[int]) -> set[Listener]:
    """Every TCP socket on which one of the processes listens."""
    found = set()
    for process in processes:
        with contextlib.suppress(psutil.Error):  # it may end while it is looked at
            for each in psutil.Process(process).net_connections("tcp"):
                if each.status == psutil.CONN_LISTEN:
                    address = ip_address(each.laddr.ip)
                    found.add(Listener(command_line(process), address, each.laddr.port))
    return found


def command_line(process: int) -> str:
    """How it was started, or what it calls itself; cut short."""
    with contextlib.suppress(psutil.Error):
        return " ".join(psutil.Process(process).cmdline())[:150]
    return ""


def listeners_until_end(process: subprocess.Popen[Any], seconds: float) -> set[Listener]:
    """All sockets that a command and its processes listen on, from now to its end."""
    found: set[Listener] = set()
    deadline = time.monotonic() + seconds
    while process.poll() is None:
        assert time.monotonic() < deadline, f"the command still runs after {seconds} s"
        found |= listeners(tree(process.pid))
        time.sleep(0.3)
    return found
