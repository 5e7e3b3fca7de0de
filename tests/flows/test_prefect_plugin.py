"""The bare flow name: rewritten where Prefect would refuse it, and nowhere else."""

import sys
from importlib.metadata import entry_points

import pytest

from flows import prefect_plugin

OURS = "generate-and-train"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (f"deployment run {OURS} --watch", f"deployment run {OURS}/cylinder-flow --watch"),
        (f"deployment run {OURS}/other", f"deployment run {OURS}/other"),
        ("deployment run another", "deployment run another"),
        (f"deployment run --id {OURS}", f"deployment run --id {OURS}"),
        (f"deployment inspect {OURS}", f"deployment inspect {OURS}"),
        ("version", "version"),
    ],
)
def test_only_a_bare_name_of_ours_is_rewritten(monkeypatch, given: str, expected: str) -> None:
    monkeypatch.setattr(sys, "argv", ["prefect", *given.split()])
    prefect_plugin.setup_environment(ctx=None)
    assert sys.argv == ["prefect", *expected.split()]


def test_prefect_finds_the_plugin_by_its_entry_point():
    (entry,) = entry_points(group="prefect.plugins", name="courant")
    assert entry.load() is prefect_plugin
