"""Flow `generate-and-train`: the main job.

Stages hand URLs to each other, and each finds its finished work again.
"""

from __future__ import annotations

from dataclasses import asdict, replace

from prefect import flow

from flows.cluster.process_logs import know_flow_run
from flows.evaluate_surrogate import evaluate
from flows.generate_dataset import generate
from flows.settings import absolute
from flows.stages.main_job import MainJob, Outcome, StageName
from flows.sweep_surrogate import sweep as try_space
from flows.train_surrogate import train
from simgen.design_space import Sampler


@flow(name="generate-and-train", flow_run_name="{family}, {cases} cases")
def generate_and_train(
    family: str = "cylinder-flow",
    cases: int = 8,
    sampler: Sampler = "sobol",
    seed: int = 42,
    preset: str | None = None,
    settings: dict[str, float] | None = None,
    designs: str | None = None,
    recipe: str | None = None,
    experiment: str | None = None,
    sweep: str | None = None,
    trials: int | None = None,
    store: str | None = None,
    runs: str | None = None,
    report: str | None = None,
    time_limit_s: float | None = None,
    retry_failed: bool = False,
    cores: int = 1,
    archive_raw: bool = False,
    dataset: str | None = None,
    version: str | None = None,
    run: str | None = None,
    until: StageName = "report",
) -> Outcome:
    """Sample and solve designs, publish a dataset version, train on it, evaluate, report.

    Stages that are done elsewhere are skipped.

    Args:
        family: The case family, as `courant families` lists them.
        cases: How many designs to sample.
        sampler: How designs are sampled in the design space.
        seed: Seed of the sampling.
        preset: Solver settings: `trial` is coarse and short, `paper` is the paper's. Where not
            given, `trial` or the family's first.
        settings: Solver settings that replace those of the preset, by name.
        designs: A CSV file of design parameters to solve instead of sampled ones, or a dataset
            whose test designs are solved.
        recipe: A training run by name, as `courant recipes` lists them; `<family>-demo` where not
            given.
        experiment: A JSON file with a training run, in place of a recipe.
        sweep: A search space to try first; its best setting is what is trained.
        trials: How many settings the sweep tries; the space's own number where not given.
        store: Where datasets are: a folder or s3://bucket/prefix; COURANT_STORE where not given.
        runs: Where runs are: a folder or s3://bucket/prefix; COURANT_RUNS where not given.
        report: Where the report goes; a folder in COURANT_REPORTS where not given.
        time_limit_s: Limit of a case's meshing, and of its solver, in seconds of wall time.
        retry_failed: Solve failed cases again.
        cores: Cores of one machine for each case; above 1 its solver runs under MPI.
        archive_raw: Keep accepted cases' directories as well, as those of all others are kept.
        dataset: A dataset, in place of the generation.
        version: The dataset's version, such as v2; the newest where not given.
        run: A trained run, in place of all stages before the evaluation.
        until: The last stage: `dataset`, `run` or `report`.
    """
    know_flow_run()
    job = MainJob(
        family=family,
        cases=cases,
        sampler=sampler,
        seed=seed,
        preset=preset,
        settings=settings,
        designs=designs,
        recipe=recipe,
        experiment=experiment,
        sweep=sweep,
        trials=trials,
        store=store,
        runs=runs,
        report=report,
        time_limit_s=time_limit_s,
        retry_failed=retry_failed,
        cores=cores,
        archive_raw=archive_raw,
        dataset=dataset,
        version=version,
        run=run,
        until=until,
    ).resolved()
    if run:
        return Outcome(None, absolute(run), evaluate(**asdict(job.evaluation_of(run))))
    published = job.published if dataset else generate(**asdict(job.generation))
    assert published is not None
    if until == "dataset":
        return Outcome(published, None, None)
    training = job.training_on(published)
    space = job.sweep_on(published)
    if space:
        tried = try_space(**asdict(space))
        # A trial is an ordinary run: the best one is found there if it was trained to its end, and
        # goes on if not.
        training = replace(training, recipe=None, experiment=tried.best, runs=tried.trials)
    trained = train(**asdict(training))
    if until == "run":
        return Outcome(published, trained.url, None)
    measured = evaluate(**asdict(job.evaluation_of(trained.url)))
    return Outcome(published, trained.url, measured)
