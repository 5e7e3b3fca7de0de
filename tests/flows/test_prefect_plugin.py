"""The bare flow name: rewritten where Prefect would refuse it, and nowhere else."""

import sys
from importlib.metadata import entry_points

import pytest

from flows import prefect_plugin


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            ["deployment", "run", "generate-and-train"],
            ["deployment", "run", "generate-and-train/cylinder-flow"],
        ),
        (
            ["deployment", "run", "generate-and-train", "--param", "cases=8", "--watch"],
            [
                "deployment",
                "run",
                "generate-and-train/cylinder-flow",
                "--param",
                "cases=8",
                "--watch",
            ],
        ),
        (
            ["deployment", "run", "generate-and-train/other"],
            ["deployment", "run", "generate-and-train/other"],
        ),
        (
            ["deployment", "run", "somebody-elses-flow"],
            ["deployment", "run", "somebody-elses-flow"],
        ),
        (
            ["deployment", "run", "--id", "generate-and-train"],
            ["deployment", "run", "--id", "generate-and-train"],
        ),
        (
            ["deployment", "inspect", "generate-and-train"],
            ["deployment", "inspect", "generate-and-train"],
        ),
        (["deployment", "run"], ["deployment", "run"]),
        (["version"], ["version"]),
        ([], []),
    ],
)
def test_only_a_bare_name_of_ours_is_rewritten(monkeypatch, given, expected):
    monkeypatch.setattr(sys, "argv", ["prefect", *given])
    prefect_plugin.setup_environment(ctx=None)
    assert sys.argv == ["prefect", *expected]


def test_prefect_finds_the_plugin_by_its_entry_point():
    (entry,) = entry_points(group="prefect.plugins", name="courant")
    assert entry.load() is prefect_plugin
