"""An embedded Ray that never comes up ends the command, in one line."""

import pytest

from flows.cluster import ray_cluster
from flows.cluster.ray_cluster import _in_time


def test_a_ray_that_is_late_is_said_and_one_that_came_up_is_not(monkeypatch):
    looks = []
    monkeypatch.setattr(ray_cluster, "need", looks.append)
    with _in_time():
        assert looks[0]() is None, "there is time"
    monkeypatch.setattr(ray_cluster, "START_S", 0.0)
    with _in_time():
        assert looks[1]().startswith("Ray did not start within 0 s")
    assert looks[1]() is None
    with pytest.raises(RuntimeError), _in_time():
        raise RuntimeError("no room")
    assert looks[2]() is None
