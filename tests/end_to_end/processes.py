"""The processes that a command has started, and what they listen on, as the kernel tells it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

LISTENING = "0A"


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
    """The process that started it, or that took it over from there."""
    return int(_stat(process)[1])


def tree(root: int) -> list[int]:
    """A process and all that it has started, and they in turn."""
    children: dict[int, list[int]] = defaultdict(list)
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            children[parent(int(process.name))].append(int(process.name))
    found, ahead = [], [root]
    while ahead:
        found.append(ahead.pop())
        ahead += children[found[-1]]
    return found


def lives(process: int) -> bool:
    """Whether it is there, and more than an entry of the process table."""
    with contextlib.suppress(OSError):
        return _stat(process)[0] != "Z"
    return False


def _stat(process: int) -> list[str]:
    """What the kernel tells of a process after its name, which may have spaces: state, parent, …"""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


def listeners(processes: list[int]) -> set[Listener]:
    """Every TCP socket on which one of the processes listens."""
    inodes = _listening_inodes()
    found = set()
    for process in processes:
        # A process may end while it is looked at.
        with contextlib.suppress(OSError):
            for descriptor in Path(f"/proc/{process}/fd").iterdir():
                target = str(descriptor.readlink())
                if target.startswith("socket:[") and target[8:-1] in inodes:
                    found.add(Listener(command_line(process), *inodes[target[8:-1]]))
    return found


def _listening_inodes() -> dict[str, tuple[IPv4Address | IPv6Address, int]]:
    found = {}
    for file in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(file).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTENING:
                address, port = fields[1].split(":")
                found[fields[9]] = (_address(address), int(port, 16))
    return found


def _address(hexadecimal: str) -> IPv4Address | IPv6Address:
    """The kernel writes addresses as words of the machine's byte order."""
    words = [int(hexadecimal[place : place + 8], 16) for place in range(0, len(hexadecimal), 8)]
    return ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words))


def command_line(process: int) -> str:
    """How it was started, or what it calls itself; cut short."""
    return (
        Path(f"/proc/{process}/cmdline")
        .read_bytes()
        .replace(b"\0", b" ")
        .decode(errors="replace")
        .strip()[:150]
    )


def listeners_until_end(process: subprocess.Popen[Any], seconds: float) -> set[Listener]:
    """All sockets that a command and its processes listen on, from now to its end."""
    found: set[Listener] = set()
    deadline = time.monotonic() + seconds
    while process.poll() is None:
        assert time.monotonic() < deadline, f"the command still runs after {seconds} s"
        found |= listeners(tree(process.pid))
        time.sleep(0.3)
    return found
