"""The solver on coarser meshes as a rival of the surrogate: known errors are found, and paid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import simgen
from courant.evaluation.costs.coarse_meshes import measure_coarse_meshes
from courant.evaluation.costs.ledger import Ledger, SolverTimes
from courant.evaluation.costs.same_error import (
    RECORD,
    CoarseCase,
    CoarseMesh,
    CoarseMeshes,
    SameError,
    same_error,
)
from courant.evaluation.evaluate import evaluate
from courant.evaluation.interval import Interval
from courant.evaluation.metrics import ErrorSums
from courant.problems import open_problem
from courant.recipes import get_recipe
from courant.report.report import write_report
from courant.runs.directory import RunDirectory
from courant.training.loop import fit
from flows.stages.evaluation import Measurement
from flows.stages.generation import Generation
from simgen.case import CaseResult
from simgen.cases import get_family
from simgen.errors import InputError
from simgen.point_cloud import PointCloud
from simgen.store.access.reader import Dataset
from simgen.store.access.writer import DatasetWriter
from simgen.store.format.layout import Schema
from tests.training.ducts import SPACE, duct, tiny_steady
from tests.training.waves import tiny_experiment, travelling_wave

PIPE, CYLINDER = get_family("branched-pipe"), get_family("cylinder-flow")
Cloud = Callable[[int, float], PointCloud]


def publish(
    folder: Path,
    family: str,
    cloud: Cloud,
    sizes: dict[float, float],
    num: int = 10,
    cpu_s: float | None = None,
    **settings: float,
) -> Dataset:
    """Publish designs on meshes of these sizes, solved in so many seconds on two cores."""
    made = get_family(family)
    writer = DatasetWriter.open(str(folder / family), Schema.of(made))
    fork = writer.fork()
    for number, design in enumerate(made.design_space.sample(num, "sobol", 1)):
        for size, seconds in sizes.items():
            point = made.point(design, made.settings("trial", {"mesh_size": size, **settings}))
            provenance = {"wall_time_s": {"mesh": 1.0, "solve": seconds}, "cores": 2}
            if cpu_s is not None:
                provenance["cpu_time_s"] = {"solve": cpu_s}
            result = CaseResult(point, "accepted", provenance=provenance)
            fork.write(result, cloud(number, size))
    writer.commit([fork])
    writer.publish("meshes")
    return simgen.open_dataset(writer.url)


def pipe(number: int, size: float) -> PointCloud:
    """A solution that is a tenth too large for each length by which its cells are above 7."""
    made = duct(80, SPACE.sample(10, "sobol", 1)[number], seed=number)
    grown = {name: values * (1 + (size - 7) / 10) for name, values in made.fields.items()}
    return replace(made, fields=grown)


@pytest.fixture(scope="module")
def fine(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return publish(tmp_path_factory.mktemp("fine"), "branched-pipe", pipe, {7.0: 20.0})


@pytest.fixture(scope="module")
def coarse(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("coarse")
    return publish(folder, "branched-pipe", pipe, {12.0: 0.5, 9.0: 4.0})


def test_errors_and_times_of_coarser_meshes_are_found_and_kept(
    fine: Dataset, coarse: Dataset, tmp_path: Path
) -> None:
    problem = open_problem(get_recipe("branched-pipe-small"), fine)
    folder = RunDirectory(tmp_path)
    found = measure_coarse_meshes(folder, problem, fine, "test", coarse)
    assert [each.size for each in found.meshes] == [12.0, 9.0]
    assert [each.nmae for each in found.meshes] == pytest.approx([0.5, 0.2], rel=1e-4)
    assert [each.relative_l2 for each in found.meshes] == pytest.approx([0.5, 0.2], rel=1e-4)
    assert [each.solve_s for each in found.meshes] == [1.0, 8.0]
    assert [list(each.cases) for each in found.meshes] == [fine.cases("test")] * 2
    assert {case.reference_s for each in found.meshes for case in each.cases.values()} == {40.0}
    assert list(found.shared) == fine.cases("test")
    assert found.num_designs == len(found.shared)
    assert found.reference_size == 7.0
    written = (tmp_path / RECORD).stat().st_mtime_ns
    assert measure_coarse_meshes(folder, problem, fine, "test", coarse) == found
    assert (tmp_path / RECORD).stat().st_mtime_ns == written
    other = measure_coarse_meshes(folder, problem, fine, "train", coarse)
    assert other.split == "train" and list(other.shared) == fine.cases("train")


def test_a_smooth_solution_is_carried_to_another_mesh_with_little_error(tmp_path: Path) -> None:
    def scattered(number: int, size: float) -> PointCloud:
        made = duct(2000, SPACE.sample(10, "sobol", 1)[number], seed=int(100 * size) + number)
        return replace(
            made,
            fields={
                name: np.cos(made.points.sum(1))[:, None] * np.ones((1, values.shape[1]), "f4")
                for name, values in made.fields.items()
            },
        )

    one = publish(tmp_path / "one", "branched-pipe", scattered, {7.0: 20.0})
    other = publish(tmp_path / "other", "branched-pipe", scattered, {9.0: 4.0})
    problem = open_problem(get_recipe("branched-pipe-small"), one)
    found = measure_coarse_meshes(RunDirectory(tmp_path), problem, one, "test", other)
    assert 0 < found.meshes[0].nmae < 0.05


def test_a_transient_solution_is_held_against_every_step_of_every_window(tmp_path: Path) -> None:
    def wave(number: int, size: float) -> PointCloud:
        made = travelling_wave(60, 1.0 + 0.1 * number, seed=number)
        fields = dict(made.fields)
        fields["velocity"] = fields["velocity"] * size
        return replace(made, fields=fields)

    ends = {"end_time": 30.0}
    one = publish(tmp_path / "one", "cylinder-flow", wave, {1.0: 20.0}, **ends)
    other = publish(tmp_path / "other", "cylinder-flow", wave, {1.5: 6.0}, **ends)
    problem = open_problem(tiny_experiment(), one)
    found = measure_coarse_meshes(RunDirectory(tmp_path), problem, one, "test", other)
    assert found.meshes[0].nmae == pytest.approx(0.5, rel=1e-4)
    share = problem.num_steps * problem.step_s / 30.0
    assert found.meshes[0].solve_s == pytest.approx(12.0 * share)


def test_a_transient_solver_on_another_mesh_is_not_blamed_for_its_phase(tmp_path: Path) -> None:
    """Two meshes shed the same wake, the coarse one a third of a period later."""
    late = 3.0

    def wave(number: int, size: float) -> PointCloud:
        made = travelling_wave(60, 1.0 + 0.1 * number, seed=number)
        assert made.time is not None
        shift = round(late / float(made.time[1] - made.time[0])) if size > 1 else 0
        fields = {name: np.roll(values, shift, axis=0) for name, values in made.fields.items()}
        return replace(made, fields=fields)

    ends = {"end_time": 30.0}
    one = publish(tmp_path / "one", "cylinder-flow", wave, {1.0: 20.0}, **ends)
    other = publish(tmp_path / "other", "cylinder-flow", wave, {1.5: 6.0}, **ends)
    problem = open_problem(tiny_experiment(), one)
    found = measure_coarse_meshes(RunDirectory(tmp_path), problem, one, "test", other)
    at_the_same_time = ErrorSums([channel.name for channel in problem.normaliser.channels])
    for case, coarse in zip(*(each.cases("test") for each in (one, other)), strict=True):
        shifted = np.asarray(other[coarse]["velocity"])[..., :2]
        at_the_same_time.add(shifted, np.asarray(one[case]["velocity"])[..., :2])
    assert found.meshes[0].nmae < 0.3 * at_the_same_time.total()["nmae"]


def test_what_is_no_coarser_mesh_of_the_designs_is_refused_in_one_line(
    fine: Dataset, coarse: Dataset, tmp_path: Path
) -> None:
    problem = open_problem(get_recipe("branched-pipe-small"), fine)
    folder = RunDirectory(tmp_path)
    way_out = "courant generate branched-pipe --designs .* --set mesh_size=10.5"
    with pytest.raises(InputError, match=f"no accepted case of these designs .* than 7; {way_out}"):
        measure_coarse_meshes(folder, problem, fine, "test", fine)
    with pytest.raises(InputError, match="has no calibration case"):
        measure_coarse_meshes(folder, problem, fine, "calibration", coarse)
    longer = publish(tmp_path, "branched-pipe", pipe, {9.0: 4.0}, max_iterations=900.0)
    with pytest.raises(InputError, match="differs from the dataset's cases in other settings"):
        measure_coarse_meshes(folder, problem, fine, "test", longer)
    assert not folder.exists(RECORD)


def meshes(
    *of: tuple[float, float, float], cases: Sequence[Sequence[str]] | None = None
) -> CoarseMeshes:
    """Meshes of size, error and seconds, of a design that takes 20 s on the dataset's own."""
    return CoarseMeshes(
        snapshot="one",
        split="test",
        coarse="other",
        components=("velocity.x",),
        reference_size=5.0,
        num_designs=4,
        meshes=tuple(
            CoarseMesh(
                size=size,
                nmae=nmae,
                relative_l2=nmae,
                cases={
                    case: CoarseCase(nmae=nmae, solve_s=seconds, reference_s=20.0)
                    for case in (cases[number] if cases else ["a"])
                },
            )
            for number, (size, nmae, seconds) in enumerate(of)
        ),
    )


def rival(of: CoarseMeshes, nmae: float) -> SameError:
    found = same_error(of, {"a": nmae})
    assert found is not None
    return found


def test_a_mesh_between_two_has_size_and_time_by_powers_of_the_error() -> None:
    two = meshes((16.0, 0.4, 1.0), (8.0, 0.1, 9.0))
    found = rival(two, 0.2)
    assert found.size == pytest.approx(8 * 2**0.5)
    assert found.solve_s == pytest.approx(3.0)
    assert found.text == "11.3" and found.time_text("{:.3g} s".format) == "3 s"
    assert rival(two, 0.4).solve_s == pytest.approx(1.0)
    coarser = rival(two, 0.5)
    assert coarser.text == "coarser than 16"
    assert coarser.time_text("{:.3g} s".format) == "at most 1 s"


def test_a_mesh_of_a_smaller_error_lies_between_the_best_and_the_datasets_own() -> None:
    two = meshes((16.0, 0.4, 1.0), (8.0, 0.1, 9.0))
    found = rival(two, 0.01)
    assert found.text == "between 8 and 5"
    assert found.time_text("{:.3g} s".format) == "9 s to 20 s"
    # A coarse mesh that took longer than the dataset's own bounds nothing.
    found = rival(meshes((16.0, 0.4, 1.0), (8.0, 0.1, 21.0)), 0.01)
    assert found.time_text("{:.3g} s".format) == "not known"


def test_a_dearer_mesh_that_is_no_better_is_passed_over() -> None:
    three = meshes((16.0, 0.4, 1.0), (12.0, 0.5, 2.0), (8.0, 0.1, 9.0))
    assert 2.0 < rival(three, 0.3).solve_s < 9.0
    assert rival(three, 0.45).beyond == "coarser"


def test_only_designs_that_every_mesh_has_are_compared() -> None:
    two = meshes((16.0, 0.4, 1.0), (8.0, 0.1, 9.0), cases=(["a"], ["a", "b", "c"]))
    found = same_error(two, {"a": 0.2, "b": 9.0, "c": 9.0, "d": 9.0})
    assert found is not None and (found.num_shared, found.num_designs) == (1, 4)
    assert found.size == pytest.approx(8 * 2**0.5), "the errors of b, c and d do not count"
    assert same_error(two, {"b": 0.2}) is None


def test_a_surrogate_also_has_to_pay_for_itself_against_the_mesh_of_its_error() -> None:
    solver = SolverTimes(10, 990.0, Interval(20.0, None, 1))
    training = Interval(10.0, None, 1)
    two = meshes((16.0, 0.4, 2.0), (8.0, 0.1, 8.0))
    ledger = Ledger(solver, training, None, 1.0, rival(two, 0.2))
    assert ledger.break_even_with_rival == pytest.approx((334, 334), abs=1)
    assert ledger.rival_text() in ("333", "334", "335")
    assert replace(ledger, rival=rival(two, 0.5)).rival_text() == "more than 1,000"
    assert replace(ledger, rival=rival(two, 0.05)).rival_text() == "53 to 143"
    assert replace(ledger, rival=rival(two, 0.05), prediction_s=9.0).rival_text() == "more than 91"
    assert replace(ledger, prediction_s=9.0).rival_text() == "never"
    dear = meshes((16.0, 0.4, 2.0), (8.0, 0.1, 21.0))
    assert replace(ledger, rival=rival(dear, 0.05)).rival_text() == "not known"
    assert replace(ledger, rival=None).rival_text() is None


def test_processor_time_is_never_held_against_wall_time(fine: Dataset, tmp_path: Path) -> None:
    told = publish(tmp_path, "branched-pipe", pipe, {9.0: 4.0}, cpu_s=3.0)
    problem = open_problem(get_recipe("branched-pipe-small"), fine)
    found = measure_coarse_meshes(RunDirectory(tmp_path), problem, fine, "test", told)
    assert found.meshes[0].solve_s == 8.0, "the dataset's own cases have wall times alone"
    both = publish(tmp_path / "fine", "branched-pipe", pipe, {7.0: 20.0}, cpu_s=15.0)
    found = measure_coarse_meshes(RunDirectory(tmp_path), problem, both, "test", told)
    assert found.meshes[0].solve_s == 3.0
    assert {case.reference_s for case in found.meshes[0].cases.values()} == {15.0}


def test_the_test_designs_of_a_dataset_are_solved_with_its_settings_and_those_given(
    fine: Dataset, coarse: Dataset
) -> None:
    asked = Generation("branched-pipe", designs=fine.url, settings={"mesh_size": 9.0})
    wanted = [fine[case] for case in fine.cases("test")]
    assert [point.parameters for point in asked.points] == [case.parameters for case in wanted]
    assert {point.id for point in asked.points} <= {case.id for case in coarse}
    with pytest.raises(InputError, match="holds branched-pipe, not cylinder-flow"):
        _ = Generation("cylinder-flow", designs=fine.url).points


def test_a_run_is_evaluated_beside_coarser_meshes_once_and_its_report_has_them(
    fine: Dataset, coarse: Dataset, tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    run = RunDirectory(tmp_path / "runs") / "tiny"
    fit(tiny_steady(), fine, run)
    evaluate(run.url)
    plain = Measurement(run.url, str(tmp_path / "report"))
    asked = replace(plain, coarse=coarse.url)
    write_report(run.url, plain.folder)
    assert plain.finished() is not None
    assert asked.finished() is None and not run.exists(RECORD), "looking measures nothing"
    assert asked.prepare() is None
    asked.measure_coarse()
    assert plain.finished() is None, "the report is of what was measured before"
    write_report(run.url, plain.folder)
    assert asked.finished() is not None and plain.finished() is not None
    page = (tmp_path / "report/index.html").read_text()
    assert "the solver on a mesh of the model" in page and "mesh_size" in page
    other = publish(tmp_path, "branched-pipe", pipe, {9.0: 4.0})
    assert replace(asked, coarse=other.url).finished() is None
