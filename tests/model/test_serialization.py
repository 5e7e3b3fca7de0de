from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from courant.model import CourantConfig
from courant.model.serialization import load_model, save_model
from tests.model.clouds import CHOICES, SMALL, random_inputs, random_model


@pytest.mark.parametrize("config", CHOICES.values(), ids=CHOICES)
def test_a_file_rebuilds_the_model(config: CourantConfig, tmp_path: Path) -> None:
    model, inputs = random_model(config), random_inputs(config)
    save_model(model, tmp_path / "model.safetensors")
    loaded = load_model(tmp_path / "model.safetensors")
    assert loaded.config == config
    assert torch.equal(loaded(**inputs.arguments()), model(**inputs.arguments()))


def test_the_precision_is_kept(tmp_path: Path) -> None:
    save_model(random_model(SMALL, torch.float64), tmp_path / "model.safetensors")
    assert load_model(tmp_path / "model.safetensors").decoder.field.weight.dtype == torch.float64


def test_weights_are_readable_without_this_package(tmp_path: Path) -> None:
    model = random_model(SMALL)
    save_model(model, tmp_path / "model.safetensors")
    assert torch.equal(load_file(tmp_path / "model.safetensors")["decoder.field.bias"], model.decoder.field.bias)


def test_a_mismatch_names_what_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_model(random_model(SMALL), path)
    with pytest.raises(ValueError, match=r"model.safetensors does not fit .* lacks encoder.blocks.3.cross") as caught:
        load_model(path, replace(SMALL, num_levels=3))
    assert "and 20 more" in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"has the unknown encoder.blocks.2"):
        load_model(path, replace(SMALL, num_levels=1))
    with pytest.raises(ValueError, match=r"decoder.field.bias \(2,\) instead of \(3,\)"):
        load_model(path, replace(SMALL, num_outputs=3))


def test_weights_without_a_config_ask_for_one(tmp_path: Path) -> None:
    model, path = random_model(SMALL), tmp_path / "bare.safetensors"
    save_file(model.state_dict(), path)
    with pytest.raises(ValueError, match="pass the config"):
        load_model(path)
    assert torch.equal(load_model(path, SMALL).decoder.field.bias, model.decoder.field.bias)


def test_a_damaged_file_and_a_missing_file_are_named(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_model(random_model(SMALL), path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"model.safetensors is not a readable safetensors file"):
        load_model(path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_model(tmp_path / "nowhere")
