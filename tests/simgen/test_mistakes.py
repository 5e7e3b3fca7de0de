"""A mistake in a family's code is told as one, and trouble of a machine is not."""

import pickle

import pytest

from simgen.errors import CaseError, ProgramError
from simgen.solving.preparation import as_program_error


def write_case(parameters: dict[str, float]) -> float:
    return parameters["radus"]


def test_a_mistake_is_one_line_with_its_class_and_place_and_keeps_its_trace() -> None:
    with pytest.raises(ProgramError) as found, as_program_error("abc"):
        write_case({"radius": 1.0})
    error = pickle.loads(pickle.dumps(found.value))  # as it comes back from a worker
    assert str(error).startswith("case abc: KeyError: 'radus', in write_case (")
    assert "test_mistakes.py, line 12)" in str(error)
    assert "\n" not in str(error)
    assert 'return parameters["radus"]' in error.trace


@pytest.mark.parametrize("error", [OSError(28, "No space left"), CaseError("diverged")])
def test_trouble_of_a_machine_or_a_case_stays_what_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as found, as_program_error("abc"):
        raise error
    assert found.value is error
