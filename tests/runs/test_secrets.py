"""Secrets planted in the environment are in nothing that a run leaves behind."""

import base64
import gzip
import os
import subprocess
import sys
from pathlib import Path

import simgen

SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIAPLANTEDPLANTED00",
    "AWS_SECRET_ACCESS_KEY": "planted/aws+secret0123456789abcdef",
    "AWS_SESSION_TOKEN": "planted-session-token-0123456789",
    "RAY_AUTH_TOKEN": "planted-ray-token-0123456789",
    "PREFECT_API_KEY": "pnu_planted0123456789",
    "PREFECT_API_AUTH_STRING": "admin:planted-prefect-password",
    "MLFLOW_TRACKING_PASSWORD": "planted-mlflow-password",
}

RUN = """
import sys
import simgen
import simgen.errors
from courant.evaluation.evaluate import evaluate
from courant.report.report import write_report
from courant.runs.directory import RunDirectory
from courant.training.train import fit
from tests.world import publish_waves, tiny_experiment

folder = sys.argv[1]
dataset = simgen.open_dataset(publish_waves(folder + "/store/cylinder-flow"))
run = RunDirectory(folder) / "runs" / "tiny"
fit(tiny_experiment(epochs=1), dataset, run)
evaluate(run.url)
write_report(run.url, folder + "/report")
try:
    simgen.open_dataset("s3://planted-bucket/nowhere")  # what cannot be reached is told, and how
except simgen.errors.SimgenError as error:
    print(error)
"""


def forms(secret: str) -> list[bytes]:
    """The secret as it is, and as encodings hide it."""
    plain = secret.encode()
    # Base64 depends on where the text begins, in one of three ways.
    encoded = [base64.b64encode(b"x" * shift + plain)[4:-4] for shift in range(3)]
    return [plain, plain.hex().encode(), *encoded]


def leaks(folder: Path) -> list[tuple[Path, str]]:
    """The secrets in files below the folder, in their names, or inside where they are gzip."""
    found = []
    for path in filter(Path.is_file, folder.rglob("*")):
        content = path.read_bytes()
        is_packed = content.startswith(b"\x1f\x8b")
        text = str(path).encode() + (gzip.decompress(content) if is_packed else content)
        found += [(path, n) for n, of in SECRETS.items() if any(form in text for form in forms(of))]
    return found


def test_a_run_leaves_no_secret_of_its_environment(tmp_path: Path) -> None:
    places = {"HOME": tmp_path / "home", "TMPDIR": tmp_path / "tmp"}
    places["COURANT_SCRATCH"] = tmp_path / "scratch"
    for place in (*places.values(), work := tmp_path / "work"):
        place.mkdir()
    environment = {name: str(place) for name, place in places.items()}
    environment |= {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    environment = {**os.environ, **SECRETS, **environment}
    command = [sys.executable, "-c", RUN, str(work)]
    done = subprocess.run(command, env=environment, cwd=work, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    assert b"s3://planted-bucket/nowhere" in done.stdout
    (tmp_path / "printed").write_bytes(done.stdout + done.stderr)
    assert (tmp_path / "work/report/index.html").exists()
    assert leaks(tmp_path) == []
    # Icechunk compresses its metadata, so the dataset is asked itself.
    dataset = simgen.open_dataset(str(tmp_path / "work/store/cylinder-flow"))
    said = repr([dataset.info, *(dataset[case].provenance for case in dataset.cases())])
    assert not any(secret in said for secret in SECRETS.values())
