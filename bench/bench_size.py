"""The size of the code base: lines, files, imports, functions, lonely modules, repeated classes.

A module is lonely where a single other module imports it, and that one is in the same folder.
Lines are all lines of a file, blank ones and comments included. `python -m bench size` prints the
table beside the bounds that the project keeps to, and writes size.json.
"""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import quantiles

from bench.report import publish, show

ROOT = Path(__file__).parents[1]
PACKAGES = ("simgen", "courant", "flows")
#: Upper bounds of what is counted for the three packages together, for tests and for bench.
BOUNDS = {
    "lines of the packages": 42_700,
    "files of the packages": 230,
    "percent of lines that import": 6,
    "modules with one importer, in its folder": 40,
    "class names used twice": 0,
    "lines of tests": 27_400,
    "lines of bench": 7_200,
}


@dataclass(frozen=True)
class Size:
    """Counts of one folder."""

    folder: str
    files: int
    lines: int
    import_share: float
    """Percent of all lines that belong to import statements"""
    function_median: float
    """Lines of a function or method"""
    function_p90: float


def count(folder: str) -> Size:
    """Count one folder of Python files."""
    files, lines, imports = 0, 0, 0
    lengths: list[int] = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        text = path.read_text()
        files, lines = files + 1, lines + len(text.splitlines())
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports += _length(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lengths.append(_length(node))
    deciles = quantiles(lengths, n=10) if len(lengths) > 1 else [0.0] * 9
    return Size(folder, files, lines, 100 * imports / max(lines, 1), deciles[4], deciles[8])


def lonely_modules(packages: Sequence[str] = PACKAGES) -> list[str]:
    """Return the modules that have one importer among the packages, which is in their folder."""
    paths = {name: path for package in packages for name, path in _modules(package)}
    importers = defaultdict(set)
    for name, path in paths.items():
        for used in _imported(path, paths):
            if used != name:
                importers[used].add(name)
    return sorted(
        name
        for name, users in importers.items()
        if len(users) == 1
        and paths[name].name != "__init__.py"
        and paths[name].parent == paths[next(iter(users))].parent
    )


def repeated_classes(packages: Sequence[str] = PACKAGES) -> dict[str, int]:
    """Return the names that two or more classes of the packages have, with their number."""
    names = Counter(
        node.name
        for package in packages
        for _, path in _modules(package)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    return {name: number for name, number in sorted(names.items()) if number > 1}


def main(out: Path, short: bool) -> None:
    """Print both tables and write size.json."""
    sizes = [count(folder) for folder in (*PACKAGES, "tests", "bench")]
    by_folder = {size.folder: size for size in sizes}
    packages = [by_folder[name] for name in PACKAGES]
    lines = sum(size.lines for size in packages)
    lonely, repeated = lonely_modules(), repeated_classes()
    found = {
        "lines of the packages": lines,
        "files of the packages": sum(size.files for size in packages),
        "percent of lines that import": sum(s.import_share * s.lines for s in packages) / lines,
        "modules with one importer, in its folder": len(lonely),
        "class names used twice": len(repeated),
        "lines of tests": by_folder["tests"].lines,
        "lines of bench": by_folder["bench"].lines,
    }
    show([{**asdict(size), "import_share": round(size.import_share, 1)} for size in sizes])
    rows = []
    for name, bound in BOUNDS.items():
        over, value = "over" if found[name] > bound else "", round(found[name], 1)
        rows.append({"bound": name, "found": value, "at most": bound, "": over})
    publish(
        out,
        "size",
        rows,
        folders=[asdict(size) for size in sizes],
        lonely_modules=lonely,
        repeated_classes=repeated,
    )


def _modules(package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def _imported(path: Path, known: dict[str, Path]) -> set[str]:
    """Return the known modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (members & known.keys()) or {node.module}
    return found & known.keys()


def _length(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1
