"""Kinds of damage to one file, each undone afterwards."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

NOBODY = 65534


def _flip_bit(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    position = chance.randrange(8 * len(content))
    content[position // 8] ^= 1 << position % 8
    path.write_bytes(content)


def _flip_bits(path: Path, chance: random.Random) -> None:
    for _ in range(chance.randint(2, 16)):
        _flip_bit(path, chance)


def _truncate(path: Path, chance: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size)])


def _zero_block(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    begin = chance.randrange(len(content))
    end = min(len(content), begin + chance.randint(1, 64))
    content[begin:end] = bytes(end - begin)
    path.write_bytes(content)


def _another_file(path: Path, chance: random.Random) -> None:
    """The content of another object of its kind: valid, and at the wrong place."""
    folder = path.parent.parent if path.name == "ref.json" else path.parent
    path.write_bytes(
        chance.choice(sorted(other for other in folder.rglob("*") if other.is_file())).read_bytes()
    )


def _replace(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


def _socket(path: Path) -> None:
    """Bound from its own folder, since a socket's address has room for a hundred letters."""
    before = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    "one bit flipped": _flip_bit,
    "several bits flipped": _flip_bits,
    "truncated": _truncate,
    "a block of zeros": _zero_block,
    "another object's content": _another_file,
    "emptied": lambda path, _: path.open("wb").close(),
    "deleted": lambda path, _: path.unlink(),
    "a directory": lambda path, _: _replace(path, Path.mkdir),
    "a link to nothing": lambda path, _: _replace(path, lambda at: at.symlink_to("nowhere")),
    "a link to itself": lambda path, _: _replace(path, lambda at: at.symlink_to(at.name)),
    "a FIFO": lambda path, _: _replace(path, os.mkfifo),
    "a link to a device": lambda path, _: _replace(path, lambda at: at.symlink_to("/dev/zero")),
    "a socket": lambda path, _: _replace(path, _socket),
    "unreadable": lambda path, _: path.chmod(0),
}


@contextlib.contextmanager
def damaged(path: Path, kind: str, chance: random.Random) -> Iterator[None]:
    """The file damaged; reading as nobody where that is what makes it unreadable."""
    content, mode = path.read_bytes(), path.stat().st_mode
    KINDS[kind](path, chance)
    as_nobody = kind == "unreadable" and os.geteuid() == 0
    if as_nobody:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if as_nobody:
            os.seteuid(0)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        path.write_bytes(content)
        path.chmod(mode)
