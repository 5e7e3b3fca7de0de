"""Commands and blocks of Python that are not run with their page, by the words they begin with.

They need a server, a GPU, hours or an installation; tests of their own run most of them.
"""

ELSEWHERE: dict[str, tuple[str, ...]] = {
    "README.md": ("prefect", "make demo", "make test", "make setup", "make serve", "source"),
    "docs/a-new-dataset.md": ('"""An importer, whole',),
    "docs/analysis.md": (
        *("courant analyse compare TRIALS", "courant analyse compare CYLINDER/trials"),
    ),
    "docs/answers.md": ("make", "source"),
    "docs/benchmark.md": (
        *("courant dataset generate-benchmark", "courant benchmark STORE/darcy-flow"),
        *("courant benchmark STORE/elasticity",),
        *("courant benchmark STORE/diffusion-sorption",),
    ),
    "docs/chaos.md": ("make chaos", "python -m bench.chaos"),
    "docs/deployment.md": (
        *("make serve", "source", "python infra/prefect/server.py", "prefect"),
        *("courant train s3", "ray "),
    ),
    "docs/families/a-new-family.md": (
        *("from collections.abc", "courant generate lid-cavity"),
        *("python -m bench.validation",),
    ),
    "docs/families/a-transient-family.md": ("from collections.abc",),
    "docs/importing.md": ("courant dataset import benchmark", "courant dataset generate-benchmark"),
    "docs/operations.md": (
        *("python infra/prefect", "prefect", "make rehearse", "infra/images/build"),
        *("docker", "PUSH=1", "infra/compose", "kubectl", "PEOPLE_HASH"),
        *("export PREFECT_API_AUTH_STRING=$(kubectl", "az ", "terraform", "$(terraform"),
        *("cd ", "sbatch"),
    ),
    "docs/quantities.md": ("courant predict RUN --design radius",),
    "docs/sweeps.md": ("ray ", "tensorboard"),
    "docs/training.md": (
        *("make gpu", "courant train small-run", "make small", "pip install"),
        *("tensorboard", "courant predict RUN --design radius"),
        *("courant predict RUN case.vtu",),
    ),
    "docs/tutorial.md": ("make demo", "source"),
    "docs/validation.md": ("make validate", "python -m bench.validation"),
    "docs/where-things-are.md": (
        *("courant calibrate", "courant coverage", "courant predict RUN --design"),
        *("courant report", "courant runs ls |", "courant dataset ls |"),
        *("courant dataset withdraw |", "courant families [", "courant recipes ["),
        *("courant metrics", "courant dataset import benchmark"),
        *("courant dataset generate-benchmark",),
    ),
}
