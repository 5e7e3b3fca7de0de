"""Designs are solved until a quantity's band is narrow enough, and no further."""

from dataclasses import replace
from pathlib import Path

import pytest

import simgen
from flows.stages import Generation, execute, relative_bands
from simgen.cases import FAMILIES
from simgen.errors import InputError
from tests.simgen.heated_plate import HeatedPlate

FAMILY = "heated-plate"


@pytest.fixture
def plate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HeatedPlate:
    """A family that this process and its workers know."""
    plate = HeatedPlate()
    monkeypatch.setitem(FAMILIES, FAMILY, plate)
    monkeypatch.setenv("COURANT_FAMILIES", "tests.simgen.heated_plate")
    monkeypatch.setenv("COURANT_SCRATCH", str(tmp_path / "scratch"))
    return plate


@pytest.mark.openfoam
def test_designs_are_solved_until_the_band_is_narrow_enough(
    plate: HeatedPlate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = Generation(
        FAMILY, cases=8, until={"mean_temperature": "0.5%"}, most=10, store=str(tmp_path)
    )
    published = few.execute()
    told = capsys.readouterr().err
    assert "not reached: --most 10 ends it" in told
    assert "note: 1 test case will" in told and "training cases a model has quantities" in told
    assert len(simgen.open_dataset(published.dataset)) == 10, "--most ends it"
    assert few.execute() == published
    assert "not reached" in capsys.readouterr().err, "also where nothing is left to solve"

    asked = Generation(
        FAMILY, cases=8, until={"mean_temperature": "0.5%"}, most=64, store=str(tmp_path)
    )
    assert asked.done() is None
    published = asked.execute()
    dataset = simgen.open_dataset(published.dataset)
    counts = [8, 12, 16, 20, 25, 31, 38, 47, 58]
    assert len(dataset) in counts[1:], "each time a quarter more, at least four"
    before = Generation(FAMILY, cases=counts[counts.index(len(dataset)) - 1], store=str(tmp_path))
    earlier = {point.id: dataset.records[point.id] for point in before.points}
    names = ["mean_temperature"]
    assert relative_bands(plate, dataset.records, names)[names[0]] <= 0.005
    assert relative_bands(plate, earlier, names)[names[0]] > 0.005
    assert dataset.info.metadata["run"]["cases"] == len(dataset), "made again without --until"
    assert asked.execute() == published
    replace(few, settings={"time_step": 0.1}, most=8).execute()
    assert "not known of fewer than 9 accepted" in capsys.readouterr().err, "with these settings"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"until": {"drag": "5%"}}, "quantities of heated-plate are mean_temperature"),
        ({"until": {"mean_temperature": "five"}}, "give a share of its mean, such as 5%"),
        ({"until": {"mean_temperature": "0%"}}, "give a share"),
        ({"until": {"mean_temperature": "5%"}, "sampler": "grid"}, "of a Sobol sequence"),
    ],
)
def test_what_is_asked_is_checked_before_anything_is_solved(
    plate: HeatedPlate, tmp_path: Path, asked: dict[str, object], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        execute(Generation(FAMILY, store=str(tmp_path), **asked))  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
