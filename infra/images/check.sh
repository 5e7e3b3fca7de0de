#!/bin/bash
# What an image has to be able to do, as its account: rehearse.py runs it at the end, and so can
# anybody, with: docker run --rm --volume ./infra/images/check.sh:/check.sh IMAGE bash /check.sh
set -euo pipefail

test "$(id -u)" = 10001
test ! -w /opt/courant
touch /scratch/can-write && rm /scratch/can-write
bash -lc 'command -v ray courant prefect python' > /dev/null
python -c 'import json; print(len(json.load(open("/opt/courant/sbom.cdx.json"))["components"]), "packages")'
courant --version
ray --version

# The entry point of jobs, Prefect's plugin and the flows are found outside the source as well.
cd /
python - <<'CODE'
import importlib.util
import tempfile
from importlib.metadata import entry_points
from pathlib import Path

import flows.ray_entrypoint, flows.solving
from simgen.provenance import source_revision

print("revision", source_revision())
assert entry_points(group="prefect.plugins", name="courant")
if importlib.util.find_spec("torch"):
    import torch, courant

    print("torch", torch.__version__)
else:
    from simgen.cases import get_family
    from simgen.solving.solve_case import solve_case

    family = get_family("cylinder-flow")
    settings = family.settings("trial", {"end_time": 12, "mesh_size": 2})
    point = family.point(family.design_space.sample(1)[0], settings)
    result = solve_case(point, Path(tempfile.mkdtemp(dir="/scratch")))
    print("a case:", result.status, result.reason)
    assert result.status != "failed", result.reason
CODE
