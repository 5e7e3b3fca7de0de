"""Panels: names that stay in the folder, tables without gaps, pages without foreign markup."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from courant.report.page import render_page
from courant.report.panel import Animation, Cell, Column, Panel, PanelFigure, Table
from simgen.errors import InputError


@pytest.mark.parametrize("name", ["../x.png", "a/b.png", "a\\b.png", ".hidden", "", "a b.png"])
def test_a_name_that_is_no_plain_file_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="cannot name a file of the report"):
        PanelFigure(name, Figure(), "")
    with pytest.raises(InputError, match="cannot name a file of the report"):
        Panel(name, "title")


def test_a_figure_names_arrays_of_its_panel_only() -> None:
    figure = PanelFigure("a.png", Figure(), "", arrays=("speed",))
    with pytest.raises(ValueError, match=r"a.png is drawn from \['speed'\], not in the panel"):
        Panel("a", "A", (figure,), arrays={"pressure": np.zeros(1)})


def test_every_frame_has_a_label() -> None:
    with pytest.raises(ValueError, match="1 frames with 0 labels"):
        Animation("a", (b"RIFF",), (), "", "", "")


def test_a_row_has_a_cell_for_each_column() -> None:
    with pytest.raises(ValueError, match="a row of 1 cells in a table of 2"):
        Table((Column("a"), Column("b")), ((Cell("1"),),))


def test_markup_in_data_is_shown_and_not_obeyed() -> None:
    table = Table((Column("<i>case</i>"),), ((Cell("<script>1</script>", "bad"),),))
    panel = Panel("cases", "Cases", tables=(table,), note="1 < 2", code='ds["<b>"]')
    page = render_page("<b>", ["<u>"], "", [panel], {})
    for markup in ("<script>", "<i>", "<u>", "<b>"):
        assert markup not in page.partition("<body>")[2]
    assert '<span class="bad">&lt;script&gt;' in page
