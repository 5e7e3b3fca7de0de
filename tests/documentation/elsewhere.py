"""Commands and blocks of Python that are not run with their page, by page and reason.

A reason may be the test that runs them. Each is given by the words with which it begins.
"""

ELSEWHERE: dict[str, dict[str, tuple[str, ...]]] = {
    "README.md": {
        "tests/end_to_end/test_deployment.py": ("prefect",),
        "tests/infra/test_prefect_serve.py": (
            "make demo",
            "make test",
            "make setup",
            "make serve",
            "source",
        ),
    },
    "docs/a-new-dataset.md": {"tests/imports/test_third_dataset.py": ('"""An importer, whole',)},
    "docs/analysis.md": {
        "runs of benchmarks of hours": (
            "courant analyse compare TRIALS",
            "courant analyse compare CYLINDER/trials",
        )
    },
    "docs/answers.md": {
        "tests/end_to_end/test_answers.py": ("make", "source", "courant", "export", "import os")
    },
    "docs/benchmark.md": {
        "tests/imports/test_benchmarks.py": ("courant dataset generate-benchmark",),
        "tests/sweeps/test_benchmark.py": (
            "courant benchmark STORE/darcy-flow",
            "courant benchmark STORE/elasticity",
            "courant benchmark STORE/diffusion-sorption",
        ),
    },
    "docs/chaos.md": {"tests/end_to_end/test_chaos.py": ("make chaos", "python -m bench.chaos")},
    "docs/deployment.md": {
        "tests/infra/test_prefect_serve.py": (
            "make serve",
            "source",
            "python infra/prefect/server.py",
        ),
        "tests/end_to_end/test_deployment.py": ("prefect",),
        "tests/end_to_end/test_two_nodes.py": ("courant train s3", "ray "),
    },
    "docs/families/a-new-family.md": {
        "tests/end_to_end/test_own_families.py": (
            "from collections.abc",
            "courant generate lid-cavity",
        ),
        "half an hour of meshing": ("python -m bench.validation",),
    },
    "docs/families/a-transient-family.md": {
        "tests/end_to_end/test_own_families.py": ("from collections.abc",)
    },
    "docs/importing.md": {
        "tests/imports/test_community.py": ("courant dataset import benchmark",),
        "tests/imports/test_benchmarks.py": ("courant dataset generate-benchmark",),
    },
    "docs/operations.md": {
        "tests/infra/test_prefect_files.py": ("python infra/prefect", "prefect"),
        "tests/infra/test_rehearsal.py": ("make rehearse",),
        "tests/infra/test_images.py tests/infra/test_compose.py": (
            "infra/images/build",
            "docker",
            "PUSH=1",
            "infra/compose",
        ),
        "tests/infra/test_kubernetes.py": (
            "kubectl",
            "PEOPLE_HASH",
            "export PREFECT_API_AUTH_STRING=$(kubectl",
        ),
        "tests/infra/test_azure.py": ("az ", "terraform", "$(terraform", "cd "),
        "tests/infra/test_slurm.py": ("sbatch",),
    },
    "docs/quantities.md": {
        "tests/end_to_end/test_deployment.py": ("courant predict RUN --design radius",)
    },
    "docs/sweeps.md": {
        "tests/end_to_end/test_ray_jobs.py": ("ray ",),
        "tests/training/test_trackers.py": ("tensorboard",),
    },
    "docs/training.md": {
        "needs a GPU": ("make gpu",),
        "an hour of training": ("courant train small-run", "make small"),
        "installation": ("pip install",),
        "tests/training/test_trackers.py": ("tensorboard",),
        "100 s of a solver": ("courant predict RUN --design radius",),
        "tests/flows/test_foreign_prediction.py": ("courant predict RUN case.vtu",),
    },
    "docs/tutorial.md": {"installation": ("make demo", "source")},
    "docs/validation.md": {"hours of solving": ("make validate", "python -m bench.validation")},
    "docs/where-things-are.md": {
        "docs/bands.md runs them": (
            "courant calibrate",
            "courant coverage",
            "courant predict RUN --design",
        ),
        "tests/report/test_report.py": ("courant report",),
        "other pages run them": (
            "courant runs ls |",
            "courant dataset ls |",
            "courant dataset withdraw |",
            "courant families [",
            "courant recipes [",
        ),
        "tests/observing/test_metrics.py": ("courant metrics",),
        "tests/imports/test_community.py": ("courant dataset import benchmark",),
        "tests/imports/test_benchmarks.py": ("courant dataset generate-benchmark",),
    },
}
