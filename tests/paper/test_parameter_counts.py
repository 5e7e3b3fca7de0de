"""tab:cf-hparams, tab:hvac-hparams, tab:pump-hparams: the parameter counts that the paper prints."""

from collections.abc import Callable

import pytest

from courant.model import Courant, CourantConfig
from courant.model.presets import PUBLISHED


@pytest.mark.parametrize(("preset", "count"), PUBLISHED.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_published_variants_have_the_published_number_of_parameters(
    preset: Callable[[], CourantConfig], count: int
) -> None:
    assert sum(parameter.numel() for parameter in Courant(preset()).parameters()) == count
