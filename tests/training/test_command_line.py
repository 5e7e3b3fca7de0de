"""`python -m courant.training`: the loop in one process."""

import sys
from pathlib import Path

import pytest

from courant.recipes import get_recipe
from courant.runs.directory import RunDirectory
from courant.runs.record import is_finished
from courant.training.__main__ import device_of, main
from simgen.store.read import Dataset

TINY = [
    "model.width=24",
    "model.num_anchors=8",
    "model.num_levels=1",
    "data.window_steps=2",
    "data.step_s=3",
    "data.start_s=1",
    "training.epochs=2",
    "training.samples_per_epoch=16",
    "training.batch_size=8",
]


@pytest.fixture
def call(dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def run(*changes: str) -> int:
        arguments = [
            "courant.training",
            "cylinder-flow-demo",
            dataset.url,
            str(tmp_path),
            "--threads",
            "1",
            *changes,
        ]
        monkeypatch.setattr(sys, "argv", arguments)
        return main()

    return run


def test_it_trains_and_prints_where(call, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*TINY) == 0
    url = capsys.readouterr().out.splitlines()[-1]
    assert is_finished(RunDirectory(url))


def test_a_wrong_value_is_one_line_and_a_non_zero_exit(
    call, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*TINY, "training.epochs=0") == 1
    assert capsys.readouterr().err.startswith(
        "error: experiment: training.epochs: Input should be greater than or equal to 1"
    )


def test_what_one_process_cannot_do_is_refused(
    call, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(*TINY, "training.workers=2") == 1
    assert "error: training.workers = 2: this is one process" in capsys.readouterr().err
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert call(*TINY, "training.use_gpu=true") == 1
    assert "asks for 1 GPUs, this machine has 0" in capsys.readouterr().err
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    training = get_recipe("cylinder-flow-demo").training
    for asked, expected in ((False, "cpu"), (True, "cuda"), ("auto", "cuda")):
        assert device_of(training.model_copy(update={"use_gpu": asked})) == expected
