"""The text of a dataset card, in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import pandas

from simgen.store.compare import stored_bytes
from simgen.store.reader import Dataset
from simgen.store.remake import Remake
from simgen.store.split import RATIOS, SPLITS


def card_text(dataset: Dataset, physics: tuple[str, str], remake: Remake, license: str) -> str:
    """The whole card, below its mark; `physics` is a title and a description."""
    title, description = physics
    sections = [
        f"# {dataset.schema.family} {dataset.version}",
        f"**{title}**: {_summary(dataset)}",
        _facts(dataset, license),
        f"## Physics\n\n{description}",
        _design_space(dataset),
        _cases(dataset),
        _fields(dataset),
        _statistics(dataset),
        _sizes(dataset),
        "## Sample cases\n\n![Sample cases](samples.png)\n\nThe magnitude of "
        f"{dataset.schema.fields[0].name} at the last snapshot, from the smallest {dataset.schema.parameters[0].name} to the largest.",
        _gates(dataset),
        _provenance(dataset),
        _remake(remake),
        _reading(dataset),
    ]
    return "\n\n".join(sections) + "\n"


def _summary(dataset: Dataset) -> str:
    table = dataset.design
    kind = "transient" if dataset.schema.transient else "steady"
    points = table["num_points"].dropna()
    splits = ", ".join(f"{len(dataset.cases(split))} {split}" for split in SPLITS)
    return (
        f"{len(dataset)} {kind} simulations ({splits}) on point clouds of {_range(points)} points each"
        + (f", {_range(table['num_snapshots'].dropna())} snapshots" if dataset.schema.transient else "")
        + "."
    )


def _facts(dataset: Dataset, license: str) -> str:
    info, metadata = dataset.info, dataset.info.metadata
    rows = [
        ("licence", license),
        ("published", f"{info.time:%Y-%m-%d %H:%M} UTC by {info.author or 'unknown'}: {info.message}"),
        ("snapshot", f"`{info.snapshot_id}`"),
        (
            "generator",
            f"{metadata.get('generator_version', 'unknown')}, source revision {metadata.get('source_revision', 'unknown')}",
        ),
        ("solver", ", ".join(metadata.get("solver_versions", [])) or "unknown"),
    ]
    return table_text(("", ""), rows)


def _design_space(dataset: Dataset) -> str:
    rows = [
        (f"`{parameter.name}`", parameter.unit, f"{parameter.low:g} to {parameter.high:g}", parameter.description)
        for parameter in dataset.schema.parameters
    ]
    return (
        f"## Design space\n\n{table_text(('parameter', 'unit', 'range', ''), rows)}\n\n![Designs](designs.png)\n\n"
        "Every design, with its status and sizes, is in [cases.csv](cases.csv)."
    )


def _cases(dataset: Dataset) -> str:
    table = dataset.design
    splits = [(split, str(len(dataset.cases(split))), f"{RATIOS[split]:.0%}") for split in SPLITS]
    text = (
        f"## Cases and splits\n\n{table_text(('split', 'cases', 'aim'), splits)}\n\nA case keeps its split in every later version.\n\n"
        f"{table_text(('status', 'cases'), [(str(status), str(count)) for status, count in table['status'].value_counts().items()])}"
    )
    refused = table[table["status"] != "accepted"]
    if len(refused):
        reasons = Counter(zip(refused["status"], refused["reason"], strict=True)).most_common(10)
        rows = [(str(status), str(reason), str(count)) for (status, reason), count in reasons]
        text += f"\n\nNot accepted, and on record with their logs:\n\n{table_text(('status', 'reason', 'cases'), rows)}"
    return text


def _fields(dataset: Dataset) -> str:
    schema = dataset.schema
    frames = "T, " if schema.transient else ""
    rows = [
        ("`points`", "m", "x, y, z", "(N, 3)"),
        ("`volumes`", "m3" if schema.dimension == 3 else "m3, of a slab one cell thick", "", "(N,)"),
    ]
    if schema.transient:
        rows.append(("`time`", "s", "", "(T,)"))
    rows += [
        (f"`{field.name}`", field.unit, ", ".join(field.components), f"({frames}N, {len(field.components)})")
        for field in schema.fields
    ]
    kinds = len(schema.patch_kinds)
    rows += [
        ("`distance`", "m", ", ".join(schema.patch_kinds), f"(N, {kinds})"),
        ("`direction`", "", "unit vector to the nearest face of each", f"(N, {kinds}, 3)"),
    ]
    return (
        f"## Fields\n\nN cells{', T snapshots' if schema.transient else ''}; each case has its own mesh.\n\n"
        f"{table_text(('array', 'unit', 'components', 'shape'), rows)}\n\n"
        "The boundary has a cloud of its own: `boundary.points`, `normals`, `areas`, `patch` (an index into "
        f"{', '.join(schema.patch_kinds)}), and the same fields."
    )


def _statistics(dataset: Dataset) -> str:
    rows = [
        (f"`{field.name}` {component if len(field.components) > 1 else ''}".strip(), field.unit,
         *(f"{dataset.statistics[field.name][figure][number]:.4g}" for figure in ("mean", "std", "min", "max")))
        for field in dataset.schema.fields
        for number, component in enumerate(field.components)
    ]  # fmt: skip
    return (
        f"## Statistics of the training split\n\n{table_text(('field', 'unit', 'mean', 'std', 'min', 'max'), rows)}\n\n"
        "![Distributions](distributions.png)\n\nOver some training cases; the line and the band are the mean and one standard deviation."
    )


def _sizes(dataset: Dataset) -> str:
    table = dataset.design
    rows = [
        ("points of a case", _range(table["num_points"].dropna()), f"{table['num_points'].median():.0f}"),
        ("MB of its fields", _range(table["num_bytes"].dropna() / 1e6, 1), f"{table['num_bytes'].median() / 1e6:.1f}"),
    ]
    if dataset.schema.transient:
        rows.insert(1, ("snapshots", _range(table["num_snapshots"].dropna()), f"{table['num_snapshots'].median():.0f}"))
    return (
        f"## Sizes\n\n{table_text(('', 'range', 'median'), rows)}\n\n{size_text(table['num_bytes'].sum())} of fields, "
        f"{size_text(stored_bytes(dataset, dataset.cases()))} on disk."
    )


def _gates(dataset: Dataset) -> str:
    rows = [(gate["name"], f"{gate['limit']} {gate['unit']}".strip()) for gate in dataset[0].gates]
    return f"## Acceptance\n\nEvery accepted case has passed these gates:\n\n{table_text(('gate', 'limit'), rows)}"


def _provenance(dataset: Dataset) -> str:
    case = dataset[0]
    hosts = sorted(
        {str(dataset[position].provenance.get("host_class", "unknown")) for position in range(min(5, len(dataset)))}
    )
    hours = dataset.design["wall_time_s"].sum() / 3600
    settings = ", ".join(f"{name} {value:g}" for name, value in case.settings.items())
    return (
        f"## Provenance\n\nSolved with {case.provenance.get('solver', 'an unknown solver')} in {hours:.1f} hours of wall time, on "
        f"{' and '.join(hosts)}. Settings of the first case: {settings}.\n\n"
        "Each case holds its parameters, mesh figures, residual history, gates, solver, source revision, duration and host class: "
        "`ds[case].provenance`, `ds[case].gates`."
    )


def _remake(remake: Remake) -> str:
    revision = f" (source revision {remake.source_revision})" if remake.source_revision else ""
    files = f", run in this folder, since it reads {' and '.join(remake.designs)}" if remake.designs else ""
    joined = " && \\\n    ".join(remake.commands)
    return (
        f"## Make it again\n\nWith the generator that made it{revision}, as one command{files}:\n\n```sh\n{joined}\n```"
    )


def _reading(dataset: Dataset) -> str:
    field = dataset.schema.fields[0].name
    window = "[100:110]  # lazy: reads these snapshots alone" if dataset.schema.transient else "[:]"
    return (
        f'## Read it\n\n```python\nimport simgen\n\nds = simgen.open_dataset("{dataset.url}", version="{dataset.version}")\n'
        f'case = ds[ds.cases("train")[0]]\ncase.points, case["{field}"]{window}\n```\n\n'
        "Without this project, from a plain Zarr store:\n\n```sh\n"
        f"courant dataset export {dataset.url} s3://bucket/{dataset.schema.family}-{dataset.version} --version {dataset.version}\n```\n\n"
        f'```python\nimport zarr  # and s3fs\n\nroot = zarr.open_group("s3://bucket/{dataset.schema.family}-{dataset.version}", mode="r")\n'
        f'root["cases/{dataset.cases()[0]}/{field}"][0]\n```'
    )


def table_text(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def size_text(num_bytes: float) -> str:
    """Bytes in the unit that suits them."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:.3g} {unit}"
    return f"{num_bytes:.0f} B"


def _range(values: pandas.Series, digits: int = 0) -> str:
    low, high = (f"{value:,.{digits}f}" for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"
