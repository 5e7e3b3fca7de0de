"""Variables of a job: sealed where the cluster asks for a token, readable with that token only."""

import os

import pytest

from flows.ray_variables import SEALED, begin_worker, seal, unseal
from simgen.errors import InputError

GIVEN = {"AWS_SECRET_ACCESS_KEY": "a long secret", "LICENCE": "ünï"}


@pytest.fixture
def token(monkeypatch):
    """Set the token of the cluster, as Ray reads it."""
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/nowhere/token")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    return lambda value: monkeypatch.setenv("RAY_AUTH_TOKEN", value)


def test_the_cluster_sees_no_value_and_the_job_has_them_all(token, monkeypatch):
    token("of the cluster")
    sealed = seal(GIVEN)
    assert set(sealed) == {SEALED}
    assert not [value for value in GIVEN.values() if value in sealed[SEALED]]
    monkeypatch.setenv(SEALED, sealed[SEALED])
    for name in GIVEN:
        monkeypatch.delenv(name, raising=False)
    unseal()
    assert {name: os.environ[name] for name in GIVEN} == GIVEN


def test_workers_of_a_job_have_them_too(token, monkeypatch):
    token("of the cluster")
    assert begin_worker() is None
    monkeypatch.setenv(SEALED, seal(GIVEN)[SEALED])
    unseal()
    set_variables = begin_worker()
    for name in GIVEN:
        monkeypatch.delenv(name)
    set_variables()
    assert {name: os.environ[name] for name in GIVEN} == GIVEN


def test_the_token_of_a_file_seals_too(token, monkeypatch, tmp_path):
    (tmp_path / "token").write_text("of the cluster\n")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    sealed = seal(GIVEN)
    token("of the cluster")
    monkeypatch.setenv(SEALED, sealed[SEALED])
    unseal()
    assert os.environ["LICENCE"] == GIVEN["LICENCE"]


def test_nothing_to_hand_over_is_nothing(token):
    token("of the cluster")
    assert seal({}) == {}
    unseal()


def test_a_cluster_without_a_token_gets_them_as_they_are(token):
    assert seal(GIVEN) == GIVEN


@pytest.mark.parametrize("other", ["another one", ""])
def test_another_token_is_one_line(token, monkeypatch, other):
    token("of the cluster")
    monkeypatch.setenv(SEALED, seal(GIVEN)[SEALED])
    token(other)
    with pytest.raises(InputError, match="same RAY_AUTH_TOKEN"):
        unseal()
