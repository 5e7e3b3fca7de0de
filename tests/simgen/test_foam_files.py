"""Reading OpenFOAM's files: binary and ascii, and what damaged ones say."""

import gzip
import re
import struct

import numpy as np
import pytest

from simgen.errors import CaseError
from simgen.foam.field import read_field
from simgen.foam.mesh import PatchRange, read_boundary

HEADER = """FoamFile
{{
    version     2.0;
    format      {format};
    class       {kind};
    arch        "LSB;label=32;scalar=64";
    object      {name};
}}
// a comment with internalField in it
"""


def field_file(path, vectors, *, binary, patch_vectors):
    """A volVectorField with a list of vectors inside, one patch with a list, one uniform and one
    without value.
    """

    def payload(values):
        rows = " ".join(f"({x:.17g} {y:.17g} {z:.17g})" for x, y, z in values).encode()
        content = np.asarray(values, "<f8").tobytes() if binary else rows
        return b"nonuniform List<vector> \n%d\n(" % len(values) + content + b")\n;"

    form = "binary" if binary else "ascii"
    header = HEADER.format(format=form, kind="volVectorField", name="U").encode()
    path.write_bytes(
        header
        + b"dimensions [0 1 -1 0 0 0 0];\ninternalField   %s\nboundaryField\n{\n" % payload(vectors)
        + b"inlet\n{\n type fixedValue;\n value %s\n }\n" % payload(patch_vectors)
        + b"walls\n{\n type noSlip;\n }\n"
        b"outlet { type inletOutlet; inletValue uniform (0 0 0); value uniform (1 -2 3e-1); }\n}\n"
    )


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "ascii"])
def test_a_vector_field_is_read_with_its_patches(tmp_path, binary):
    generator = np.random.default_rng(0)
    vectors, patch = generator.normal(size=(50, 3)), generator.normal(size=(4, 3))
    field_file(tmp_path / "U", vectors, binary=binary, patch_vectors=patch)
    field = read_field(tmp_path / "U")
    np.testing.assert_array_equal(field.internal, vectors)
    np.testing.assert_array_equal(field.boundary["inlet"], patch)
    np.testing.assert_array_equal(field.boundary["outlet"], [1, -2, 0.3])
    assert "walls" not in field.boundary


def test_bytes_that_look_like_syntax_inside_a_binary_list_are_data(tmp_path):
    (tricky,) = struct.unpack("<d", b");}in{;/")
    (more,) = struct.unpack("<d", b"boundary")
    vectors = np.full((3, 3), tricky)
    field_file(tmp_path / "U", vectors, binary=True, patch_vectors=np.full((2, 3), more))
    field = read_field(tmp_path / "U")
    np.testing.assert_array_equal(field.internal, vectors)
    np.testing.assert_array_equal(field.boundary["inlet"], np.full((2, 3), more))


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "ascii"])
@pytest.mark.parametrize("keep", [0.2, 0.5, 0.8])
def test_a_truncated_file_is_an_error_that_names_it(tmp_path, binary, keep):
    field_file(tmp_path / "U", np.ones((60, 3)), binary=binary, patch_vectors=np.ones((20, 3)))
    data = (tmp_path / "U").read_bytes()
    (tmp_path / "U").write_bytes(data[: int(keep * len(data))])
    with pytest.raises(CaseError, match=r"U (is cut short|has no internalField)|expected"):
        read_field(tmp_path / "U")


#: What a patch may hold beside its value, by OpenFOAM's grammar.
ENTRIES = {
    "dictionary": b"uniformValueCoeffs { type table; values ((0 1) (1 2)); deep { value 3; } }",
    "code": b"code #{ if (true) { operator==(vector(1, 0, 0)); } // }\n#}; name coded;",
    "code within a dictionary": b"codeContext { value #{ x; } #}; }",
    "table": b"uniformValue table ((0 (0 0 0)) (1 (1 0 0)));",
    "string": b'expression "a; } b";',
    "list of words": b"groups List<word> 2(a b);",
    "another value": b"gradient nonuniform List<vector> 1(" + b"}" * 24 + b");",
    "labels": b"ids List<label> 2(" + b"{;(}" * 2 + b");",
}


def patch_file(path, entry, *, patch=b"frt-fairing:001%1", value=b"value uniform (1 2 3);"):
    path.write_bytes(
        HEADER.format(format="binary", kind="volVectorField", name="U").encode()
        + b"dimensions [0 1 -1 0 0 0 0];\ninternalField uniform (0 0 0);\nboundaryField\n{\n"
        + b"%s\n{\ntype x;\n%s\n%s\n}\nwalls { type noSlip; }\n}\n" % (patch, entry, value)
    )


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_a_patch_may_hold_any_entry_beside_its_value(tmp_path, entry):
    patch_file(tmp_path / "U", entry)
    field = read_field(tmp_path / "U")
    assert field.patches == {"frt-fairing:001%1": "x", "walls": "noSlip"}
    np.testing.assert_array_equal(field.boundary["frt-fairing:001%1"], [1, 2, 3])


@pytest.mark.parametrize(
    ("entry", "value", "problem"),
    [
        (b'#include "inlet"', b"", r"the patch inlet refers to another place \(#include\)"),
        (b"$entries;", b"", r"the patch inlet refers to another place \(\$entries\)"),
        # Its type and its value may be others than those of the file.
        (b"value uniform (1 2 3);", b"$entries;", r"refers to another place \(\$entries\)"),
        (b"", b"value $internalField;", r"value on the patch inlet is '\$internalField;'"),
        (b"", b"value uniform (1 $v 0);", r"value on the patch inlet is 'uniform \(1 \$v 0\)"),
        (b"", b"value nonuniform List<wordRe> 1(a);", "of type wordRe, which is not read"),
        (b"broken ( ];", b"", "a ']' closes nothing"),
        (b"endless { ", b"", "is cut short"),
    ],
)
def test_a_value_that_the_file_does_not_hold_is_refused_by_its_name(
    tmp_path, entry, value, problem
):
    patch_file(tmp_path / "U", entry, patch=b"inlet", value=value)
    with pytest.raises(CaseError, match=problem):
        read_field(tmp_path / "U")


def test_a_patch_may_have_one_value_for_all_faces_or_no_face(tmp_path):
    patch_file(tmp_path / "U", b"", patch=b"inlet", value=b"value nonuniform 0();")
    assert read_field(tmp_path / "U").boundary["inlet"].shape == (0, 3)
    patch_file(tmp_path / "U", b"", patch=b"inlet")
    field = read_field(tmp_path / "U")
    np.testing.assert_array_equal(field.internal, [0, 0, 0])
    np.testing.assert_array_equal(field.boundary["inlet"], [1, 2, 3])


def test_a_packed_field_is_read_and_a_damaged_one_named(tmp_path):
    field_file(tmp_path / "U", np.ones((3, 3)), binary=True, patch_vectors=np.ones((2, 3)))
    packed = gzip.compress((tmp_path / "U").read_bytes())
    (tmp_path / "U").unlink()
    (tmp_path / "U.gz").write_bytes(packed)
    np.testing.assert_array_equal(read_field(tmp_path / "U").internal, np.ones((3, 3)))
    (tmp_path / "U.gz").write_bytes(packed[:-20])
    with pytest.raises(CaseError, match="U cannot be read: Compressed file ended"):
        read_field(tmp_path / "U")


@pytest.mark.parametrize("count", ["2\n", ""], ids=["OpenFOAM's", "PyFoam's"])
def test_a_boundary_file_may_hold_any_patch_name_and_nested_entries(tmp_path, count):
    (tmp_path / "boundary").write_text(
        HEADER.format(format="binary", kind="polyBoundaryMesh", name="boundary")
        + f"{count}(\n"
        + "frt-fairing:001%1 { type wall; inGroups 1(wall); nFaces 0; startFace 7; }\n"
        + "mixing { type cyclicAMI; nFaces 3; surface { type plane; } startFace 7; }\n)\n"
    )
    found = read_boundary(tmp_path / "boundary")
    assert found == {
        "frt-fairing:001%1": PatchRange("wall", 7, 0, ("wall",)),
        "mixing": PatchRange("cyclicAMI", 7, 3, ("cyclicAMI",)),
    }


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ('arch "PDP;label=32;scalar=64"', r"where 'PDP' is not known; write it as ascii"),
        ('arch "LSB;label=16;scalar=64"', r"where 'label=16' is not known"),
        ('arch "LSB;label=32;scalar=128"', r"where 'scalar=128' is not known"),
        ("format compressed", r"has the format 'compressed', expected ascii or binary"),
    ],
)
def test_an_unknown_binary_form_is_an_error(tmp_path, entry, problem):
    header = HEADER.format(format="binary", kind="volScalarField", name="p")
    header = re.sub(rf"{entry.split()[0]} .*;", f"{entry};", header)
    (tmp_path / "p").write_text(header + "internalField uniform 1;\nboundaryField {}\n")
    with pytest.raises(CaseError, match=problem):
        read_field(tmp_path / "p")


def test_the_header_is_read_and_no_comment_in_it(tmp_path):
    header = HEADER.format(format="ascii", kind="volScalarField", name="p")
    header = header.replace("{\n", '{ // format binary; arch "MSB";\n', 1)
    (tmp_path / "p").write_text(header + "internalField nonuniform List<scalar> 2(1 2.5);\n")
    assert read_field(tmp_path / "p").internal.tolist() == [[1], [2.5]]
