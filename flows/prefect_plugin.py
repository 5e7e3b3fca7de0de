"""Allow `prefect deployment run generate-and-train`, without naming a deployment.

Prefect's command takes FLOW/DEPLOYMENT only and rejects a bare flow name before it asks the server.
Its plugin hook runs when Prefect is imported, before its command line is parsed: there the bare
name of one of our flows becomes that flow's default deployment, which COURANT_DEPLOYMENT names.
Anything else (another command, a full name, another project's flow) is left unchanged. Enabled by
prefect.toml, elsewhere by PREFECT_PLUGINS_ENABLED=true; Prefect's client then reports no use.
"""

import os
import sys
from typing import Any

from prefect.plugins import register_hook

FLOW, DEPLOYMENT = "generate-and-train", "cylinder-flow"
COMMAND = ["deployment", "run"]


@register_hook
def setup_environment(*, ctx: Any) -> None:
    """Rewrite this process's own command line, before Prefect reads it."""
    os.environ.setdefault("DO_NOT_TRACK", "1")
    if sys.argv[1:4] == [*COMMAND, FLOW]:
        sys.argv[3] = f"{FLOW}/{os.environ.get('COURANT_DEPLOYMENT') or DEPLOYMENT}"
