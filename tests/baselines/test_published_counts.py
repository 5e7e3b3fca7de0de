"""tab:cf-hparams, tab:hvac-hparams, tab:pump-hparams: the baselines' parameter counts."""

import pytest

from courant.baselines import CASES, COUNTS, published
from courant.models import count

WIDTH_OF_UPT, WIDTH_OF_MGN = 192, 128
DIFFERENCES = {
    # The paper's UPT also predicts the distance field: a row of weights and a bias each.
    **{
        ("upt", case): -(WIDTH_OF_UPT + 1) * sizes["num_query_features"]
        for case, sizes in CASES.items()
    },
    # Its MeshGraphNet does not read the distance field of the pipe.
    ("mgn", "Br.Pipe"): WIDTH_OF_MGN * CASES["Br.Pipe"]["num_query_features"],
}
"""What is known to differ, in parameters"""
NEAR = {("fno", "Cyl.Flow"): 0.04, ("enf", "Cyl.Flow"): 0.01, ("mgn", "Cyl.Flow"): 0.02}
"""How far a count may be off where the paper's texts do not pin it down; the others are exact"""


@pytest.mark.parametrize(("kind", "case"), COUNTS)
def test_a_baseline_has_the_published_number_of_parameters(kind: str, case: str) -> None:
    counted = count(published(kind, case))
    expected = COUNTS[kind, case] + DIFFERENCES.get((kind, case), 0)
    assert counted is not None
    assert abs(counted - expected) <= NEAR.get((kind, case), 0.0) * expected
