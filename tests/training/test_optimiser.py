"""Muon for the matrices of hidden layers, AdamW for all else, as one optimiser."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.optim import AdamW, Muon

from courant.experiment import Experiment
from courant.model import Courant
from courant.training.optimiser import (
    MuonWithAdamW,
    hidden_matrices,
    make_optimiser,
    orthogonal,
    precision_on,
)

RATE, DECAY = 1e-2, 0.1


def gradients(model: nn.Module, seed: int) -> None:
    torch.manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)


def test_the_hidden_matrices_of_courant_read_no_coordinates_and_give_no_field(
    tiny: Experiment,
) -> None:
    model = Courant(tiny.derive(model={"anchor_kind": "learned"}).model)
    hidden, others = ({id(each) for each in part} for part in hidden_matrices(model))
    names = {name: id(parameter) for name, parameter in model.named_parameters()}
    assert hidden | others == set(names.values())
    assert not hidden & others
    for name in ("learned_anchors", "embedding.frequencies", "decoder.field.weight"):
        assert names[name] in others, name
    assert names["encoder.blocks.0.cross.query.weight"] in hidden
    assert all(names[name] in others for name in names if name.endswith("bias"))


def test_steps_are_those_of_muon_and_adamw_each_on_its_own_part(tiny: Experiment) -> None:
    ours = Courant(tiny.model)
    theirs = deepcopy(ours)
    optimiser = make_optimiser(
        ours,
        tiny.training.model_copy(
            update={"optimiser": "muon", "learning_rate": RATE, "weight_decay": DECAY}
        ),
    )
    matrices, others = hidden_matrices(theirs)
    started = deepcopy(matrices)
    apart = (
        Muon(matrices, lr=RATE, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw"),
        AdamW(others, lr=RATE, weight_decay=DECAY),
    )
    for number in range(4):
        if number == 2:
            # What a checkpoint does: the state goes through a copy into a new optimiser.
            saved = deepcopy(optimiser.state_dict())
            optimiser = MuonWithAdamW(ours, lr=RATE, weight_decay=DECAY)
            optimiser.load_state_dict(saved)
        for model in (ours, theirs):
            gradients(model, number)
        for each in (optimiser, *apart):
            each.step()
        for one, other in zip(hidden_matrices(ours)[1], others, strict=True):
            assert torch.equal(one, other)
        for one, other, start in zip(hidden_matrices(ours)[0], matrices, started, strict=True):
            # Muon computes in bfloat16, and the order of a stack's sums may be another.
            assert (one - other).norm() <= 0.02 * (other - start).norm()


@pytest.mark.parametrize(
    ("capability", "device", "expected"),
    [
        ("AVX2", "cpu", torch.float32),
        ("DEFAULT", "cpu", torch.float32),
        ("AVX512", "cpu", torch.bfloat16),
        ("AVX2", "cuda", torch.bfloat16),
    ],
)
def test_products_are_in_float32_where_bfloat16_is_imitated(
    capability: str, device: str, expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert precision_on(torch.device(device)) == expected
    if device == "cpu":
        assert orthogonal(torch.randn(2, 8, 16), (3.4, -4.8, 2.0), 5, 1e-7).dtype == expected


@pytest.mark.parametrize("layer", [nn.Linear(3, 2), nn.Linear(16, 16, bias=False)], ids=str)
def test_a_model_may_have_one_kind_of_parameters_alone(layer: nn.Linear) -> None:
    optimiser = MuonWithAdamW(layer, lr=RATE, weight_decay=DECAY)
    before = layer.weight.detach().clone()
    gradients(layer, 0)
    optimiser.step()
    assert not torch.equal(layer.weight, before)
