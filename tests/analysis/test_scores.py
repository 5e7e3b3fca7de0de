"""Scores of planted decompositions have closed forms; those of runs are of their own fields."""

import dataclasses
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import Tensor

import courant
from courant.analysis import comparison, scores
from courant.analysis.comparison import ScoredRun, compare_runs, gather
from courant.analysis.dynamics import pod
from courant.analysis.scores import (
    NEAREST,
    POD,
    RANDOM,
    SCORES,
    AnchorFields,
    ErrorAddresses,
    core_distances,
    field_scores,
    following_scores,
    match,
    motion_sums,
    product_sums,
    swirl,
    temporal_moments,
    velocity_gradients,
    vortex_cores,
)
from courant.evaluation.metrics import ratio
from courant.models import build
from courant.prediction.surrogate import Surrogate
from courant.problems import problem_of
from courant.runs.directory import RunDirectory
from simgen.errors import InputError
from simgen.store.read import Dataset, StoredCase
from tests.analysis.conftest import grid
from tests.commands import called, refused
from tests.model.clouds import CHOICES, random_inputs, random_model
from tests.model.literal import explicit_attention, literal_forward
from tests.world import World

GENERATOR = np.random.default_rng(0)


def tiles(per_side: int, num: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split the unit square into square tiles: points, the tiles' centres, each point's tile."""
    points = grid(num)
    column, row = (points[:, :2] * per_side).astype(int).T
    middle = (np.arange(per_side) + 0.5) / per_side
    centres = np.array([(x, y, 0.0) for x in middle for y in middle])
    return points, centres, column * per_side + row


def tile_fields(per_side: int) -> AnchorFields:
    """Fields that are one on their own tile, with the anchor in its middle."""
    points, centres, labels = tiles(per_side)
    fields = (labels == np.arange(len(centres))[:, None])[..., None].astype(float)
    return AnchorFields.of(fields, points, np.ones(len(points)), centres)


def test_fields_joined_from_parts_are_those_of_all_points() -> None:
    points, volumes = grid(6), GENERATOR.uniform(0.5, 2.0, 36)
    fields = GENERATOR.normal(size=(5, 36, 2))
    whole = AnchorFields.of(fields, points, volumes)
    cuts = [slice(0, 10), slice(10, 36)]
    joined = AnchorFields.joined(
        [AnchorFields.of(fields[:, cut], points[cut], volumes[cut]) for cut in cuts]
    )
    for each in dataclasses.fields(AnchorFields):
        if (value := getattr(whole, each.name)) is not None:
            np.testing.assert_allclose(getattr(joined, each.name), value, rtol=1e-12)
    weighted = (volumes[:, None] * fields[1] * fields[3]).sum() / volumes.sum()
    assert whole.gram[1, 3] == pytest.approx(weighted)


def test_tiles_are_local_and_where_their_anchors_are() -> None:
    fields = tile_fields(4)
    np.testing.assert_allclose(fields.centroids, fields.anchors, atol=1e-12)
    np.testing.assert_allclose(fields.total, 1.0)
    np.testing.assert_allclose(fields.energies, 1 / 16)
    assert scores.own_anchor_nearest(fields).all()
    np.testing.assert_allclose(fields.supports, 0.9 / 16)
    assert scores.overlap(fields) == pytest.approx(0.0, abs=1e-12)
    # A square of side s sampled at n x n cell centres: s sqrt((1 - 1/n^2) / 6).
    np.testing.assert_allclose(fields.radii, math.sqrt((1 - 1 / 10**2) / 6) / 4)
    shifted = dataclasses.replace(fields, anchors=np.roll(fields.anchors, 1, axis=0))
    expected = np.linalg.norm(fields.anchors - shifted.anchors, axis=1)
    np.testing.assert_allclose(scores.anchor_distances(shifted), expected)
    assert not scores.own_anchor_nearest(shifted).any()


def test_support_and_centroid_weigh_cells_by_their_volume() -> None:
    volumes = np.array([9.0, 1.0])
    fields = AnchorFields.of(np.array([[[0.0], [5.0]], [[2.0], [2.0]]]), np.eye(2), volumes)
    np.testing.assert_allclose(fields.supports, [0.1, 0.9])
    np.testing.assert_allclose(fields.centroids, [[0, 1], [0.9, 0.1]])


def test_a_field_without_energy_has_no_place_and_spoils_no_other() -> None:
    values = np.zeros((2, 36, 1))
    values[0] = 1.0
    fields = AnchorFields.of(values, grid(6), np.ones(36), np.full((2, 3), 0.5))
    assert np.isnan(fields.centroids[1]).all()
    assert np.isnan(fields.supports).tolist() == [False, True]
    assert scores.own_anchor_nearest(fields).tolist() == [True, False]
    assert scores.overlap(fields) == 0.0


def test_overlap_and_cancellation_of_fields_of_one_shape() -> None:
    shape = GENERATOR.normal(size=(36, 2))
    fields = AnchorFields.of(np.stack([3 * shape, -2 * shape]), grid(6), np.ones(36))
    assert scores.overlap(fields) == pytest.approx(1.0)
    assert scores.cancellation(fields) == pytest.approx(5.0)
    assert scores.cancellation(tile_fields(3)) == pytest.approx(1.0)


def test_economy_of_known_energies() -> None:
    energies = np.array([1.0, 4.0, 3.0, 2.0])
    np.testing.assert_allclose(scores.energy_curve(energies), [0, 0.4, 0.7, 0.9, 1.0])
    # Mean absolute difference over twice the mean: (1*3 + 2*2 + 3*1) * 2 / 16 / (2 * 2.5).
    assert scores.gini(energies) == pytest.approx(0.25)
    assert scores.gini(np.eye(1, 8)[0]) == pytest.approx(1 - 1 / 8)


def test_curves_are_errors_of_fields_that_are_added_up() -> None:
    values, volumes = GENERATOR.normal(size=(5, 36, 2)) + 0.3, GENERATOR.uniform(0.5, 2.0, 36)
    gram = AnchorFields.of(values, grid(6), volumes).gram
    orders = [GENERATOR.permutation(5) for _ in range(3000)]

    def energy(numbers: np.ndarray) -> float:
        return float((volumes[:, None] * values[numbers].sum(axis=0) ** 2).sum())

    order, whole = orders[0], energy(orders[0])
    lost = [energy(order[:taken]) / whole for taken in range(6)]
    left = [energy(order[taken:]) / whole for taken in range(6)]
    np.testing.assert_allclose(scores.deletion_curve(gram, order), lost, atol=1e-12)
    np.testing.assert_allclose(scores.insertion_curve(gram, order), left, atol=1e-12)
    sampled = np.mean([scores.deletion_curve(gram, each) for each in orders], axis=0)
    np.testing.assert_allclose(scores.random_deletion(gram), sampled, atol=0.03)
    orthogonal = np.diag([1.0, 4.0, 3.0, 2.0])
    assert scores.by_energy(orthogonal).tolist() == [1, 2, 3, 0]
    deletion = scores.deletion_curve(orthogonal, scores.by_energy(orthogonal))
    assert scores.area(deletion) == pytest.approx((0.5 + 0.4 + 0.7 + 0.9) / 4)


def test_shuffled_and_scaled_fields_are_matched_again_and_unrelated_ones_hardly() -> None:
    fields, volumes = GENERATOR.normal(size=(6, 50, 2)), GENERATOR.uniform(0.5, 2.0, 50)
    order = np.array([0, 1, 3, 2, 5, 4])
    found = match(product_sums(fields, 2.0 * fields[order], volumes))
    assert found.score == pytest.approx(1.0)
    energies = (np.square(fields).sum(-1) * volumes).sum(-1)
    assert found.kept == pytest.approx(energies[:2].sum() / energies.sum())
    weaker = match(product_sums(fields, fields[order][:4], volumes))
    assert weaker.score == pytest.approx(energies[order[:4]].sum() / energies.sum())


def test_contiguity_of_whole_and_of_torn_regions() -> None:
    points, _, labels = tiles(4)
    volumes = np.ones(len(points))
    assert scores.contiguity(labels, points, volumes, 2) == 1.0
    # The outer columns of tiles are one anchor's: one half of its region is apart from the other.
    torn = np.where(labels // 4 == 3, labels % 4, labels)
    assert scores.contiguity(torn, points, volumes, 2) == pytest.approx(0.75)
    scattered = GENERATOR.integers(16, size=len(points))
    assert scores.contiguity(scattered, points, volumes, 2) < 0.15
    assert scores.contiguity(labels, points * [1.0, 0.05, 1.0], volumes, 2) is None


def test_temporal_variance_of_constant_and_oscillating_fields() -> None:
    time = np.arange(12) / 12
    swing = np.stack([np.ones(12), np.cos(2 * np.pi * time), 1 + np.cos(2 * np.pi * time)])
    fields = (swing.T[:, :, None] * GENERATOR.normal(size=30))[..., None]
    cuts = (slice(0, 11), slice(11, 30))
    moments = sum(temporal_moments(fields[:, :, cut], np.ones(30)[cut]) for cut in cuts)
    # 1 + cos has the mean square 3/2, of which 1/2 is its variance.
    np.testing.assert_allclose(ratio(*moments), [0, 1, 1 / 3], atol=1e-12)


def test_projections_on_pod_modes_add_up_to_a_field_of_their_span() -> None:
    points, volumes = grid(8), GENERATOR.uniform(0.5, 2.0, 64)
    shapes, weights = GENERATOR.normal(size=(3, 64, 2)), GENERATOR.normal(size=(9, 3))
    snapshots = 2.0 + np.tensordot(weights, shapes, axes=1)
    projected = pod(snapshots, volumes, rank=16).fields(snapshots[4], volumes)
    fields = AnchorFields.of(projected, points, volumes)
    assert fields.num_anchors == 3
    deviation = snapshots[4] - snapshots.mean(axis=0)
    np.testing.assert_allclose(fields.total, np.linalg.norm(deviation, axis=-1), rtol=1e-9)
    np.testing.assert_allclose(fields.gram - np.diag(fields.energies), 0, atol=1e-12)


def test_addresses_sum_to_the_error_exactly_and_add_up_over_parts() -> None:
    points, volumes = GENERATOR.normal(size=(300, 3)), GENERATOR.uniform(0.1, 5.0, 300)
    weights = softmax(3 * GENERATOR.normal(size=(300, 20)), axis=1).astype(np.float32)
    errors = GENERATOR.normal(size=(300, 2))
    cuts = (slice(0, 120), slice(120, 300))
    found = ErrorAddresses.joined(
        [ErrorAddresses.of(weights[c], errors[c], points[c], volumes[c]) for c in cuts]
    )
    total = (volumes[:, None] * errors**2).sum() / volumes.sum()
    assert found.total == pytest.approx(total, rel=1e-13)
    assert found.governed.sum() == pytest.approx(1.0, rel=1e-13)
    np.testing.assert_allclose(found.squared, (errors**2).sum(axis=1))
    seventh = (volumes * weights[:, 7] * (errors**2).sum(axis=1)).sum() / volumes.sum()
    assert found.errors[7] == pytest.approx(seventh, rel=1e-6)
    whole = ErrorAddresses.of(weights, errors, points, volumes)
    np.testing.assert_allclose(found.centres, whole.centres)


def test_a_planted_bad_anchor_is_found_with_its_place() -> None:
    points, centres, _ = tiles(4)
    # Each anchor has weight around its place; number 9 contributes a wrong field.
    distances = np.square(points[:, None] - centres).sum(axis=-1)
    weights, bad, volumes = softmax(-distances / 0.1**2, axis=1), 9, np.ones(len(points))
    found = ErrorAddresses.of(weights, 0.01 + 3.0 * weights[:, [bad]], points, volumes)
    assert found.worst[0] == bad == found.densities.argmax()
    np.testing.assert_allclose(found.centres[bad], centres[bad], atol=1e-2)
    assert found.worst_part(1 / 16) == pytest.approx(found.errors[bad] / found.total)
    assert found.worst_part(1 / 16) > 0.7 and found.worst_part(1.0) == pytest.approx(1.0)
    found = ErrorAddresses.of(weights, np.zeros((len(points), 2)), points, volumes)
    assert found.total == 0 and found.worst_part() == 0 and np.isnan(found.centres).all()


SIZE, SPEED, STEPS = 0.05, 0.08, 8


def cloud(num: int = 3000, dimension: int = 2) -> np.ndarray:
    return np.random.default_rng(0).uniform(size=(num, dimension))


def vortices(points: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Velocities (N, 2) of vortices whose cores rotate rigidly, of alternating sign."""
    found = np.zeros_like(points)
    for number, place in enumerate(places):
        x, y = (points - place).T
        turn = (-1) ** number * np.exp(-(x**2 + y**2) / (2 * SIZE**2))
        found += np.stack([-turn * y, turn * x], axis=1)
    return found


@pytest.mark.parametrize("dimension", [2, 3])
def test_the_gradient_of_a_linear_flow_is_exact_and_only_rotations_swirl(dimension: int) -> None:
    points = cloud(400, dimension)
    gradient = np.random.default_rng(1).normal(size=(dimension, dimension))
    found = velocity_gradients(points, points @ gradient.T)
    np.testing.assert_allclose(found, np.broadcast_to(gradient, found.shape), atol=1e-6)
    np.testing.assert_allclose(swirl(np.array([[[0.0, -3.0], [3.0, 0.0]]])), 3.0)
    np.testing.assert_allclose(swirl(np.array([[[0.0, 5.0], [0.0, 0.0]]])), 0.0)


def test_a_field_that_moves_with_a_vortex_follows_it_and_a_fixed_one_does_not() -> None:
    points, along = cloud(), 0.15 + SPEED * np.arange(STEPS)
    places = np.stack([np.stack([along, 0 * along + y], axis=1) for y in (0.3, 0.7)], axis=1)
    cores = [
        vortex_cores(points, swirl(velocity_gradients(points, vortices(points, each))), 0.1)
        for each in places
    ]
    for found, planted in zip(cores, places, strict=True):
        away = np.linalg.norm(found[:, None] - planted, axis=-1).min(axis=1)
        assert len(found) == 2 and away.max() < 0.03
    assert len(vortex_cores(points, np.zeros(len(points)), 0.1)) == 0
    # The first field is a blob on the first vortex, on top of a constant part; the second pulsates
    # in one place.
    blob = [np.exp(-np.square(points - each[0]).sum(axis=1) / (2 * 0.04**2)) for each in places]
    pulse = [
        np.sin(step) * np.exp(-np.square(points - [0.9, 0.5]).sum(axis=1) / (2 * 0.04**2))
        for step in range(STEPS)
    ]
    fields = np.stack([np.stack([a + points[:, 0], b]) for a, b in zip(blob, pulse, strict=True)])
    motion = motion_sums(fields[..., None], points, np.ones(len(points)))
    follows = following_scores(motion[:, :1], cores, 0.1)
    assert follows["vortex_distance"] < 0.5 * follows["vortex_chance"]
    fixed = following_scores(motion[:, 1:], cores, 0.1)
    assert fixed["vortex_distance"] == pytest.approx(fixed["vortex_chance"], rel=0.15)
    assert following_scores(motion, [cores[0], *[np.zeros((0, 2))] * (STEPS - 1)], 0.1) == {}


def test_distances_are_to_the_nearest_core_of_the_step_and_of_all_others() -> None:
    cores = [np.array([[0.0, 0.0], [5.0, 0.0]]), np.zeros((0, 2)), np.array([[1.0, 0.0]])]
    centroids = np.array([[[0.5, 0.0]], [[0.5, 0.0]], [[np.nan, 0.0]]])
    now, others = core_distances(centroids, cores)
    np.testing.assert_allclose(now, [[0.5], [np.nan], [np.nan]])
    np.testing.assert_allclose(others, [[0.5], [0.5], [np.nan]])


def test_scores_are_those_of_the_contributions_in_standard_deviations(
    surrogate: Surrogate, case: StoredCase
) -> None:
    start = surrogate.problem.shown_start(case)
    whole = surrogate.decompose_case(case, start_s=start)
    fields = whole.contributions / np.asarray(surrogate.normaliser.std, np.float32)
    direct = AnchorFields.of(fields[-1], case.points, case.volumes, whole.anchors)
    found = scores.score_case(surrogate, case)
    expected = field_scores(direct, found.spacing_m)
    assert {key: found.scores[key] for key in expected} == pytest.approx(expected, rel=1e-3)
    # The domain is the training cases' bounding box, which is wider than it is high.
    statistics = case.dataset.statistics["points"]
    domain = max(np.subtract(statistics["max"], statistics["min"]))
    assert found.spacing_m == pytest.approx(domain / np.sqrt(8))
    for name in (RANDOM, NEAREST):
        np.testing.assert_allclose(found.controls[name].total, found.fields.total)
        assert found.control_scores[name]["cancellation"] == pytest.approx(1.0, rel=1e-4)
    assert found.control_scores[NEAREST]["own_anchor_nearest"] > 0.8
    # Addresses sum to the error of the prediction.
    truth = surrogate.problem.solution(case, float(surrogate.times(start)[-1]))
    error = (surrogate.predict_case(case, start_s=start)[-1] - truth) / surrogate.normaliser.std
    whole_error = (case.volumes[:, None] * error**2).sum() / case.volumes.sum()
    assert found.addresses.total == pytest.approx(whole_error, rel=1e-5)
    moments = temporal_moments(fields, case.volumes)
    np.testing.assert_allclose(found.temporal_variance, ratio(*moments), rtol=1e-3)


def test_places_are_judged_where_the_last_window_is(surrogate: Surrogate, case: StoredCase) -> None:
    windowed = surrogate.experiment.derive(model={"gaussian_window": "both"})
    torch.manual_seed(0)
    model = build(windowed.model)
    for name, parameter in model.named_parameters():
        if "updates" in name:  # they start at zero, which moves nothing
            torch.nn.init.normal_(parameter, std=0.05)
    moving = Surrogate(
        surrogate.url, problem_of(windowed, surrogate.normaliser), surrogate.dataset, model
    )
    start = moving.problem.shown_start(case)
    parts = moving.decomposition(case, start_s=start)
    places = moving.places(parts.window_anchors[-1][:, -1])
    starts = moving.places(parts.anchors)
    found = scores.score_case(moving, case)
    np.testing.assert_allclose(found.fields.anchors, places)
    assert np.abs(places - starts).max() > 0.01 * found.spacing_m
    for prefix, anchors in (("", places), ("start_", starts)):
        away = np.linalg.norm(found.fields.centroids - anchors, axis=1)
        expected = float(np.median(away)) / found.spacing_m
        assert found.scores[f"{prefix}anchor_distance"] == pytest.approx(expected)
        assert f"{prefix}own_anchor_nearest" in found.scores
    displacements = scores.map_anchors(moving, case, [0], start).displacements
    np.testing.assert_allclose(displacements[0], 0, atol=1e-4)
    assert np.median(displacements[-1]) > 0.01 * found.spacing_m


def test_pod_of_a_steady_case_is_of_the_training_cases_fields(world: World, ducts: Dataset) -> None:
    steady, case = courant.load(world.ducts_run(), device="cpu"), ducts[0]
    fields = scores.score_case(steady, case).fields
    shape = (6, case.num_points, len(steady.channels))
    snapshots = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    shift = np.asarray(steady.normaliser.mean) / np.asarray(steady.normaliser.std)
    known = 0.7 * snapshots[1] + 0.3 * snapshots[4] + shift
    training = SimpleNamespace(at=lambda points, without: {case.id: snapshots}[without])
    found = scores.case_controls(steady, case, fields, known, lambda: training)
    # A field that the training fields span is the sum of their modes, and their mean.
    expected = np.linalg.norm(known - shift - snapshots.mean(axis=0), axis=-1)
    np.testing.assert_allclose(found[POD].total, expected, rtol=1e-3)
    assert POD not in scores.case_controls(steady, case, fields, known, None)


def test_the_command_prints_a_table_and_writes_scores_and_arrays(
    surrogate: Surrogate, case: StoredCase, tmp_path: Path
) -> None:
    done = called("analyse", surrogate.url, "--case", case.id, "--out", tmp_path)
    written = json.loads((tmp_path / "scores.json").read_text())
    scores = written["cases"][case.id]["scores"]
    assert written["mean"] == scores
    # Thirty seconds of these waves are less than a period.
    absent = {"seed_correlation"} | {each.key for each in SCORES if each.subject == "rhythm"}
    # No window moves anchors.
    absent |= {"start_anchor_distance", "start_own_anchor_nearest"}
    assert set(scores) == {each.key for each in SCORES} - absent
    for each in SCORES:
        assert (each.name in done.stdout) == (each.key in scores)
    with np.load(tmp_path / f"{case.id}.npz", allow_pickle=False) as arrays:
        assert arrays["energies"].shape == (8,)
        assert arrays["dominant_anchor"].shape == (case.num_points,)
        np.testing.assert_allclose(np.diagonal(arrays["gram"]), arrays["energies"])


def test_the_strongest_fields_are_written_in_physical_units(
    surrogate: Surrogate, case: StoredCase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scores, "MAX_VALUES", 7 * 2 * 8 * 2)
    asked = ["analyse", "fields", surrogate.url, "--case", case.id, "--top", "3"]
    called(*asked, "--out", tmp_path)
    start = surrogate.problem.shown_start(case)
    whole = surrogate.decompose_case(case, start_s=start)
    energies = scores.score_case(surrogate, case).fields.energies
    with np.load(tmp_path / f"{case.id}_fields.npz", allow_pickle=False) as found:
        np.testing.assert_allclose(found["energies"], energies, rtol=1e-4)
        np.testing.assert_array_equal(found["ranking"], np.argsort(-energies, kind="stable"))
        strongest = whole.contributions[-1][found["ranking"][:3]]
        np.testing.assert_allclose(found["contributions"], strongest, rtol=1e-4, atol=1e-6)
        predicted = surrogate.predict_case(case, start_s=start)[-1]
        np.testing.assert_allclose(found["total"], predicted, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found["anchors"], whole.anchors)


def test_unknown_cases_and_models_that_do_not_decompose_are_errors_of_one_line(
    surrogate: Surrogate, plain: Surrogate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = ["analyse", surrogate.url, "--out", str(tmp_path / "out"), "--case", "nowhere"]
    assert "nowhere" in refused(*asked)
    monkeypatch.setattr(comparison, "load", lambda url: plain)
    assert "a model of kind fno" in refused(*asked)
    assert not (tmp_path / "out").exists()


def test_effects_are_the_changes_of_the_prediction_without_one_anchor(
    surrogate: Surrogate, case: StoredCase, world: World, ducts: Dataset
) -> None:
    start, model = surrogate.problem.shown_start(case), surrogate.model
    found = scores.ablation_effects(surrogate, case, start)
    inputs, queries = surrogate.model_inputs(case, start)
    with torch.inference_mode():
        encoded, anchors = model.encode(inputs), model.place_anchors(inputs.points, inputs.mask)

        def change(kept: Tensor, name: str) -> float:
            Z = encoded * kept if name == "before" else encoded
            Z = model.rollout(Z, surrogate.problem.num_steps)[:, -1]
            field = model.decode(Z * kept if name == "after" else Z, queries, anchors=anchors)
            whole = model.rollout(encoded, surrogate.problem.num_steps)[:, -1]
            return float((field - model.decode(whole, queries, anchors=anchors)).square().mean())

        for name in ("before", "after"):
            expected = [change(1 - torch.eye(8)[anchor][:, None], name) for anchor in range(8)]
            np.testing.assert_allclose(found[name], expected, rtol=1e-3)
    energies = found["after"]
    assert scores.ablation_scores(found, energies)["ablation_after"] == pytest.approx(1.0)
    assert scores.ablation_scores(found, -energies)["ablation_after"] == pytest.approx(-1.0)
    steady = courant.load(world.ducts_run(), device="cpu")
    assert list(scores.ablation_effects(steady, ducts[0], None)) == ["after"]


@pytest.mark.parametrize("choice", ["window in both", "abstract queries"])
def test_reading_is_the_attention_of_the_equations(choice: str) -> None:
    config, num = CHOICES[choice], 23
    model = random_model(config, torch.float64)
    mask = torch.ones(2, num, dtype=torch.bool)
    mask[1, -5:] = False
    given = replace(random_inputs(config, points=num, dtype=torch.float64), mask=mask)
    expected: list[Tensor] = []

    def record(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        if k.shape[-2] == num:
            one_hot = torch.eye(num, dtype=q.dtype).expand(*k.shape[:-1], -1)
            expected.append(explicit_attention(q, k, one_hot, bias).mean(dim=1))
        return explicit_attention(q, k, v, bias)

    literal_forward(model, **given.tensors(), attention=record)
    found = model.reading(given.cloud, [4, 1])
    assert found.weights.shape == (2, len(expected), 2, num) == (2, 3, 2, 23)
    for level, weights in enumerate(expected):
        np.testing.assert_allclose(found.weights[:, level], weights[:, [4, 1]].detach(), atol=1e-6)
    np.testing.assert_allclose(found.weights.sum(-1), 1, rtol=1e-6)
    assert not found.weights[1, ..., -5:].any()
    assert len(found.anchors) == (0 if choice == "abstract queries" else 3)


def test_the_command_writes_the_decoder_weights_of_a_rollout(
    surrogate: Surrogate, case: StoredCase, tmp_path: Path
) -> None:
    asked = ["analyse", "maps", surrogate.url, "--anchor", "5", "--anchor", "2"]
    called(*asked, "--out", tmp_path)
    start = surrogate.problem.shown_start(case)
    whole = surrogate.decomposition(case, start_s=start).whole()
    weights = whole.weights[0].mean(dim=1).numpy()  # (T, M, L)
    with np.load(tmp_path / f"{case.id}_maps.npz") as found:
        assert found["chosen"].tolist() == [5, 2] and len(found["times"]) == 2
        expected = weights[..., [5, 2]].swapaxes(1, 2)
        np.testing.assert_allclose(found["weights"], expected, rtol=1e-5)
        assert (found["dominant"] == weights.argmax(-1)).mean() > 0.99
        assert found["reading"].shape == (2, 2, case.num_points)
        np.testing.assert_allclose(found["read_points"], case.points, atol=1e-4)
        assert "moved" not in found and "displacements" not in found
    with pytest.raises(InputError, match="anchor 8: this model has anchors 0 to 7"):
        scores.map_anchors(surrogate, case, [8], start)


def test_representative_anchors_are_strong_and_differ_in_how_they_swing() -> None:
    energies = np.array([9.0, 8.0, 7.0, 6.0, 0.1, 0.1, 0.1, 0.1])
    variance = np.array([0.1, 0.9, 0.5, np.nan, 1.0, 1.0, 1.0, 1.0])
    assert scores.representative_anchors(energies, variance) == [1, 2, 3]
    assert scores.representative_anchors(energies[::-1], None) == [7, 6, 5]
    assert scores.representative_anchors(np.ones(1), np.ones(1)) == [0]


def planted(name: str, seed: int, gini: float, **settings: Any) -> ScoredRun:
    """A run with settings such as model__width=64."""
    known = {key.replace("__", "."): value for key, value in settings.items()}
    return ScoredRun(f"runs/{name}", {"name": name, "training.seed": seed, **known}, {"gini": gini})


def test_seeds_are_one_row_with_the_mean_and_its_interval() -> None:
    found = gather(
        [
            planted("a", 1, 0.2, model__anchor_kind="sampled"),
            planted("b", 1, 0.9, model__anchor_kind="learned"),
            planted("c", 2, 0.4, model__anchor_kind="sampled"),
        ]
    )
    assert [row.label for row in found.rows] == ["first", "anchor_kind=learned"]
    assert found.rows[0].runs == ("runs/a", "runs/c")
    gini = found.rows[0].scores["gini"]
    # Student's t of one degree of freedom at 97.5 % is 12.706.
    assert gini.mean == pytest.approx(0.3)
    assert gini.half_width == pytest.approx(12.706 * 0.1, rel=1e-3)
    assert found.rows[1].scores["gini"].half_width is None


def test_rows_are_named_by_the_settings_in_which_they_differ_from_the_first() -> None:
    plain = {"model.anchor_kind": "sampled", "model.window_scale": 1.0, "model.width": 64}
    learned = {**plain, "model.anchor_kind": "learned", "data.anchor_start": "cloud"}
    narrow = {**learned, "model.window_scale": 0.35}
    scaled = {**plain, "data.scaled_by.velocity.speed": 1.0}
    settings = (plain, learned, narrow, scaled)
    runs = [ScoredRun(str(n), {**each, "training.seed": 1}) for n, each in enumerate(settings)]
    assert [row.label for row in gather(runs).rows] == [
        "first",
        "anchor_kind=learned, anchor_start=cloud",
        "anchor_kind=learned, window_scale=0.35, anchor_start=cloud",
        "scaled_by.velocity.speed=1.0",
    ]
    other = [ScoredRun("x", {**narrow, "training.seed": 1}), runs[0]]
    assert [row.label for row in gather(other).rows][1] == (
        "anchor_kind=sampled, window_scale=1.0, anchor_start=absent"
    )


def test_families_are_in_one_table_each_with_its_controls_once() -> None:
    rows = [("a", 1, 0.2, "pipe", 0.1), ("b", 1, 0.6, "pump", 0.3), ("c", 2, 0.4, "pipe", 0.2)]
    found = [
        replace(planted(name, seed, gini, family=family), controls={RANDOM: {"gini": chance}})
        for name, seed, gini, family, chance in rows
    ]
    table = gather(found)
    assert table.families == ["pipe", "pump"]
    line = table.to_markdown().splitlines()[2]
    cells = [cell.strip() for cell in line.split("|")[2:-2]]
    assert cells[0].startswith("0.300 ±") and cells[1:] == ["0.15", "0.6", "0.3"]
    assert "pipe,random partition,gini,0.15,,2" in table.to_csv()


@pytest.fixture
def runs(surrogate: Surrogate, tmp_path: Path) -> list[str]:
    """The same weights twice, as of two seeds, within a budget and on two machines."""
    shutil.copytree(surrogate.url, tmp_path / "run")
    changes: Any = {"training__budget_s": 60.0}
    found = []
    for seed in (1, 2):
        changes |= {"training__seed": seed, "training__epochs": seed, "data__resident_gb": seed}
        found.append(edited(str(tmp_path / "run"), f"seed-{seed}", **changes))
    return found


def edited(url: str, name: str, **changes: Any) -> str:
    """A copy of a run with other settings, such as data__step_s=2.0."""
    copy = Path(url).with_name(name)
    shutil.copytree(url, copy)
    experiment = json.loads((copy / "experiment.json").read_text())
    for key, value in changes.items():
        section, _, setting = key.partition("__")
        experiment[section] = experiment[section] | {setting: value} if setting else value
    (copy / "experiment.json").write_text(json.dumps(experiment))
    return str(copy)


def test_cases_are_those_of_all_versions(
    runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, scored = {runs[0]: ["a", "b"], runs[1]: ["b", "c", "a"]}, dict[str, list[str]]()

    def score(run: str, cases: list[str], *_: Any) -> Any:
        scored[run] = list(cases)
        return {"mean": {"gini": 0.5}, "controls": {}}

    def opened(url: str, *_: Any) -> Any:
        return SimpleNamespace(cases=lambda split=None: known[url])

    def record(run: RunDirectory) -> dict[str, str]:
        return {"version": "v1", "snapshot_id": run.url}

    monkeypatch.setattr(comparison, "read_dataset_record", record)
    monkeypatch.setattr(comparison, "open_recorded", opened)
    monkeypatch.setattr(comparison, "score_run", score)
    folder = RunDirectory(tmp_path / "out")
    compare_runs(runs, folder)
    assert scored == {run: ["a", "b"] for run in runs}
    known[runs[1]] = ["d"]
    with pytest.raises(InputError, match="no test case in common"):
        compare_runs(runs, folder)


def test_the_command_writes_one_table_and_goes_on_where_it_was_cut_off(
    runs: list[str], tmp_path: Path
) -> None:
    asked = ["analyse", "compare", *runs, "--out", str(tmp_path / "out")]
    called(*asked)
    first, second = sorted((tmp_path / "out").glob("seed-?-*.json"))
    first.unlink()
    kept = second.stat().st_mtime_ns
    called(*asked)
    assert first.exists() and second.stat().st_mtime_ns == kept
    written = json.loads((tmp_path / "out/comparison.json").read_text())
    (row,) = written["rows"]
    assert row["label"] == "first" and row["runs"] == runs and row["scores"]["nmae"]["mean"] > 0
    # The same weights have the same scores; two seeds are one pair, from whichever side.
    matched = row["scores"].pop("seed_correlation")
    assert matched == {"mean": pytest.approx(1), "half_width": None, "count": 1}
    for each in row["scores"].values():
        assert each["half_width"] == pytest.approx(0, abs=1e-9) and each["count"] == 2
    assert [each["label"] for each in written["controls"]] == [RANDOM, NEAREST, POD]
    for name in ("comparison", "trade-off", "fields"):
        assert (tmp_path / f"out/{name}.png").read_bytes().startswith(b"\x89PNG")
    with np.load(tmp_path / "out/fields.npz") as fields:
        assert fields["magnitudes_0"].shape == (len(fields["anchors_0"]), len(fields["points"]))
    assert "first (2)" in (tmp_path / "out/comparison.md").read_text()


def test_runs_are_compared_once_each_and_with_what_answers_the_same(
    runs: list[str], tmp_path: Path
) -> None:
    folder = RunDirectory(tmp_path / "out")
    with pytest.raises(InputError, match="name two or more"):
        compare_runs([runs[0], f"{runs[0]}/"], folder)
    again = edited(runs[0], "again")
    with pytest.raises(InputError, match=r"again and .*seed-1 are one training: name one"):
        compare_runs([*runs, again], folder)
    other = edited(runs[0], "other", data__fields=["kinematic_pressure"])
    with pytest.raises(InputError, match=r"differ in data\.fields: leave one out"):
        compare_runs([*runs, other], folder)
