"""Write a dataset card: a README with pictures that explains a version to a newcomer.

Names, units, reasons and messages may be a stranger's. Whatever the template inserts is plain text
in Markdown, one line long, unless it was marked as code here. The commands that make the version
again come from what each publication recorded.
"""

from __future__ import annotations

import inspect
import re
import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import pandas
from markupsafe import Markup

from simgen.case import Field
from simgen.cases import FAMILIES
from simgen.errors import InputError, StoreError
from simgen.store.read import Dataset
from simgen.store.schema import Schema
from simgen.store.split import RATIOS, counts_of
from simgen.store.verify import stored_bytes
from simgen.store.versions import VersionInfo

if TYPE_CHECKING:
    from matplotlib.figure import Figure


#: First line of every card, by which a later card knows that it may replace it.
MARK = "<!-- dataset card of courant -->"
NUM_SAMPLES = 6


def write_card(
    dataset: Dataset,
    folder: str | Path,
    license: str = "",
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Path:
    """Write the card of the dataset's version into `folder`; return the README's path.

    Files: README.md, designs.png, samples.png, distributions.png, quantities.png and parallel.png
    where cases have quantities, and cases.csv, the table of all cases. Raises InputError where the
    folder holds a README that is no card.
    """
    target = Path(folder).expanduser()
    readme = target / "README.md"
    try:
        _check(readme)
        target.mkdir(parents=True, exist_ok=True)
        steps = [*_pictures(dataset, target), lambda: dataset.design.to_csv(target / "cases.csv")]
        for done, step in enumerate(steps):
            on_progress(done, len(steps))
            step()
        # The text comes last: a folder with a README has every file that it mentions.
        readme.write_text(f"{MARK}\n\n{card_text(dataset, physics(dataset), license)}")
        on_progress(len(steps), len(steps))
    except OSError as error:
        raise StoreError(
            f"card {target} cannot be written: {error.strerror or error}; choose another folder"
        ) from error
    return readme


def physics(dataset: Dataset) -> tuple[str, str]:
    """Return title and description of the family's physics; just its name if it is unknown here.

    A description from this project's own pages is Markdown already.
    """
    family, source = FAMILIES.get(dataset.schema.family), dataset.schema.source
    if source is not None:
        return source.name, f"Solved elsewhere and imported from {source.url}."
    if family is None:
        return dataset.schema.family, "This release does not know the family."
    documentation = inspect.getdoc(inspect.getmodule(type(family))) or ""
    # The paper's table labels mean nothing outside the source.
    plain = re.sub(r"\s\(tab:[^)]*\)", "", documentation.removeprefix(f"{family.name}: "))
    return family.title, Markup(plain)


def _check(readme: Path) -> None:
    if readme.exists() and not readme.read_text(errors="replace").startswith(MARK):
        raise InputError(f"{readme} is no dataset card: choose another folder with --out")


def _pictures(dataset: Dataset, target: Path) -> list[Callable[[], None]]:
    """List the steps; each draws one picture."""
    from simgen.publish import dataset_figures
    from simgen.publish.field_plots import png_bytes

    def save(name: str, draw: Callable[[], Figure]) -> None:
        (target / name).write_bytes(png_bytes(draw()))

    field = shown_field(dataset).name
    samples = [dataset[case] for case in sample_ids(dataset)]
    designs = [lambda: save("designs.png", lambda: dataset_figures.designs(dataset))]
    return [
        *(designs if dataset.schema.parameters else []),
        *_quantity_pictures(dataset, save),
        lambda: save("samples.png", lambda: dataset_figures.sample_cases(samples, field)),
        lambda: save("distributions.png", lambda: dataset_figures.distributions(dataset)),
    ]


def _quantity_pictures(
    dataset: Dataset, save: Callable[[str, Callable[[], Figure]], None]
) -> list[Callable[[], None]]:
    from simgen.publish import dataset_figures
    from simgen.publish.dataset_figures import shown_quantities

    if not shown_quantities(dataset):
        return []
    return [
        lambda: save("quantities.png", lambda: dataset_figures.histograms(dataset)),
        lambda: save("parallel.png", lambda: dataset_figures.parallel_coordinates(dataset)),
    ]


def sample_ids(dataset: Dataset) -> list[str]:
    """Choose cases to show, spread over the first design parameter so that the pictures differ.

    Without design parameters they keep the dataset's order.
    """
    ordered = dataset.cases()
    for first in dataset.schema.parameters[:1]:
        ordered = sorted(ordered, key=lambda case: float(dataset[case].parameters[first.name]))
    count = min(NUM_SAMPLES, len(ordered))
    return [
        ordered[round(number * (len(ordered) - 1) / max(1, count - 1))] for number in range(count)
    ]


Rows = list[tuple[Any, ...]]


def card_text(dataset: Dataset, physics: tuple[str, str], license: str) -> str:
    """Render the whole card, below its mark; `physics` is a title and a description."""
    title, description = physics
    table, schema = dataset.design, dataset.schema
    refused = table[table["status"] != "accepted"]
    reasons = Counter(zip(refused["status"], refused["reason"], strict=True)).most_common(10)
    return _template().render(
        dataset=dataset,
        shown=shown_field(dataset),
        schema=schema,
        title=title,
        description=description,
        summary=_summary(dataset),
        facts=_facts(dataset, license),
        parameters=[
            (_code(each.name), each.unit, f"{each.low:g} to {each.high:g}", each.description)
            for each in schema.parameters
        ],
        splits=[
            (split, count, _aim(schema, split)) for split, count in counts_of(dataset.cases).items()
        ],
        statuses=list(table["status"].value_counts().items()),
        refused=[(status, reason, count) for (status, reason), count in reasons],
        arrays=_arrays(dataset),
        statistics=_statistics(dataset),
        left_out=left_out(dataset),
        quantities=_quantities(dataset),
        sobol=_sobol(dataset),
        sizes=_sizes(dataset),
        bytes_of_fields=size_text(table["num_bytes"].sum()),
        bytes_on_disk=size_text(stored_bytes(dataset, dataset.cases())),
        gates=[
            (gate["name"], f"{gate['limit']} {gate['unit']}".strip()) for gate in dataset[0].gates
        ],
        solver=dataset[0].provenance.get("solver", "an unknown solver"),
        duration=duration_text(float(table["wall_time_s"].sum())),
        hosts=_hosts(dataset),
        settings=", ".join(f"{name} {value:g}" for name, value in dataset[0].settings.items()),
        commands=_block(" && \\\n    ".join(how_to_make(dataset))),
        source_revision=str(dataset.info.metadata.get("source_revision", "")),
    )


def shown_field(dataset: Dataset) -> Field:
    """Choose the field that pictures are of: the first solved one."""
    return dataset.schema.of_role("solved")[0]


def _aim(schema: Schema, split: str) -> str:
    if schema.splits == "published":
        return "as published"
    return f"{RATIOS[split]:.0%}" if split in RATIOS else "as asked for"


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("simgen.publish"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,  # what is no Markup goes through `finalize`
        finalize=_text,
        keep_trailing_newline=True,
    )
    environment.filters |= {"text": _text, "code": _block}
    return environment.get_template("card.md.j2")


def _text(value: object) -> Markup:
    """Escape what Markdown would take for structure: links, pictures, code, cells, tags, lines."""
    if isinstance(value, Markup):
        return value
    return Markup(re.sub(r"[\\`|\[]|<(?=[A-Za-z/!?])", r"\\\g<0>", _one_line(str(value))))


def _code(name: str) -> Markup:
    """Return a name as code inside of a line, or of a cell."""
    return Markup("`" + _one_line(name).replace("`", "'").replace("|", "\\|") + "`")


def _block(text: str) -> Markup:
    """Return text for a block of code, which it cannot end."""
    return Markup("\n".join(map(_one_line, text.replace("`", "'").split("\n"))))


def _one_line(text: str) -> str:
    return "".join(each if each.isprintable() else " " for each in text)


def _summary(dataset: Dataset) -> str:
    table, transient = dataset.design, dataset.schema.transient
    snapshots = f", {_range(table['num_snapshots'].dropna())} snapshots" if transient else ""
    return (
        f"{len(dataset)} {'transient' if transient else 'steady'} simulations ({dataset.splits}) on"
        f" point clouds of {_range(table['num_points'].dropna())} points each{snapshots}."
    )


def _facts(dataset: Dataset, license: str) -> Rows:
    info, metadata = dataset.info, dataset.info.metadata
    published = f"{info.time:%Y-%m-%d %H:%M} UTC by {info.author or 'unknown'}: {info.message}"
    release = metadata.get("generator_version", "unknown")
    revision = metadata.get("source_revision", "unknown")
    solver, source = ", ".join(metadata.get("solver_versions", [])), dataset.schema.source
    return [
        ("licence", license or (source.licence if source else "") or "not stated"),
        ("published", published),
        ("snapshot", _code(info.snapshot_id)),
        ("generator", f"{release}, source revision {revision}"),
        ("source", f"{source.name}, {source.url}") if source else ("solver", solver or "unknown"),
    ]


def _arrays(dataset: Dataset) -> Rows:
    schema = dataset.schema
    frames = "T, " if schema.transient else ""
    volume = "m3" if schema.dimension == 3 or schema.source else "m3, of a slab one cell thick"
    kinds = len(schema.measured_kinds)
    distance = [
        (_code("distance"), "m", ", ".join(schema.measured_kinds), f"(N, {kinds})"),
        (_code("direction"), "", "unit vector to the nearest face of each", f"(N, {kinds}, 3)"),
    ]
    return [
        (_code("points"), "m", "x, y, z", "(N, 3)"),
        *([(_code("volumes"), volume, "", "(N,)")] if schema.volumes else []),
        *([(_code("time"), "s", "", "(T,)")] if schema.transient else []),
        *(
            (
                Markup(f"{_code(field.name)}{' (given)' if field.role == 'given' else ''}"),
                field.unit,
                ", ".join(field.components),
                f"({frames}N, {len(field.components)})",
            )
            for field in schema.fields
        ),
        *(distance if kinds else []),
    ]


def _statistics(dataset: Dataset) -> Rows:
    return [
        (
            Markup(f"{_code(field.name)} {_text(component)}")
            if len(field.components) > 1
            else _code(field.name),
            field.unit,
            *(
                f"{dataset.statistics[field.name][figure][number]:.4g}"
                for figure in ("mean", "std", "min", "max")
            ),
        )
        for field in dataset.schema.fields
        for number, component in enumerate(field.components)
    ]


def left_out(dataset: Dataset) -> list[str]:
    """Tell by field what its statistics leave out besides the start-up; empty where nothing."""
    told = []
    for field in dataset.schema.fields:
        of = dataset.left_out(field.name)
        parts = []
        if of.snapshots:
            parts.append(f"{_counted(of.snapshots, 'snapshot')} of {_counted(of.of_cases, 'case')}")
        if parts:
            told.append(f"{field.name}, {' and '.join(parts)}")
    if cases := dataset.left_out_cases:
        told.append(f"the whole of {', '.join(cases)}, in training and validation too")
    return told


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _quantities(dataset: Dataset) -> Rows:
    from simgen.publish.dataset_figures import shown_quantities  # imports much of scipy

    of_training = dataset.quantity_statistics
    return [
        (
            _code(each.name),
            each.unit,
            *(f"{of_training[each.name][name]:.4g}" for name in ("mean", "std", "min", "max")),
            each.meaning,
        )
        for each in shown_quantities(dataset)
    ]


def _sobol(dataset: Dataset) -> Rows:
    """List first and total index by parameter, of the quantities that designs explain."""
    from simgen.publish.dataset_figures import sensitivities

    return [
        (
            _code(name),
            *(
                f"{first:.2f}, {total:.2f}"
                for first, total in zip(found.first, found.total, strict=True)
            ),
            f"{found.fit:.2f}",
        )
        for name, found in sensitivities(dataset).items()
        if found is not None
    ]


def _sizes(dataset: Dataset) -> Rows:
    table = dataset.design
    asked: list[tuple[str, pandas.Series, int]] = [("points of a case", table["num_points"], 0)]
    if dataset.schema.transient:
        asked.append(("snapshots", table["num_snapshots"], 0))
    asked.append(("MB of its fields", table["num_bytes"] / 1e6, 1))
    return [
        (name, _range(values.dropna(), digits), f"{values.median():.{digits}f}")
        for name, values, digits in asked
    ]


def _hosts(dataset: Dataset) -> str:
    first = [dataset[position].provenance for position in range(min(5, len(dataset)))]
    return " and ".join(sorted({str(each.get("host_class", "unknown")) for each in first}))


def size_text(num_bytes: float) -> str:
    """Write bytes in the unit that suits them."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:.3g} {unit}"
    return f"{num_bytes:.0f} B"


def duration_text(seconds: float) -> str:
    """Write a duration in the unit that suits it."""
    for unit, scale in (("h", 3600.0), ("min", 60.0)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def _range(values: pandas.Series, digits: int = 0) -> str:
    low, high = (f"{value:,.{digits}f}" for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


STORE = "made-again"


def how_to_make(dataset: Dataset, store: str = STORE) -> list[str]:
    """Return the commands that make the version in another store, in order.

    A version without a run on record adds none: it was imported, or written from Python.
    """
    commands = []
    for version in dataset.versions():
        run = version.metadata.get("run") or {}
        if "withdrawn" in run:
            words = [f"{store}/{dataset.schema.family}", *run["withdrawn"], "--reason"]
            commands.append(shlex.join(["courant", "dataset", "withdraw", *words, run["reason"]]))
        elif command := run_command(version, store):
            commands.append(command)
        if version.name == dataset.version:
            break
    return commands


def run_command(version: VersionInfo, store: str = STORE) -> str:
    """Return the command of the run that solved a version's cases; empty where there is none."""
    run = version.metadata.get("run") or {}
    if "family" not in run or run.get("design_parameters"):
        return ""
    words = ["courant", "generate", run["family"]]
    names = ("designs",) if run.get("designs") else ("cases", "sampler", "seed")
    for name in (*names, "preset", "split", "time_limit_s"):
        if run.get(name) is not None:
            words += [f"--{name.removesuffix('_s').replace('_', '-')}", str(run[name])]
    for name, value in (run.get("settings") or {}).items():
        words += ["--set", f"{name}={value!r}"]
    return shlex.join([*words, "--store", store])
