"""The names of hosts that a served model answers to."""

import pytest
import typer

from flows.cli.options import allowed_hosts


def test_names_wildcards_and_addresses_are_taken():
    names = ["courant.example.com", "*.example.com", "10.0.0.5", "[fe80::1]"]
    assert allowed_hosts(names) == tuple(names)
    assert allowed_hosts(None) == ()


@pytest.mark.parametrize("name", ["http://a.example.com", "a.example.com:80", "*", "a*b", ""])
def test_what_is_no_name_is_one_clear_line(name):
    with pytest.raises(typer.BadParameter, match="is not the name of a host"):
        allowed_hosts([name])
