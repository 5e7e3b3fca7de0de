"""Reading OpenFOAM's files: binary and ascii, and what damaged ones say."""

import struct

import numpy as np
import pytest

from simgen.errors import CaseError
from simgen.foam.field import read_boundary, read_faces, read_field, read_list

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
    """A volVectorField with a list of vectors inside, one patch with a list, one uniform and one without value."""

    def payload(values):
        if binary:
            return b"(" + np.asarray(values, "<f8").tobytes() + b")"
        return ("(" + " ".join(f"({x:.17g} {y:.17g} {z:.17g})" for x, y, z in values) + ")").encode()

    text = HEADER.format(format="binary" if binary else "ascii", kind="volVectorField", name="U").encode()
    text += b"dimensions [0 1 -1 0 0 0 0];\ninternalField   nonuniform List<vector> \n%d\n" % len(vectors)
    text += payload(vectors) + b"\n;\nboundaryField\n{\n    inlet\n    {\n        type fixedValue;\n"
    text += b"        value nonuniform List<vector> \n%d\n" % len(patch_vectors) + payload(patch_vectors)
    text += b"\n;\n    }\n    walls\n    {\n        type noSlip;\n    }\n"
    text += b"    outlet { type inletOutlet; inletValue uniform (0 0 0); value uniform (1 -2 3e-1); }\n}\n"
    path.write_bytes(text)


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


def test_a_uniform_field_keeps_its_one_value(tmp_path):
    (tmp_path / "p").write_text(
        HEADER.format(format="ascii", kind="volScalarField", name="p")
        + "internalField uniform -1.5e-3;\nboundaryField\n{\n    inlet { type zeroGradient; }\n}\n"
    )
    field = read_field(tmp_path / "p")
    np.testing.assert_array_equal(field.internal, [-1.5e-3])
    assert field.boundary == {}


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "ascii"])
@pytest.mark.parametrize("keep", [0.2, 0.5, 0.8])
def test_a_truncated_file_is_an_error_that_names_it(tmp_path, binary, keep):
    field_file(tmp_path / "U", np.ones((60, 3)), binary=binary, patch_vectors=np.ones((20, 3)))
    data = (tmp_path / "U").read_bytes()
    (tmp_path / "U").write_bytes(data[: int(keep * len(data))])
    with pytest.raises(CaseError, match=r"U (is cut short|has no internalField)|expected"):
        read_field(tmp_path / "U")


def test_a_missing_file_is_an_error_that_names_it(tmp_path):
    with pytest.raises(CaseError, match=r"U cannot be read: No such file"):
        read_field(tmp_path / "U")


def test_labels_points_and_faces_in_both_formats(tmp_path):
    labels = np.array([3, 1, 4, 1, 5], "<i4")
    header = HEADER.format(format="binary", kind="labelList", name="owner").encode()
    (tmp_path / "owner").write_bytes(header + b"5\n(" + labels.tobytes() + b")\n")
    np.testing.assert_array_equal(read_list(tmp_path / "owner", 1, "label")[:, 0], labels)
    offsets, corners = np.array([0, 4, 7], "<i4"), np.array([0, 1, 2, 3, 3, 2, 4], "<i4")
    compact = b"3\n(" + offsets.tobytes() + b")\n7\n(" + corners.tobytes() + b")\n"
    (tmp_path / "faces").write_bytes(header.replace(b"labelList", b"faceCompactList") + compact)
    ascii_header = HEADER.format(format="ascii", kind="faceList", name="faces")
    (tmp_path / "faces_ascii").write_text(ascii_header + "2\n(\n4(0 1 2 3)\n3(3 2 4)\n)\n")
    for name in ("faces", "faces_ascii"):
        found_offsets, found_corners = read_faces(tmp_path / name)
        np.testing.assert_array_equal(found_offsets, offsets)
        np.testing.assert_array_equal(found_corners, corners)


def test_patches_with_their_faces(tmp_path):
    (tmp_path / "boundary").write_text(
        HEADER.format(format="ascii", kind="polyBoundaryMesh", name="boundary")
        + "1\n(\n    inlet\n    {\n        type patch;\n        nFaces 20;\n        startFace 8821;\n    }\n)\n"
    )
    assert read_boundary(tmp_path / "boundary") == {"inlet": ("patch", 8821, 20)}
