"""What Prefect shows is skipped where its server is away, or knows nothing of the run."""

import logging

import httpx
import pytest
from prefect.exceptions import ObjectNotFound

from flows.impatience import if_the_server_is_there


@pytest.mark.parametrize(
    "trouble",
    [
        httpx.ConnectError("no route"),
        ConnectionResetError("gone"),
        ObjectNotFound(http_exc=RuntimeError("404"), help_message="no such artifact"),
    ],
    ids=lambda trouble: type(trouble).__name__,
)
def test_trouble_of_the_server_is_a_line_and_no_error(trouble, caplog):
    with caplog.at_level(logging.INFO), if_the_server_is_there("the picture is not shown"):
        raise trouble
    assert "the picture is not shown" in caplog.text


def test_mistakes_are_errors():
    with pytest.raises(TypeError), if_the_server_is_there("the picture is not shown"):
        raise TypeError("a mistake")
