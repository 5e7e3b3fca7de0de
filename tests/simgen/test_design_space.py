"""Designs, sampled or read from files of every kind, inside the box, with stable ids."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgen.cases import get_family
from simgen.design_space import SAMPLERS, DesignPoint, DesignSpace, Parameter, unique
from simgen.errors import InputError
from tests.trials import trials

SPACE = DesignSpace((Parameter("radius", "m", 0.75, 4.0), Parameter("speed", "m/s", -8.0, 8.0)))


@pytest.mark.parametrize("method", SAMPLERS)
def test_every_sampler_is_seeded_and_stays_inside_the_box(method):
    designs = SPACE.sample(13, method, seed=3)
    assert designs == SPACE.sample(13, method, seed=3)
    assert (designs != SPACE.sample(13, method, seed=4)) == (method != "grid")
    assert len(designs) >= 13
    assert len({tuple(design.values()) for design in designs}) == len(designs)
    if method == "grid":
        corners = SPACE.sample(2 ** len(SPACE.parameters), method)
        assert all(corner in designs for corner in corners)
    for design in designs:
        assert 0.75 <= design["radius"] <= 4.0
        assert -8.0 <= design["speed"] <= 8.0


@pytest.mark.parametrize("num", [1, 2, 7, 8])
def test_a_sobol_design_grows_without_moving_its_points(num):
    assert SPACE.sample(num) == SPACE.sample(100)[:num]


def test_ids_depend_on_physics_and_settings_but_not_on_order():
    point = DesignPoint("f", 1, {"a": 1.0, "b": 2.0}, {"end": 3.0})
    assert point.id == DesignPoint("f", 1, {"b": 2.0, "a": 1.0}, {"end": 3.0}).id
    assert len(point.id) == 12
    changes = {"family": "g", "family_revision": 2, "parameters": {"a": 1.5, "b": 2.0}}
    others = [replace(point, **{name: new}) for name, new in (changes | {"settings": {}}).items()]
    assert len({point.id, *(other.id for other in others)}) == 5


@pytest.mark.parametrize(
    ("name", "design", "of_first_revision", "now"),
    [
        ("cylinder-flow", {"radius": 1.5, "center_x": 0}, "1ecb90e2a24e", "48630933a762"),
        ("branched-pipe", {}, "c2faea661432", "e84a73a2a375"),
        ("centrifugal-pump", {}, "8a4820abb687", "d5bf23f8ad02"),
    ],
)
def test_an_id_never_changes_between_releases(name, design, of_first_revision, now):
    family = get_family(name)
    middle = {each.name: (each.low + each.high) / 2 for each in family.design_space.parameters}
    point = family.point({**middle, **design}, family.settings("paper"))
    assert (replace(point, family_revision=1).id, point.id) == (of_first_revision, now)


def test_what_is_no_design_sample_family_or_setting_is_named():
    cylinder = get_family("cylinder-flow")
    for call, message in (
        (lambda: DesignSpace(SPACE.parameters[:1] * 2), "two parameters have the name 'radius'"),
        (lambda: SPACE.check({"radius": 5.0, "speed": 0.0}), r"outside its range \[0.75, 4\] m"),
        (lambda: SPACE.check({"radius": float("nan"), "speed": 0.0}), "radius = nan m is outside"),
        (lambda: SPACE.check({"radius": 1.0}), "missing speed"),
        (lambda: SPACE.check({"radius": 1.0, "speed": 0.0, "color": 1.0}), "unknown color"),
        (lambda: SPACE.sample(0), "ask for 1 to 1,000,000"),
        (lambda: SPACE.sample(10**11, "uniform"), "ask for 1 to 1,000,000"),
        (lambda: SPACE.sample(4, "halton"), "choose one of sobol"),
        (lambda: get_family("teapot"), "'teapot' is unknown; choose one of cylinder-flow"),
        (lambda: cylinder.settings("quick"), "choose one of paper, trial"),
        (lambda: cylinder.settings("trial", {"mesh": 2.0}), "unknown mesh; did you mean mesh_size"),
        (lambda: cylinder.settings("trial", {"end_time": -1}), "end_time = -1 s is outside"),
        (
            lambda: get_family("branched-pipe").settings("trial", {"max_iterations": 1500.5}),
            "max_iterations = 1500.5 is no whole number",
        ),
    ):
        with pytest.raises(InputError, match=message):
            call()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"end_time": 10, "snapshot_interval": 20}, "end_time = 10 s is no multiple of snapshot_"),
        ({"end_time": 10, "snapshot_interval": 3}, "is no multiple of snapshot_interval = 3 s"),
        ({"time_step": 1, "snapshot_interval": 0.5}, "time_step = 1 s is longer than snapshot_"),
    ],
)
def test_stored_times_that_miss_the_end_are_refused_before_anything_is_solved(changes, problem):
    family = get_family("cylinder-flow")
    with pytest.raises(InputError, match=problem):
        family.settings("trial", changes)
    rounded = {"end_time": 59.7, "snapshot_interval": 0.1, "time_step": 0.1}
    assert family.settings("trial", rounded)["end_time"] == 59.7


GOOD = b"radius,speed\n2,1.5\n0.75,-3\n"
READ = [{"radius": 2.0, "speed": 1.5}, {"radius": 0.75, "speed": -3.0}]


def test_a_file_is_read_whoever_wrote_it(tmp_path):
    file = tmp_path / "designs.csv"
    for content in (
        b"\xef\xbb\xbf" + GOOD,  # the mark that Excel puts first
        GOOD.replace(b"\n", b"\r\n"),
        GOOD + b"\n,\n  \n",  # lines that a spreadsheet leaves behind
        b'"radius", speed\n"2", 1.5\n0.75,-3.0e0',
    ):
        file.write_bytes(content)
        assert SPACE.read_csv(file) == READ


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"radius,speed\n2,1\xe9\n", r"is no UTF-8 text \(byte 16\); save it as CSV in UTF-8"),
        ("radius,speed\n2,1\n".encode("utf-16"), "is no UTF-8 text"),
        (b"PK\x03\x04\x00\x00", "holds no design"),
        (b"radius,speed,speed\n2,1,2\n", "has more than one column 'speed'; keep one"),
        (b"radius,speed\n2,1\n9,1\n", "line 3: radius = 9"),
        (b"radius,speed\n2,1\n2,1,5\n", "line 3: 3 values, its header has 2 columns"),
        (b"radius,speed\n2,1_0\n", "line 2: speed = '1_0' is no number"),
        (b"", "holds no design; expected a header radius,speed"),
    ],
)
def test_any_other_file_is_one_line_that_names_it(tmp_path, content, message):
    file = tmp_path / "designs.csv"
    file.write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        SPACE.read_csv(file)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_negative_zero_is_the_same_design_as_zero(tmp_path):
    file = tmp_path / "designs.csv"
    file.write_text("radius,speed\n2,0\n2,-0.0\n2,-0\n")
    designs = SPACE.read_csv(file)
    assert [str(row["speed"]) for row in designs] == ["0.0"] * 3
    assert len(unique([DesignPoint("f", 1, row, {}) for row in designs])) == 1


@settings(max_examples=trials(150), deadline=None)
@given(content=st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_no_content_is_anything_but_designs_or_one_line(tmp_path_factory, content):
    file = tmp_path_factory.getbasetemp() / "any.csv"
    file.write_bytes(b"radius,speed\n" + content)
    try:
        designs = SPACE.read_csv(file)
    except InputError as error:
        assert str(file) in str(error)
        assert "\n" not in str(error)
    else:
        assert all(SPACE.check(design) == design for design in designs)


def test_a_value_is_stated_with_its_name_and_unit_but_for_a_plain_number():
    assert (
        Parameter("lid_velocity", "m2/s2", 0.0, 1.0).stated(0.123456) == "lid velocity 0.123 m²/s²"
    )
    assert Parameter("share", "1", 0.0, 1.0).stated(0.5) == "share 0.5"
