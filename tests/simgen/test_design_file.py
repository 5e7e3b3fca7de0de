"""Design files of every kind that spreadsheets, scripts and accidents make: read right, or one
clear line.
"""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simgen.design_space import DesignPoint, DesignSpace, Parameter
from simgen.errors import InputError
from tests.trials import trials

SPACE = DesignSpace((Parameter("radius", "m", 0.5, 5.0), Parameter("speed", "m/s", -3.0, 3.0)))
GOOD = b"radius,speed\n2,1.5\n0.75,-3\n"
READ = [{"radius": 2.0, "speed": 1.5}, {"radius": 0.75, "speed": -3.0}]


@pytest.mark.parametrize(
    "content",
    [
        GOOD,
        b"\xef\xbb\xbf" + GOOD,  # the mark that Excel puts first
        GOOD.replace(b"\n", b"\r\n"),
        GOOD + b"\n,\n  \n",  # lines that a spreadsheet leaves behind
        b'"radius", speed\n"2", 1.5\n0.75,-3.0e0',
    ],
)
def test_a_file_is_read_whoever_wrote_it(tmp_path, content):
    file = tmp_path / "designs.csv"
    file.write_bytes(content)
    assert SPACE.read_csv(file) == READ


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"radius,speed\n2,1\xe9\n", r"is no UTF-8 text \(byte 16\); save it as CSV in UTF-8"),
        ("radius,speed\n2,1\n".encode("utf-16"), "is no UTF-8 text"),
        (b"PK\x03\x04\x00\x00", "is no text but binary"),
        (b"\x7fELF\x02\x01\x01\x00\xff\xfe", "is no UTF-8 text"),
        (b"radius,speed,speed\n2,1,2\n", "has more than one column 'speed'; keep one"),
        (b"radius,speed\n2\n", "line 2: 1 values, its header has 2 columns"),
        (b"radius,speed\n2,1\n2,1,5\n", "line 3: 3 values, its header has 2 columns"),
        (b"radius,speed\n2,1_0\n", "line 2: speed = '1_0' is no number"),
        (b"radius,speed\n2,\n", "line 2: speed = '' is no number"),
        (b"radius,speed\n2,nan\n", "line 2: speed = 'nan' is no number"),
        (b"radius;speed\n2;1\n", "line 2: radius;speed = '2;1' is no number"),
        (b'radius,speed\n2,"1\n', "line 2: unexpected end of data"),
        (b"", "holds no design; expected a header radius,speed"),
        (b"radius,speed\n", "holds no design"),
    ],
)
def test_any_other_file_is_one_line_that_names_it(tmp_path, content, message):
    file = tmp_path / "designs.csv"
    file.write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        SPACE.read_csv(file)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_no_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "."):
        with pytest.raises(InputError, match="is no regular file"):
            SPACE.read_csv(tmp_path / name)


def test_a_negative_zero_is_the_same_design_as_zero(tmp_path):
    file = tmp_path / "designs.csv"
    file.write_text("radius,speed\n2,0\n2,-0.0\n2,-0\n")
    ids = {DesignPoint("f", 1, row, {}).id for row in SPACE.read_csv(file)}
    assert len(ids) == 1
    assert [str(row["speed"]) for row in SPACE.read_csv(file)] == ["0.0"] * 3


@settings(max_examples=trials(150), deadline=None)
@given(content=st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_no_content_is_anything_but_designs_or_one_line(tmp_path_factory, content):
    file = tmp_path_factory.getbasetemp() / "any.csv"
    file.write_bytes(b"radius,speed\n" + content)
    try:
        designs = SPACE.read_csv(file)
    except InputError as error:
        assert str(file) in str(error)
        assert "\n" not in str(error)
    else:
        assert all(SPACE.check(design) == design for design in designs)
