"""The lines of docs/datasets.md that a reader pastes, run as they stand against a real dataset."""

import re
from pathlib import Path

import simgen
from tests.store.conftest import add

DOCS = Path(__file__).parents[3] / "docs" / "datasets.md"


def test_the_reading_example_runs(writer, url, tmp_path, monkeypatch):
    add(writer, 0, 1, 2)
    writer.publish()
    example = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)[0]
    example = example.replace("demo-run/store/cylinder-flow", url).replace(
        '["mesh"]', '["solver_version"]'
    )
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    exec(example, namespace)
    assert (tmp_path / "case.vtu").stat().st_size > 0
    assert len(namespace["ds"]) == 3  # type: ignore[arg-type]


def test_the_examples_of_operations_run_one_after_the_other(writer, url, tmp_path, monkeypatch):
    add(writer, 0, 1)
    writer.publish()
    add(writer, 2)
    writer.publish()
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    case = simgen.open_dataset(url).cases("test")[0]
    for example in re.findall(
        r"```python\n(.*?)```", DOCS.with_name("dataset-operations.md").read_text(), re.DOTALL
    ):
        example = example.replace("b0159c13a91f", case)
        exec(example.replace("demo-run/store/cylinder-flow", url), namespace)
    assert simgen.open_dataset(url)[case].status == "withdrawn"
    assert namespace["verification"].findings == []  # type: ignore[attr-defined]
    assert len(namespace["difference"].added) == 1  # type: ignore[attr-defined]
    assert (tmp_path / "plain" / "zarr.json").exists()
    assert (tmp_path / "card" / "README.md").exists()
