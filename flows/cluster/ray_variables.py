"""Hand environment variables to the processes of a Ray cluster without showing their values.

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
from collections.abc import Callable, Iterable

from cryptography.fernet import Fernet, InvalidToken
from ray._raylet import AuthenticationTokenLoader  # type: ignore[attr-defined]

from flows.settings import OWN_PREFECT
from simgen.errors import InputError

SEALED = "COURANT_SEALED_VARIABLES"
#: Prefect's threads in the workers find its API by them.
PREFECT_VARIABLES = (
    "PREFECT_API_URL",
    "PREFECT_API_AUTH_STRING",
    "PREFECT_CLIENT_CSRF_SUPPORT_ENABLED",
    OWN_PREFECT,
)


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


def workers_variables() -> Callable[[], None]:
    """Return the function by which workers set the variables of Prefect and of this job."""
    names: Iterable[str] = (*PREFECT_VARIABLES, *(_sealed() if SEALED in os.environ else ()))
    variables = {name: os.environ[name] for name in names if name in os.environ}

    def set_variables() -> None:
        os.environ.update(variables)

    return set_variables


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
    token = AuthenticationTokenLoader.instance().get_raw_token()
    if not token:
        return None
    key = hashlib.sha256(b"variables of a job\0" + token.encode()).digest()
    return Fernet(base64.urlsafe_b64encode(key))
