"""Write a dataset card: a README with pictures that explains a version to a newcomer.

Names, units, reasons and messages may be a stranger's: whatever the template inserts is plain text
in Markdown, one line long, unless it is marked as code there.
"""

import inspect
import re
import shlex
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
import pandas
from markupsafe import Markup

from simgen.errors import InputError, StoreError
from simgen.log_lines import duration_text, size_text
from simgen.store.read import Dataset
from simgen.store.split import RATIOS, counts_of
from simgen.store.verify import stored_bytes
from simgen.store.versions import VersionInfo

#: First line of every card, by which a later card knows that it may replace it.
MARK = "<!-- dataset card of courant -->"
NUM_SAMPLES = 6
MAX_REASONS = 10


def write_card(
    dataset: Dataset,
    folder: str | Path,
    license: str = "",
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Path:
    """Write the card of the dataset's version into `folder`; return the README's path.

    Beside it: pictures, and cases.csv, the table of all cases. Raises InputError where the folder
    holds a README that is no card.
    """
    from simgen.publish import figures  # imports much of matplotlib and scipy

    target = Path(folder).expanduser()
    readme = target / "README.md"
    cases = list(dataset)
    for first in dataset.schema.parameters[:1]:  # so that the pictures differ
        cases.sort(key=lambda case: float(case.parameters[first.name]))
    count = min(NUM_SAMPLES, len(cases))
    samples = [cases[round(n * (len(cases) - 1) / max(1, count - 1))] for n in range(count)]
    pictures: dict[str, Callable[[], Any]] = {}
    if dataset.schema.parameters:
        pictures["designs.png"] = lambda: figures.designs(dataset)
    if figures.shown_quantities(dataset):
        pictures["quantities.png"] = lambda: figures.histograms(dataset)
    shown = dataset.schema.of_role("solved")[0].name
    pictures["samples.png"] = lambda: figures.sample_cases(samples, shown)
    pictures["distributions.png"] = lambda: figures.distributions(dataset)
    try:
        if readme.exists() and not readme.read_text(errors="replace").startswith(MARK):
            raise InputError(f"{readme} is no dataset card: choose another folder with --out")
        target.mkdir(parents=True, exist_ok=True)
        for done, (name, draw) in enumerate(pictures.items()):
            on_progress(done, len(pictures) + 1)
            (target / name).write_bytes(figures.png_bytes(draw()))
        dataset.design.to_csv(target / "cases.csv")
        # The text comes last: a folder with a README has every file that it mentions.
        readme.write_text(f"{MARK}\n\n{_card_text(dataset, license)}")
        on_progress(len(pictures) + 1, len(pictures) + 1)
    except OSError as error:
        raise StoreError(
            f"card {target} cannot be written: {error.strerror or error}; choose another folder"
        ) from error
    return readme


def _card_text(dataset: Dataset, license: str) -> str:
    """Render the whole card, below its mark."""
    from simgen.publish.figures import sensitivities, shown_quantities

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("simgen.publish"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,  # what is no Markup goes through `finalize`
        finalize=_text,
        keep_trailing_newline=True,
    )
    environment.filters |= {"text": _text, "code": _block, "name": _code}
    table, schema = dataset.design, dataset.schema
    family, title = dataset.family, schema.family
    description = "This release does not know the family."
    if schema.source is not None:
        title = schema.source.name
        description = f"Solved elsewhere and imported from {schema.source.url}."
    elif family is not None:
        # The project's own documentation is Markdown already; the paper's labels mean nothing
        # outside the source.
        documentation = inspect.getdoc(inspect.getmodule(type(family))) or ""
        plain = re.sub(r"\s\(tab:[^)]*\)", "", documentation.removeprefix(f"{family.name}: "))
        title, description = family.title, Markup(plain)
    not_accepted = table[table["status"] != "accepted"]
    reasons = Counter(zip(not_accepted["status"], not_accepted["reason"], strict=True))
    aims = {split: f"{ratio:.0%}" for split, ratio in RATIOS.items()}
    published = schema.splits == "published"
    return environment.get_template("card.md.j2").render(
        dataset=dataset,
        schema=schema,
        title=title,
        description=description,
        license=license,
        ranges={
            name: (_range(values, digits), f"{values.median():.{digits}f}")
            for name, values, digits in (
                ("points of a case", table["num_points"], 0),
                ("snapshots", table["num_snapshots"], 0),
                ("MB of its fields", table["num_bytes"] / 1e6, 1),
            )
            if values.notna().any()
        },
        splits=[
            (split, count, "as published" if published else aims.get(split, "as asked for"))
            for split, count in counts_of(dataset.cases).items()
        ],
        statuses=list(table["status"].value_counts().items()),
        not_accepted=[(*each, count) for each, count in reasons.most_common(MAX_REASONS)],
        left_out=left_out(dataset),
        quantities=shown_quantities(dataset),
        sobol=sensitivities(dataset),
        bytes_of_fields=size_text(table["num_bytes"].sum()),
        bytes_on_disk=size_text(stored_bytes(dataset, dataset.cases())),
        duration=duration_text(float(table["wall_time_s"].sum())),
        commands=_block(" && \\\n    ".join(how_to_make(dataset))),
    )


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


def left_out(dataset: Dataset) -> list[str]:
    """Describe by field what its statistics leave out besides the start-up; empty where nothing."""
    found = {field.name: dataset.left_out(field.name) for field in dataset.schema.fields}
    lines = [
        f"{name}, snapshots: {of.snapshots}, of cases: {of.of_cases}"
        for name, of in found.items()
        if of.snapshots
    ]
    if whole := dataset.left_out_cases:
        lines.append(f"the whole of {', '.join(whole)}, in training and validation too")
    return lines


def _range(values: pandas.Series, digits: int = 0) -> str:
    low, high = (f"{value:,.{digits}f}" for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


STORE = "made-again"


def how_to_make(dataset: Dataset, store: str = STORE) -> list[str]:
    """Return the commands that make the version in another store, in order, as far as recorded."""
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
    for name in ("template", *names, "preset", "split", "time_limit_s"):
        if run.get(name) is not None:
            words += [f"--{name.removesuffix('_s').replace('_', '-')}", str(run[name])]
    for name in ("vary", "quantity"):
        for text in run.get(name) or ():
            words += [f"--{name}", text]
    if run.get("fields"):
        words += ["--fields", ",".join(run["fields"])]
    for name, value in (run.get("settings") or {}).items():
        words += ["--set", f"{name}={value!r}"]
    return shlex.join([*words, "--store", store])
