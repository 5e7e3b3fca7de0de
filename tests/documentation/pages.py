"""What a page takes as known (the model `RUN`, words, names), and what of it is not run here."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import courant
from courant.serving.explorer import Explored
from courant.serving.predictions import Limits
from tests.documentation.shell import run_python
from tests.documentation.world import STEADY, TRANSIENT
from tests.serving.explored_server import serving_explored

SERVED = "http://127.0.0.1:8000"

CLOUD = """
import torch
points, features, mask = torch.rand(1, 64, 3), torch.rand(1, 64, 18), None
query_points, query_features = torch.rand(1, 32, 3), torch.rand(1, 32, 16)
"""
EXPORTED = """
import courant, simgen, torch
surrogate = courant.load("RUN", device="cpu")
surrogate.export("exported")
points, features = torch.rand(1, 64, 3), torch.rand(1, 64, 18)
mask, steps = torch.ones(1, 64, dtype=torch.bool), 2
query_points, query_features = torch.rand(1, 32, 3), torch.rand(1, 32, 16)
anchors, parameters, decoder_anchors = points[:, :16], None, None
"""
DECOMPOSED = """
import courant, simgen
surrogate = courant.load("RUN", device="cpu")
dataset = surrogate.open_dataset()
case, start = dataset[dataset.cases("test")[0]], 100.0
_, contributions, anchors = surrogate.decompose_case(case, start_s=start, steps=2)
contributions, points, volumes = contributions[-1], case.points, case.volumes
"""
STATE = """
points, u0, design = case.points, case["velocity"][50], case.parameters
"""
OWN_STATE = """
import simgen
case = simgen.open_dataset("STORE/cylinder-flow")["b0159c13a91f"]
free = (case.points[:, 0] ** 2 + (case.points[:, 1] - 1) ** 2) > 4
points, state = case.points[free], case["velocity"][50][free]
wanted = points[:10]
"""
OWN_GEOMETRY = """
import numpy as np
dataset = simgen.open_dataset("STORE/branched-pipe")
case = dataset[dataset.cases("test")[0]]
cells = np.arange(20)
points, distance, direction = case.points, case.distance, case.direction
faces, parameters = case.boundary.points, case.parameters
kinds = [dataset.schema.patch_kinds[number] for number in case.boundary.patch]
on_faces = np.zeros((len(faces), 3), "f4")
"""
SOLVED = """
from simgen.case import CaseResult
from simgen.cases import get_family
from tests.world import design_point, travelling_wave
result, cloud = CaseResult(design_point(1), "accepted"), travelling_wave(40, 0.2, 1)
"""
PANEL = """
import numpy as np
from matplotlib.figure import Figure
from courant.report.context import Context
from courant.report.page import Panel, Picture
"""
QUANTITY = """
from simgen.quantities import Quantity
from tests.simgen.heated_plate import mean_temperature as mean
"""


@dataclass(frozen=True)
class Setup:
    """How a page is run."""

    #: What `RUN` is, and the words of the page in place of which something else is taken.
    run: str = TRANSIENT
    replaced: Mapping[str, str] = field(default_factory=dict)
    #: By how a block of Python begins: Python to execute before it, and the file that it becomes.
    given: Mapping[str, str] = field(default_factory=dict)
    saved: Mapping[str, str] = field(default_factory=dict)
    #: Whether its Python asks a server, and whether its commands start one.
    served: bool = False
    serves: bool = False

    @contextmanager
    def surroundings(self) -> Iterator[Mapping[str, str]]:
        """Within it a page that needs a server has one; yields the words to replace."""
        if not self.served:
            yield self.replaced
            return
        explored = Explored(courant.load(self.run, device="cpu"), Limits())
        with serving_explored(explored) as address:
            yield {**self.replaced, SERVED: address}


SETUPS: Mapping[str, Setup] = {
    "docs/a-new-model.md": Setup(
        saved={"from dataclasses import dataclass": "my_package/my_model.py"}
    ),
    "docs/analysis.md": Setup(
        given={
            "from courant.analysis.scores": DECOMPOSED,
            "request = surrogate.prepare(points, initial=u0": STATE,
        }
    ),
    "docs/answers.md": Setup(
        STEADY,
        replaced={
            "ducts/runs": "runs",
            'bands.quantities["pressure_loss"].half_width': "seconds.meshing",
        },
        given={"import os": 'import os; os.environ["RUN"] = "RUN"'},
    ),
    "docs/bands.md": Setup(
        STEADY,
        # A model of ducts may have no band where a pipe is meshed: it is unlike all that it knows.
        replaced={'bands.quantities["branch1_share"]': 'bands.quantities.get("branch1_share")'},
    ),
    "docs/benchmark.md": Setup(STEADY, replaced={"mesh.yaml": "space.yaml"}),
    "docs/dataset-operations.md": Setup(
        # The commands above it have withdrawn this case already.
        replaced={
            'writer.withdraw(["b0159c13a91f"]': 'writer.withdraw([newest.cases("test")[-1]]',
            "s3://bucket/plain": "plain-v1",
        }
    ),
    "docs/datasets.md": Setup(
        replaced={"50_000_000_000": "50_000_000"}, given={"from simgen.cases import": SOLVED}
    ),
    "docs/importing.md": Setup(
        # Parameters of another kind make another dataset.
        replaced={"U,p \\\n    --parameter 'nu": "U,p --store other \\\n    --parameter 'nu"}
    ),
    "docs/model.md": Setup(
        replaced={"num_steps=400": "num_steps=4"},
        given={"from courant.field_model import Inputs": CLOUD, "parts = (": EXPORTED},
    ),
    "docs/optimisation.md": Setup(STEADY, replaced={"branch1_share>=0.5": "pressure_loss>=0"}),
    "docs/quantities.md": Setup(STEADY, given={"quantities = (": QUANTITY}, served=True),
    "docs/report.md": Setup(STEADY, given={"def panel(": PANEL}),
    "docs/serving.md": Setup(
        replaced={"explore RUN": f"explore {STEADY}"}, served=True, serves=True
    ),
    "docs/predicting.md": Setup(
        given={"import courant, simgen": OWN_STATE, 'surrogate = courant.load("runs/': OWN_GEOMETRY}
    ),
    "docs/where-things-are.md": Setup(
        replaced={
            "predict RUN CASE": "predict RUN b0159c13a91f",
            "openfoam FOLDER": "openfoam my-cases",
            "vtk FOLDER": "vtk results",
            "status ": "status --once ",
            "explore RUN": f"explore {STEADY}",
        },
        serves=True,
    ),
    "docs/errors.md": Setup(replaced={"b8a364afe95e": "b0159c13a91f"}),
}


#: How commands and blocks of Python begin that are not run with their page: they need a server, a
#: GPU, hours or an installation. Tests of their own run most of them.
ELSEWHERE = {
    "README.md": "make demo; make test; make setup",
    "docs/a-new-dataset.md": '"""An importer, whole',
    "docs/analysis.md": "courant analyse compare TRIALS; courant analyse compare CYLINDER/trials",
    "docs/answers.md": "make; source",
    "docs/benchmark.md": (
        "courant dataset generate-benchmark; courant benchmark STORE/darcy-flow; "
        "courant benchmark STORE/elasticity; courant benchmark STORE/diffusion-sorption; "
        "python -m bench.packed"
    ),
    "docs/chaos.md": "make chaos; python -m bench.chaos",
    "docs/deployment.md": (
        "make serve; source; python infra/prefect/server.py; prefect; courant train s3; ray "
    ),
    "docs/families/a-new-family.md": (
        "from collections.abc; courant generate lid-cavity; python -m bench.validation"
    ),
    "docs/families/a-transient-family.md": "from collections.abc",
    "docs/importing.md": "courant dataset import benchmark; courant dataset generate-benchmark",
    "docs/operations.md": (
        "python infra/prefect; prefect; make rehearse; infra/images/build; docker; PUSH=1; "
        "infra/compose; kubectl; PEOPLE_HASH; export PREFECT_API_AUTH_STRING=$(kubectl; az ; "
        "terraform; $(terraform; cd ; sbatch"
    ),
    "docs/optimisation.md": (
        "courant train STORE/centrifugal-pump; courant optimise RUN --maximise efficiency; "
        "courant generate centrifugal-pump --designs"
    ),
    "docs/quantities.md": "courant predict RUN --design radius",
    "docs/sweeps.md": "ray ; tensorboard",
    "docs/accuracy.md": "make small",
    "docs/gpu.md": "make gpu; python -m bench.packed; courant evaluate RUNS/cylinder-flow-...",
    "docs/predicting.md": "courant predict RUN --design radius; courant predict RUN case.vtu",
    "docs/training.md": "pip install; tensorboard",
    "docs/tutorial.md": "make demo; source",
    "docs/validation.md": "make validate; python -m bench.validation",
    "docs/which-cases.md": "python -m bench.validation",
    "docs/where-things-are.md": (
        "courant calibrate; courant coverage; courant optimise; courant predict RUN --design; "
        "courant report; "
        "courant runs ls |; courant dataset ls |; courant dataset withdraw |; "
        "courant families [; courant recipes [; courant metrics; "
        "courant dataset import benchmark; courant dataset generate-benchmark"
    ),
}


def run_block(setup: Setup, code: str, namespace: dict[str, object]) -> None:
    """Execute a block of Python after what it takes as known."""
    for begins, names in setup.given.items():
        if code.startswith(begins):
            run_python(names, namespace)
    run_python(code, namespace)
    for begins, name in setup.saved.items():
        if code.startswith(begins):
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text(code)
