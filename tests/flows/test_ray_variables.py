"""Variables of a job: sealed where the cluster asks for a token, readable with that token only."""

import os

import pytest

from flows.cluster import ray_variables
from flows.cluster.ray_variables import SEALED, seal, unseal, workers_variables
from simgen.errors import InputError

GIVEN = {"AWS_SECRET_ACCESS_KEY": "a long secret", "LICENCE": "ünï"}


@pytest.fixture
def token(monkeypatch):
    """Set the token of the cluster, as Ray knows it."""

    class Loader:
        known = ""

        @classmethod
        def instance(cls):
            return cls

        @classmethod
        def get_raw_token(cls) -> str:
            return cls.known

    def set_token(value: str) -> None:
        Loader.known = value

    monkeypatch.setattr(ray_variables, "AuthenticationTokenLoader", Loader)
    return set_token


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


def test_workers_of_a_job_have_them_too_and_prefects(token, monkeypatch):
    token("of the cluster")
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "admin:password")
    monkeypatch.setenv(SEALED, seal(GIVEN)[SEALED])
    unseal()
    set_variables = workers_variables()
    for name in (*GIVEN, "PREFECT_API_AUTH_STRING"):
        monkeypatch.delenv(name)
    set_variables()
    assert os.environ["PREFECT_API_AUTH_STRING"] == "admin:password"
    assert {name: os.environ[name] for name in GIVEN} == GIVEN


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
