"""Pass environment variables to the processes of a Ray cluster without showing their values.

Ray shows a runtime environment on its pages and through its API, writes it into logs that every
user of a node can read, and puts it on command lines. Therefore:
- a submitted job gets the variables sealed with the token that the cluster asks for, which nodes
  and flows know already. Of a cluster without a token all users can run code as its user; its
  jobs get the variables as they are.
- workers get them by a function that each of them runs first. Ray keeps it in the memory of its
  head, and shows its name only.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken

from simgen.errors import InputError

SEALED = "COURANT_SEALED_VARIABLES"


def seal(variables: dict[str, str]) -> dict[str, str]:
    """Return the variables of a job that carry these, readable only with the cluster's token."""
    cipher = _cipher()
    if cipher is None or not variables:
        return variables
    return {SEALED: cipher.encrypt(json.dumps(variables).encode()).decode()}


def unseal() -> None:
    """Set the variables that this job was given sealed.

    InputError if the token here is not the one that they were sealed with.
    """
    if SEALED in os.environ:
        os.environ.update(_sealed())


def begin_worker() -> Callable[[], None] | None:
    """Return the function by which workers set the variables that this job was given sealed."""
    if SEALED not in os.environ:
        return None
    variables = _sealed()
    return lambda: os.environ.update(variables)


def _sealed() -> dict[str, str]:
    cipher = _cipher()
    try:
        if cipher is None:
            raise InvalidToken
        found: dict[str, str] = json.loads(cipher.decrypt(os.environ[SEALED].encode()))
    except InvalidToken as error:
        raise InputError(
            "the variables of COURANT_JOB_ENV were sealed with another token than this node's;"
            " give the flow and all nodes of the cluster the same RAY_AUTH_TOKEN, or none where the"
            " cluster asks for none"
        ) from error
    return found


def _cipher() -> Fernet | None:
    """Return what seals with the cluster's token; None where Ray asks for none."""
    token = _token()
    if not token:
        return None
    key = hashlib.sha256(b"variables of a job\0" + token.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(key))


def _token() -> str:
    """Return the token that Ray shows clusters, from where Ray reads it."""
    if os.environ.get("RAY_AUTH_MODE", "").lower() != "token":
        return ""
    if given := os.environ.get("RAY_AUTH_TOKEN"):
        return given.strip()
    file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token").expanduser()
    try:
        return file.read_text().strip()
    except OSError:
        return ""
