"""Run a submitted job on the cluster: python -m flows.ray_entrypoint URL-OF-ITS-REQUEST."""

import json
import os
import sys
from pathlib import Path

from courant.ray_session import connect_ray
from courant.runs.directory import RunDirectory
from flows import stages
from flows.ray_jobs import unseal
from flows.terminal import start_logs
from simgen.errors import SimgenError
from simgen.log_lines import set_field


def main() -> int:
    """Return the exit code: 1 for an error, with one line that begins with `error: `."""
    start_logs()
    job = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}"))
    if flow_run := (job.get("metadata") or {}).get("flow_run"):
        set_field("flow_run", str(flow_run))  # of the flow run that waits for this job
    folder, _, name = sys.argv[1].rpartition("/")
    try:
        begin_worker = unseal()
        request = RunDirectory(folder).read_json(name)
        connect_ray(begin_worker=begin_worker)
        for field, (file, content) in request["files"].items():
            Path(file).write_text(content)
            request["fields"][field] = file
        stage = getattr(stages, request["stage"])(**request["fields"])
        if isinstance(stage, stages.Generation) and os.environ.get("PREFECT_API_URL"):
            from flows.prefect_flows import in_flow

            in_flow(stage)  # so that its cases are tasks
        else:
            stages.execute(stage)
    except SimgenError as error:
        print(f"error: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
