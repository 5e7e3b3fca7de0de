"""Commands and blocks of the pages that are not run here, each with the reason.

A reason that names a test says where it is run. An entry that no page has any more fails the test.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Elsewhere:
    """Commands of a page that begin with one of these words, or blocks of Python that do."""

    page: str
    begins: tuple[str, ...]
    reason: str


ELSEWHERE: tuple[Elsewhere, ...] = (
    Elsewhere(
        "README.md",
        ("prefect",),
        "tests/end_to_end/test_deployment.py runs it with a server and a worker",
    ),
    Elsewhere(
        "README.md",
        ("make demo", "make test", "make setup", "make serve", "source"),
        "installation, the whole demo, a server; tests/infra/test_prefect_serve.py starts one",
    ),
    Elsewhere(
        "docs/a-new-dataset.md",
        ('"""An importer, whole',),
        "tests/imports/test_third_dataset.py imports and trains with it",
    ),
    Elsewhere(
        "docs/analysis.md",
        ("courant analyse compare TRIALS", "courant analyse compare CYLINDER/trials"),
        "these are the runs of benchmarks of hours; the same command runs on three models above",
    ),
    Elsewhere(
        "docs/answers.md",
        ("make", "source", "courant", "export", "import os"),
        "tests/end_to_end/test_answers.py runs the page from its first line to its last",
    ),
    Elsewhere(
        "docs/benchmark.md",
        ("courant dataset generate-benchmark",),
        "an hour of solving; tests/imports/test_benchmarks.py solves such cases",
    ),
    Elsewhere(
        "docs/benchmark.md",
        (
            "courant benchmark STORE/darcy-flow",
            "courant benchmark STORE/elasticity",
            "courant benchmark STORE/diffusion-sorption",
        ),
        "needs cases of the line above it; tests/sweeps/test_benchmark.py runs benchmarks",
    ),
    Elsewhere(
        "docs/chaos.md",
        ("make chaos", "python -m bench.chaos"),
        "hours of faults; tests/end_to_end/test_chaos.py runs three schedules",
    ),
    Elsewhere(
        "docs/deployment.md",
        ("make serve", "source", "python infra/prefect/server.py"),
        "installation; tests/infra/test_prefect_serve.py runs it",
    ),
    Elsewhere(
        "docs/deployment.md",
        ("prefect",),
        "tests/end_to_end/test_deployment.py runs it with a server and a worker",
    ),
    Elsewhere(
        "docs/deployment.md",
        ("courant train s3", "ray "),
        "needs a Ray cluster and S3; tests/end_to_end/test_two_nodes.py trains on one",
    ),
    Elsewhere(
        "docs/families/a-new-family.md",
        ("from collections.abc", "courant generate lid-cavity"),
        "tests/end_to_end/test_own_families.py solves, trains and reports",
    ),
    Elsewhere(
        "docs/families/a-new-family.md",
        ("python -m bench.validation",),
        "meshes 64 designs of each family for half an hour",
    ),
    Elsewhere(
        "docs/families/a-transient-family.md",
        ("from collections.abc",),
        "tests/end_to_end/test_own_families.py solves, trains and reports",
    ),
    Elsewhere(
        "docs/importing.md",
        ("courant dataset import benchmark",),
        "needs gigabytes of published files; tests/imports/test_community.py reads small ones",
    ),
    Elsewhere(
        "docs/importing.md",
        ("courant dataset generate-benchmark",),
        "half an hour of solving; tests/imports/test_benchmarks.py solves such cases",
    ),
    Elsewhere(
        "docs/operations.md",
        ("python infra/prefect",),
        "tests/infra/test_prefect_files.py installs them on a server",
    ),
    Elsewhere(
        "docs/operations.md",
        ("make rehearse",),
        "root and PostgreSQL; tests/infra/test_rehearsal.py checks its parts",
    ),
    Elsewhere(
        "docs/operations.md",
        ("infra/images/build", "docker", "PUSH=1", "infra/compose"),
        "needs a container engine; tests/infra/test_images.py, tests/infra/test_compose.py",
    ),
    Elsewhere(
        "docs/operations.md",
        ("kubectl", "PEOPLE_HASH", "export PREFECT_API_AUTH_STRING=$(kubectl"),
        "needs a Kubernetes cluster; tests/infra/test_kubernetes.py checks the objects",
    ),
    Elsewhere(
        "docs/operations.md",
        ("prefect",),
        "needs a pool of Kubernetes; tests/infra/test_prefect_files.py checks the deployments",
    ),
    Elsewhere(
        "docs/operations.md",
        ("az ", "terraform", "$(terraform", "cd "),
        "needs an account of Azure; tests/infra/test_azure.py checks the files",
    ),
    Elsewhere(
        "docs/operations.md",
        ("sbatch",),
        "needs Slurm; tests/infra/test_slurm.py runs the script with Slurm's commands replaced",
    ),
    Elsewhere(
        "docs/quantities.md",
        ("courant predict RUN --design radius",),
        "100 s of a solver; tests/end_to_end/test_deployment.py",
    ),
    Elsewhere(
        "docs/sweeps.md",
        ("ray ",),
        "starts a Ray of its own; tests/end_to_end/test_ray_jobs.py runs a job on one",
    ),
    Elsewhere(
        "docs/sweeps.md",
        ("tensorboard",),
        "a server until Ctrl-C; tests/training/test_trackers.py reads the files that it shows",
    ),
    Elsewhere(
        "docs/training.md",
        ("python -m courant.training",),
        "minutes of training; tests/training/test_command_line.py runs the program",
    ),
    Elsewhere("docs/training.md", ("make gpu",), "needs a GPU; bench/bench_gpu.py is what it runs"),
    Elsewhere(
        "docs/training.md",
        ("courant train small-run",),
        "needs the solves of make small; the same command trains above, at another size",
    ),
    Elsewhere("docs/training.md", ("pip install",), "installs a package"),
    Elsewhere(
        "docs/training.md",
        ("tensorboard",),
        "a server until Ctrl-C; tests/training/test_trackers.py reads the files that it shows",
    ),
    Elsewhere("docs/training.md", ("courant predict RUN --design radius",), "100 s of a solver"),
    Elsewhere(
        "docs/training.md",
        ("courant predict RUN case.vtu",),
        "tests/flows/test_foreign_prediction.py predicts on meshes of a reader's own",
    ),
    Elsewhere(
        "docs/training.md", ("make small",), "an hour of training; the demo's steps at another size"
    ),
    Elsewhere("docs/tutorial.md", ("make demo", "source"), "installation and the whole demo"),
    Elsewhere(
        "docs/validation.md",
        ("make validate", "python -m bench.validation"),
        "hours of solving; `make validate` is the study itself",
    ),
    Elsewhere(
        "docs/where-things-are.md",
        ("courant calibrate", "courant coverage", "courant predict RUN --design"),
        "runs on docs/bands.md with a steady model that has calibration cases",
    ),
    Elsewhere(
        "docs/where-things-are.md", ("courant report",), "tests/report/test_report.py draws reports"
    ),
    Elsewhere(
        "docs/where-things-are.md",
        (
            "courant runs ls |",
            "courant dataset ls |",
            "courant dataset withdraw |",
            "courant families [",
            "courant recipes [",
        ),
        "a list of commands, each of which is run on another page",
    ),
    Elsewhere(
        "docs/where-things-are.md",
        ("courant metrics",),
        "a server until Ctrl-C; tests/observing/test_metrics.py asks it",
    ),
    Elsewhere(
        "docs/where-things-are.md",
        ("courant dataset import benchmark",),
        "needs published files; tests/imports/test_community.py reads small ones",
    ),
    Elsewhere(
        "docs/where-things-are.md",
        ("courant dataset generate-benchmark",),
        "half an hour of solving; tests/imports/test_benchmarks.py solves such cases",
    ),
)
