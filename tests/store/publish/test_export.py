"""An export is a plain Zarr store of one version, complete or not there at all."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import zarr

import simgen
from bench.damage import flip, objects
from simgen.errors import InputError, StoreError
from simgen.publish.export import export
from simgen.store import verify
from tests.store.conftest import add, make_cloud, make_result, publish, record

# Nothing of this project: what a downstream team's environment has.
READER = """
import json, sys, zarr
root = zarr.open_group(sys.argv[1], mode="r", use_consolidated=True)
assert root.metadata.consolidated_metadata is not None
assert not {name for name in sys.modules if name.split(".")[0] in ("simgen", "icechunk")}
case = sorted(root["splits"].attrs["members"])[0]
group = root[f"cases/{case}"]
provenance = json.loads(bytes(group["provenance"][:]))["provenance"]
status = root["design"].attrs["cases"][case]["status"]
print(json.dumps({
    "cases": sorted(root["cases"].group_keys()), "case": case, "shape": group["velocity"].shape,
    "sum": float(group["velocity"][:].astype("f8").sum()), "unit": group["velocity"].attrs["unit"],
    "radius": group.attrs["parameters"]["radius"], "solver": provenance["solver_version"],
    "field": root.attrs["schema"]["fields"][0]["name"], "status": status,
    "mean": root["statistics"].attrs["fields"]["velocity"]["mean"],
    "patch": group["boundary/faces"][:, 7].tolist(),
    "dimensions": group["velocity"].metadata.dimension_names,
}))
"""


@pytest.fixture
def dataset(writer, url):
    add(writer, 0, 1, 2)
    record(writer, make_result(3, "rejected", "Courant number is 7, limit 1.5"))
    writer.publish()
    return simgen.open_dataset(url)


def read_alone(target, folder):
    """What a process sees that has neither this project nor Icechunk on its path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(
        [sys.executable, "-c", READER, target],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def check(seen, dataset):
    stored = dataset[seen["case"]]
    assert seen["cases"] == sorted(dataset.cases())
    assert seen["sum"] == pytest.approx(float(stored["velocity"][:].astype("f8").sum()), rel=1e-12)
    assert tuple(seen["shape"]) == stored["velocity"].shape
    assert seen["radius"] == stored.parameters["radius"]
    assert seen["solver"] == "OpenFOAM v1912"
    assert (seen["unit"], seen["field"], seen["status"]) == ("m/s", "velocity", "accepted")
    assert seen["mean"] == dataset.statistics["velocity"]["mean"].tolist()
    assert seen["patch"] == stored.boundary.patch.tolist()
    assert seen["dimensions"] == ["time", "point", "velocity_component"]


def test_an_export_is_read_by_zarr_alone(dataset, tmp_path):
    told = []
    exported = export(dataset, tmp_path / "plain", lambda done, total: told.append((done, total)))
    assert (exported.num_cases, exported.num_copied) == (3, 3)
    assert told[-1] == (3, 3)
    check(read_alone(str(tmp_path / "plain"), tmp_path), dataset)
    root = zarr.open_group(str(tmp_path / "plain"), mode="r")
    assert set(root["design"].attrs["cases"]) == set(dataset.design.index)
    for number in range(3):
        group, cloud = root[f"cases/{make_result(number).id}"], make_cloud(number)
        for name, values in {**cloud.fields, "points": cloud.points}.items():
            np.testing.assert_array_equal(group[name][:], values, strict=True)
    assert group["velocity"].metadata.codecs == dataset[0]["velocity"].metadata.codecs
    assert group["velocity"].chunks == dataset[0]["velocity"].chunks


@pytest.mark.end_to_end
def test_an_export_to_s3_is_read_by_zarr_and_s3fs_alone(dataset, s3, tmp_path):
    export(dataset, f"{s3.url}/export/plain")
    check(read_alone(f"{s3.url}/export/plain", tmp_path), dataset)
    with pytest.raises(InputError, match="is not empty: choose another target"):
        export(dataset, f"{s3.url}/export")


def test_an_interrupted_export_has_no_attributes_and_goes_on_where_it_stopped(
    dataset, tmp_path, monkeypatch
):
    target = tmp_path / "plain"
    copy, copied = zarr.from_array, []

    def killed(store, **options):
        copied.append(options["name"])
        if len(copied) >= 12:  # in the midst of the second case
            raise KeyboardInterrupt
        return copy(store, **options)

    monkeypatch.setattr(verify, "THREADS", 1)
    with monkeypatch.context() as patch:
        patch.setattr(zarr, "from_array", killed)
        with pytest.raises(KeyboardInterrupt):
            export(dataset, target)
    assert dict(zarr.open_group(str(target), mode="r").attrs) == {}
    exported = export(dataset, target)
    assert (exported.num_cases, exported.num_copied) == (3, 2)
    check(read_alone(str(target), tmp_path), dataset)
    assert export(dataset, target).num_copied == 0  # and once more: it is complete


def test_a_target_that_holds_something_else_is_refused(dataset, writer, url, tmp_path):
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.tex").write_text("years of work")
    with pytest.raises(
        InputError,
        match=r"foreign is not empty: choose another target, or delete what is there first",
    ):
        export(dataset, tmp_path / "foreign")
    assert [path.name for path in (tmp_path / "foreign").iterdir()] == ["thesis.tex"]
    export(dataset, tmp_path / "plain")
    publish(writer, 5)
    with pytest.raises(InputError, match=r"plain is not empty"):
        export(simgen.open_dataset(url, "v2"), tmp_path / "plain")
    shutil.copytree(tmp_path / "plain/cases", tmp_path / "unfinished/cases")
    with pytest.raises(
        InputError, match=r"holds an unfinished export of .* v1: choose another target"
    ):
        export(simgen.open_dataset(url, "v2"), tmp_path / "unfinished")
    with pytest.raises(InputError, match=r"gs://bucket/x is of no known kind"):
        export(dataset, "gs://bucket/x")
    with pytest.raises(InputError, match="names no bucket"):
        export(dataset, "s3://")


def test_damage_is_not_exported(dataset, url, tmp_path):
    for chunk in objects(url, "chunks"):
        flip(chunk)
    with pytest.raises(StoreError, match=r"case [0-9a-f]{12}.* is damaged"):
        export(simgen.open_dataset(url), tmp_path / "plain")
    assert dict(zarr.open_group(str(tmp_path / "plain"), mode="r").attrs) == {}
