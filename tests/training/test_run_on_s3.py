"""A run directory on a real S3 server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import s3fs

import courant
from courant.runs.checkpoint import checkpoint_epochs
from courant.runs.directory import RunDirectory
from courant.runs.record import read_records
from courant.training.train import fit
from simgen.errors import StoreError
from simgen.store.read import Dataset
from tests.training.conftest import KilledError, kill_at
from tests.world import tiny_experiment

pytestmark = pytest.mark.end_to_end


@pytest.fixture
def bucket(s3: Any) -> Iterator[str]:
    """The server's bucket; no connection of another test is taken over, nor left behind."""
    s3fs.S3FileSystem.clear_instance_cache()
    yield s3.url
    s3fs.S3FileSystem.clear_instance_cache()


def test_a_run_is_killed_resumed_and_loaded_from_s3_as_from_disk(
    bucket: str, dataset: Dataset, tmp_path: Path
) -> None:
    remote, local = RunDirectory(f"{bucket}/runs") / "tiny", RunDirectory(tmp_path)

    with pytest.raises(KilledError):
        fit(tiny_experiment(), dataset, remote, on_epoch=kill_at(3))
    assert checkpoint_epochs(remote) == [2]
    fit(tiny_experiment(), dataset, remote)
    fit(tiny_experiment(), dataset, local)
    assert remote.read_bytes("model.safetensors") == local.read_bytes("model.safetensors")
    assert len(read_records(remote)) == 4
    case = dataset[0]
    prediction = courant.load(remote.url, device="cpu").predict_case(case, start_s=2.0)
    assert prediction.shape == (2, case.num_points, 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [("AWS_SECRET_ACCESS_KEY", "wrong"), ("AWS_ENDPOINT_URL", "http://127.0.0.1:9")],
)
def test_a_store_that_refuses_or_does_not_answer_is_one_line(
    bucket: str, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    expected = (
        rf"cannot write {bucket}/x/status\.json: .*check the path, and for s3:// the keys and"
        r" AWS_ENDPOINT_URL"
    )
    with pytest.raises(StoreError, match=expected) as caught:
        RunDirectory(f"{bucket}/x").write_json("status.json", {})
    assert "\n" not in str(caught.value)
