"""Allow `prefect deployment run generate-and-train`, without naming a deployment.

Prefect's command takes FLOW/DEPLOYMENT only and rejects a bare flow name before it asks the server.
Its plugin hook runs when Prefect is imported, before its command line is parsed: there the bare
name of one of our flows becomes that flow's default deployment. Anything else (another command, a
full name, another project's flow) is left unchanged. Enabled by prefect.toml.
"""

import sys
from typing import Any

from prefect.plugins import register_hook

DEFAULT_DEPLOYMENTS = {"generate-and-train": "generate-and-train/cylinder-flow"}
COMMAND = ["deployment", "run"]


@register_hook
def setup_environment(*, ctx: Any) -> None:
    """Rewrite this process's own command line, before Prefect reads it."""
    if sys.argv[1:3] != COMMAND:
        return
    sys.argv[3:] = [
        DEFAULT_DEPLOYMENTS.get(argument, argument) if place == 0 else argument
        for place, argument in enumerate(sys.argv[3:])
    ]
