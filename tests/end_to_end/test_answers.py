"""docs/answers.md runs as it stands: every command and the Python on it, at a smaller size."""

import re
import subprocess
from pathlib import Path

import pytest

import courant
from courant.recipes import get_recipe
from tests.documentation.snippets import snippets_of

pytestmark = [pytest.mark.end_to_end, pytest.mark.openfoam, pytest.mark.nightly]

PAGE = "docs/answers.md"
COARSE = "--set mesh_size=10"
#: A page's words in place of which a test has something that takes seconds.
SMALLER = {
    "make setup\n": "",
    "source .venv/bin/activate\n": "",
    "--cases 96": f"--cases 6 {COARSE}",
    "--recipe branched-pipe-all-fields-small": "--experiment ducts.json",
    "--cases 60 --sampler uniform --seed 7": f"--designs near.csv {COARSE}",
}
DESIGN = {
    "baffle_angle": 30.0,
    "aperture": 34.0,
    "duct_angle": 95.0,
    "curvature_angle": 130.0,
    "inlet_velocity": 6.0,
}
"""The duct that the page asks about"""


def designs_near_by() -> str:
    """A file of ducts on all sides of the page's: few cases then hold a band for it for certain."""
    changes = [{name: by} for name in DESIGN for by in (0.97, 1.03)]
    changes += [dict.fromkeys(DESIGN, by) for by in (0.98, 1.02)]
    rows = [
        ",".join(f"{value * change.get(name, 1.0):g}" for name, value in DESIGN.items())
        for change in changes
    ]
    return "\n".join([",".join(DESIGN), *rows]) + "\n"


def script_of(page: str) -> str:
    """Its commands and its Python, in their order, as one script."""
    script = ""
    for snippet in snippets_of(page):
        if snippet.kind == "python":
            script += f"python - <<'PYTHON'\n{snippet.text}PYTHON\n"
        elif snippet.kind == "shell":
            script += snippet.text
    for words, fewer in SMALLER.items():
        assert words in script, f"{words} is not on the page"
        script = script.replace(words, fewer)
    return script


def test_a_clone_answers_with_a_band(environment: dict[str, str], tmp_path: Path) -> None:
    small = get_recipe("branched-pipe-all-fields-small")
    experiment = small.derive(
        model={"num_anchors": 8, "width": 32, "num_heads": 2, "num_levels": 1},
        training={"epochs": 2, "samples_per_epoch": 16, "warmup_steps": 0},
    )
    (tmp_path / "ducts.json").write_text(experiment.model_dump_json())
    (tmp_path / "near.csv").write_text(designs_near_by())
    done = subprocess.run(
        ["bash", "-euc", script_of(PAGE)],
        cwd=tmp_path,
        env={**environment, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "Traceback" not in done.stdout
    assert re.search(r"^-?\d+\.\d ± \d+\.\d Pa$", done.stdout, re.M), done.stdout
    assert (tmp_path / "duct.vtu").exists() and (tmp_path / "duct.png").exists()
    (run,) = (tmp_path / "ducts" / "runs").glob("branched-pipe-*")
    assert courant.load(run).url.endswith(run.name)
