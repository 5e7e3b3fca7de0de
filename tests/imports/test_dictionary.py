"""Entries of dictionaries have the values that OpenFOAM itself reads."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from simgen.errors import CaseError
from simgen.foam.run import find_openfoam
from simgen.imports.dictionaries import DictionaryPlace, read_entry, read_number

TRICKY = """
FoamFile { version 2.0; format ascii; class dictionary; object tricky; }
nu 1e-5; /* the first one */
mu $nu;
nu 2e-5; // 3e-5 was too much
base { a 1; deep { x 4; } }
sub { a 5; c 6; }
sub { c 7; }
#include "extra"
other { $base; a 9; inner { val $a; up $nu; dot $:base.deep.x; top $:sub.a; } }
k 5;
".*Walls" { k 1; }
"left.*" { k 2; }
leftWalls2 { k 3; }
"valve.*" 1;
"valve[1-4]" 2;
"valve.*" 3;
"(up|down)[[:alpha:]]+" { k 4; }
rho 3; // comment 5
last $viscosity;;
whole { $base
 a 8; }
braces { ${base}; a 7; }
twice { a 3; }
twice { b $mu; c $k; }
k 6;
around { x 1; inner { $around; y 2; } }
"""
PLACES = [
    "nu", "mu", "sub/a", "sub/b", "sub/c", "other/a", "other/deep/x", "other/inner/val",
    "other/inner/up", "other/inner/dot", "other/inner/top", "leftWalls/k", "rightWalls/k",
    "leftWalls2/k", "rho", "last", "whole/a", "whole/deep/x", "braces/a", "braces/deep/x",
    "twice/a", "twice/b", "twice/c", "k", "valve3", "downWind/k", "around/x", "around/inner/y",
]  # fmt: skip


@pytest.fixture
def tricky(tmp_path: Path) -> Path:
    (tmp_path / "extra").write_text("viscosity 7e-6;\nsub { b 12; }\n")
    (tmp_path / "tricky").write_text(TRICKY)
    return tmp_path / "tricky"


def test_entries_are_those_that_openfoam_reads(tricky) -> None:
    environment = {**os.environ, **find_openfoam(["foamDictionary"]).environment}
    for place in PLACES:
        command = ["foamDictionary", str(tricky), "-entry", place.replace("/", "."), "-value"]
        printed = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout
        found = read_entry(tricky, place.split("/"))
        assert found is not None and float(found) == float(printed), place


def test_what_comes_from_elsewhere_is_reported_where_an_entry_is_not_found(tmp_path) -> None:
    (tmp_path / "a").write_text('#includeEtc "caseDicts/setup"\nsub { #calc "x"\n b 1; }\nc $d;\n')

    def number(entry: str) -> float:
        return read_number(tmp_path, DictionaryPlace.parse(f"a:{entry}"))

    assert number("sub/b") == 1
    assert read_entry(tmp_path / "a", ["nu"]) is None
    with pytest.raises(CaseError, match='no entry nu, unless in #includeEtc "caseDicts/setup"'):
        number("nu")
    with pytest.raises(CaseError, match='no entry sub/x, unless in #calc "x", which is not read'):
        number("sub/x")
    with pytest.raises(CaseError, match=r"c refers to \$d, which is not there"):
        number("c")


@pytest.mark.parametrize(
    ("text", "directive"),
    [
        ("x 1; #ifeq $x 1\nnu 1;\n#else\nnu 2;\n#endif\n", "#ifeq"),
        ("nu 3;\n#remove nu\n", "#remove nu"),
        ("#inputMode protect\nnu 1; nu 2;\n", "#inputMode protect"),
        ("n nu;\nnu 1;\n$n 2;\n", "$n 2"),
    ],
)
def test_an_entry_that_may_not_count_is_no_parameter(tmp_path, text, directive) -> None:
    (tmp_path / "a").write_text(text)
    with pytest.raises(CaseError, match=re.escape(f"has {directive}")):
        read_number(tmp_path, DictionaryPlace.parse("a:nu"))
    assert read_entry(tmp_path / "a", ["nu"]) is None


def test_a_macro_of_a_newer_release_is_no_number(tmp_path) -> None:
    """`$!Ux` is looked up in the whole file; what is not known is never passed over."""
    (tmp_path / "a").write_text("Ux 5;\nin { U uniform ($!Ux 2 0); V uniform ($<gone> 2 0); }\n")
    assert read_number(tmp_path, DictionaryPlace.parse("a:in/U[0]")) == 5
    with pytest.raises(CaseError, match=r"in/V refers to \$<gone>"):
        read_number(tmp_path, DictionaryPlace.parse("a:in/V[0]"))


def test_a_file_that_includes_itself_is_one_line(tmp_path) -> None:
    (tmp_path / "a").write_text('#include "a"\nnu 1;\n')
    with pytest.raises(CaseError, match="includes itself"):
        read_entry(tmp_path / "a", ["nu"])
