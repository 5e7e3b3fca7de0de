"""Splits that never move a case; statistics that do not depend on how the data was cut up."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simgen
from bench.synthetic_cases import publish_cases
from simgen.case import Field
from simgen.design_space import Parameter
from simgen.imports import imported_schema
from simgen.imports.importing import SourceCase, import_cases
from simgen.moments import Moments, is_significant, moments
from simgen.publish.card import left_out
from simgen.store.schema import Source
from simgen.store.split import LEAST, LEFT_OUT, RATIOS, LeftOut, assign_splits, outlying, settled
from tests.store.conftest import SCHEMA, add, make_cloud, make_result, record

ids = st.lists(
    st.text("0123456789abcdef", min_size=4, max_size=6), min_size=1, max_size=60, unique=True
)


@given(ids, st.integers(0, 60))
def test_growing_a_dataset_moves_no_case(cases, first):
    before = assign_splits(cases[:first], {})
    after = assign_splits(cases, before)
    assert set(after) == set(cases)
    assert {case: after[case] for case in before} == before


@given(ids)
def test_small_sets_have_a_test_case_and_then_a_validation_case(cases):
    found = {*assign_splits(cases, {}).values()}
    assert found == {*("train", "test", "validation")[: len(cases)]}


@given(st.lists(st.floats(0, 1), min_size=5, max_size=11, unique=True))
def test_no_outermost_design_of_a_few_is_the_first_to_test_or_to_validate(speeds):
    designs = {f"{n:04x}": {"speed": speed, "angle": 1.0} for n, speed in enumerate(speeds)}
    splits = assign_splits([*designs], {}, designs)
    of = {s: [designs[case]["speed"] for case in splits if splits[case] == s] for s in RATIOS}
    for split in ("test", "validation"):
        assert any(min(speeds) < speed < max(speeds) for speed in of[split])
    assert {min(speeds), max(speeds)} <= {*of["train"]} or len(speeds) > 7


@pytest.mark.parametrize("batches", [1, 7])
def test_many_cases_approach_the_ratios(batches):
    cases, members = [f"{n:04x}" for n in range(500)], {}
    for batch in np.array_split(cases, batches):
        members = assign_splits([*members, *batch.tolist()], members)
    for split, ratio in RATIOS.items():
        assert list(members.values()).count(split) == pytest.approx(500 * ratio, abs=1)


def test_a_split_that_was_asked_for_holds_and_moves_no_other_case(writer, url):
    add(writer, *range(8))
    first = simgen.open_dataset(url, writer.publish("eight"))
    drawn = {case: first[case].split for case in first.cases()}
    later = range(8, 13)
    for number in later:
        record(writer, replace(make_result(number), split="calibration"), make_cloud(number))
    second = simgen.open_dataset(url, writer.publish("and five to calibrate by"))
    assert second.cases("calibration") == [make_result(number).id for number in later]
    assert {case: second[case].split for case in drawn} == drawn
    for name, of_first in first.statistics["velocity"].items():
        np.testing.assert_array_equal(second.statistics["velocity"][name], of_first)
    assert second.splits == "6 train, 1 validation, 1 test, 5 calibration"
    assert first.splits == "6 train, 1 validation, 1 test"
    add(writer, 13)
    third = simgen.open_dataset(url, writer.publish("one that is drawn"))
    alone = assign_splits([*drawn, make_result(13).id], drawn)
    assert third[make_result(13).id].split == alone[make_result(13).id]
    assert len(third.cases("calibration")) == 5


def test_a_design_that_is_solved_again_with_other_settings_keeps_its_split(writer, url):
    add(writer, *range(8))
    simgen.open_dataset(url, writer.publish("eight"))
    for number in range(9):
        result = make_result(number)
        point = replace(result.point, settings={**result.point.settings, "mesh_size": 0.7})
        record(writer, replace(result, point=point), make_cloud(number))
    dataset = simgen.open_dataset(url, writer.publish("and on another mesh"))
    splits: dict[str, set[str]] = {}
    for case in dataset.cases():
        splits.setdefault(str(dataset[case].parameters), set()).add(dataset[case].split)
    assert len(dataset) == 17 and len(splits) == 9
    assert all(len(each) == 1 for each in splits.values())


@settings(max_examples=25)
@given(st.integers(1, 5), st.integers(0, 2**32 - 1), st.floats(-1e4, 1e4))
def test_streamed_moments_equal_numpys(num_blocks, seed, offset):
    generator = np.random.default_rng(seed)
    blocks = [
        generator.normal(offset, 0.1, (generator.integers(1, 50), 7, 3)) for _ in range(num_blocks)
    ]
    streamed = Moments.empty(3)
    for block in blocks:
        streamed.add(block)
    values = np.concatenate([block.reshape(-1, 3) for block in blocks])
    assert streamed.count == len(values)
    np.testing.assert_allclose(streamed.mean, values.mean(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(streamed.deviation, values.std(axis=0), rtol=1e-6, atol=1e-10)
    np.testing.assert_array_equal(streamed.low, values.min(axis=0))
    np.testing.assert_array_equal(streamed.high, values.max(axis=0))


def publish(url, clouds, startup_s=0.0):
    """A version of cases in a family whose start takes so long."""
    cases = [(make_result(number), cloud) for number, cloud in enumerate(clouds)]
    return simgen.open_dataset(publish_cases(url, replace(SCHEMA, startup_s=startup_s), cases))


@pytest.mark.parametrize("startup_s", [0.0, 2.0])
def test_a_sudden_start_is_left_out_of_statistics_where_a_family_states_it_and_elsewhere(
    url, startup_s
):
    clouds = [make_cloud(number) for number in range(3)]
    for cloud in clouds:
        cloud.fields["kinematic_pressure"][0] *= 1e4
    dataset = publish(url, clouds, startup_s)
    (case,) = dataset.cases("train")
    number = [make_result(number).id for number in range(3)].index(case)
    rest = clouds[number].fields["kinematic_pressure"][2 if startup_s else 1 :]
    found = dataset.statistics["kinematic_pressure"]
    np.testing.assert_allclose(found["std"], rest.std(axis=(0, 1)), rtol=1e-5)
    np.testing.assert_allclose(found["max"], rest.max(axis=(0, 1)), rtol=1e-6)
    assert dataset.left_out("kinematic_pressure") == (LeftOut() if startup_s else LeftOut(1, 1, []))
    assert dataset.left_out("velocity") == dataset.left_out("points") == LeftOut()
    lines = [] if startup_s else ["kinematic_pressure, snapshots: 1, of cases: 1"]
    assert left_out(dataset) == lines
    assert dataset[case]["kinematic_pressure"][0].max() > 1e3, "it is stored"


def test_a_case_that_rules_is_left_out_of_statistics_and_training(url):
    clouds = [make_cloud(number) for number in range(10)]
    ruling = first_of(10, "train")
    clouds[ruling].fields["kinematic_pressure"] *= 1e4
    clouds[ruling].fields["velocity"] += 2.0
    dataset = publish(url, clouds)
    case = make_result(ruling).id
    assert dataset.left_out_cases == (case,)
    assert dataset.left_out("kinematic_pressure") == LeftOut(cases=[case])
    assert dataset.statistics["kinematic_pressure"]["std"] == pytest.approx(1, rel=0.1)
    rest = [clouds[n] for n in range(10) if make_result(n).id in dataset.cases("train")]
    mean = np.concatenate([each.fields["velocity"] for each in rest], axis=1).mean(axis=(0, 1))
    np.testing.assert_allclose(dataset.statistics["velocity"]["mean"], mean, atol=1e-6)
    assert left_out(dataset) == [f"the whole of {case}, in training and validation too"]
    assert len(rest) == 6 and case not in dataset.cases("train") and case in dataset.cases()
    assert dataset[case].split == "train", "a case keeps its split"
    assert dataset.splits == "6 train, 2 validation, 1 test, 1 left out"


@pytest.mark.parametrize("split", ["validation", "test"])
def test_a_wreck_outside_the_training_split_is_found_beside_it(url, split):
    clouds = [make_cloud(number) for number in range(10)]
    wreck = first_of(10, split)
    clouds[wreck].fields["velocity"] *= 1e15
    dataset = publish(url, clouds)
    assert dataset.left_out_cases == (make_result(wreck).id,)
    assert (make_result(wreck).id in dataset.cases(split)) == (split == "test")
    assert len(dataset.cases("train")) == 7
    assert dataset.statistics["velocity"]["std"].max() < 10


def test_a_wreck_is_found_among_cases_that_vary_by_little_of_their_values():
    rng = np.random.default_rng(0)
    values = {f"case{n}": 1e5 + 0.5 * rng.normal(size=(50, 1)) for n in range(6)}
    values["case3"] = values["case3"] * 1e10
    records = {case: {"p": moments(each).to_record()} for case, each in values.items()}
    assert outlying(records, {}) == ["case3"]


def dominant(values):
    """The numbers of the snapshots that a case's statistics leave out."""
    return settled(values, np.arange(float(len(values))), 0.0).get(LEFT_OUT, [])


@pytest.mark.parametrize(
    ("num_training", "shift", "is_found"),
    [(12, 4.2, False), (12, 1e4, True), (LEAST - 1, 1e4, True), (LEAST - 2, 1e4, False)],
)
def test_a_case_beside_the_training_split_is_left_out_if_it_has_nearly_all_variance(
    num_training, shift, is_found
):
    values = np.random.default_rng(0).normal(size=(num_training, 100, 1))
    training = {f"case{n}": {"p": moments(each).to_record()} for n, each in enumerate(values)}
    other = {"other": {"p": moments(values[0] + shift).to_record()}}
    assert outlying(training, other) == (["other"] if is_found else [])


def test_training_has_the_case_that_two_splits_lack_alike():
    held = {"train": 13, "validation": 2, "test": 4}  # of twenty, 0.7 and 0.15 ask for one more
    members = {f"{split}{n}": split for split, num in held.items() for n in range(num)}
    assert assign_splits([*members, "new"], members)["new"] == "train"


def test_a_component_varies_beside_its_size_and_beside_the_others():
    deviation, size = np.array([1e-9, 5e-10, 1e-14, 5e-20]), np.array([1e-9, 1e-9, 1e-14, 1e-9])
    assert is_significant(deviation, size).tolist() == [True, True, False, False]


def first_of(num_cases, split):
    """The number of the first case that is drawn into the split."""
    results = [make_result(number) for number in range(num_cases)]
    designs = {each.id: each.point.parameters for each in results}
    members = assign_splits([*designs], {}, designs)
    return next(n for n, each in enumerate(results) if members[each.id] == split)


@settings(max_examples=25)
@given(st.integers(5, 60), st.floats(0.75, 1.3), st.floats(-1e3, 1e3), st.integers(0, 2**32 - 1))
def test_what_grows_or_decays_from_one_snapshot_to_the_next_is_not_left_out(
    num_snapshots, factor, offset, seed
):
    """Nine tenths in one of twenty snapshots takes a jump, not a rate such as these."""
    noise = np.random.default_rng(seed).normal(size=(num_snapshots, 200, 1))
    amplitude = factor ** np.arange(min(num_snapshots, 20), dtype=float)
    amplitude = np.concatenate([amplitude, np.full(num_snapshots - len(amplitude), amplitude[-1])])
    assert dominant(amplitude[:, None, None] * noise + offset) == []


def test_a_start_that_dies_away_over_a_few_snapshots_is_left_out_as_a_whole():
    values = np.random.default_rng(0).normal(size=(100, 30, 1))
    values[:4] *= np.array([1e4, 1e3, 1e2, 50])[:, None, None]
    assert dominant(values) == [0, 1, 2, 3]
    values[:8] = 1e4 * values[20:28]
    assert dominant(values) == [], "eight of a hundred are not few"
    assert dominant(values[:4]) == [], "nor is one of four"


def test_a_state_far_from_all_others_rules_even_where_it_is_uniform():
    """A plate that is at 0 K before it is at 300: the deviation is in the snapshot's mean."""
    values = 300 + np.random.default_rng(0).normal(size=(20, 30, 1))
    values[0] = 0.0
    assert dominant(values) == [0]
    assert settled(values, np.arange(20.0), 4.0).get(LEFT_OUT) is None, "it is in the start-up"
    values[7] = 0.0
    assert settled(values, np.arange(20.0), 4.0)[LEFT_OUT] == [7], "counted from the first of all"


def test_a_field_that_does_nothing_else_keeps_its_only_event():
    still = np.full((20, 30, 1), 300.0, np.float32)
    still[3] += 10.0
    assert dominant(still) == []
    wrecked = still.astype(float)
    wrecked[3] += 1e7
    assert dominant(wrecked) == [3], "unless that is no state of the field at all"
    still += np.float32(3e-5) * np.random.default_rng(0).choice([-1, 0, 1], still.shape)
    assert dominant(still.astype(np.float32)) == [], "nor is rounding a scale"


def test_imported_cases_of_the_same_parameters_are_drawn_each(tmp_path):
    schema = imported_schema(
        "probes", dimension=1, fields=[Field("t", "K", ("t",))],
        source=Source("probes", "here", "CC0"), splits="drawn",
        parameters=[Parameter("nu", "", 0.0, 1.0)],
    )  # fmt: skip
    line = np.arange(4.0)[:, None]
    cases = [SourceCase(f"c{n}", line, {"t": n + line[:, 0]}, None, {"nu": 0.5}) for n in range(8)]
    dataset = simgen.open_dataset(import_cases(str(tmp_path / "probes"), schema, cases).url)
    assert dataset.cases("test") and dataset.cases("validation")
