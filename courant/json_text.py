"""Parse JSON from untrusted sources within stated bounds of memory and depth."""

from __future__ import annotations

import json
from typing import Any

MAX_BYTES = 16 * 2**20
#: Brackets and commas. An empty list of two characters takes 64 bytes once parsed, so the memory is
#: bounded by the number of values, not by the number of bytes.
MAX_VALUES = 1_000_000
#: This project's own files are five levels deep.
MAX_DEPTH = 32


def parse_json(content: bytes) -> Any:
    """Parse UTF-8 JSON; raise ValueError with a short phrase where it is invalid.

    Text that is too large or too deeply nested is invalid too.
    """
    if len(content) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES / 2**20:g} MiB")
    if sum(content.count(mark) for mark in (b",", b"[", b"{")) > MAX_VALUES:
        raise ValueError(f"more than {MAX_VALUES:,} values")
    try:
        value = json.loads(content.decode())
    except RecursionError:
        raise ValueError(f"nested more than {MAX_DEPTH} deep") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}") from None
    if _is_deeper(value, MAX_DEPTH):
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    return value


def _is_deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        level = [child for item in level for child in _children(item)]
        if not level:
            return False
    return True


def _children(item: Any) -> Any:
    if isinstance(item, dict):
        return item.values()
    return item if isinstance(item, list) else ()
