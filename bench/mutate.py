"""`make mutate`: break one line at a time, and see whether the tests of its area fail.

Of every area some mutants are drawn by seed: a comparison at its boundary or the other way round,
another operator, a number that is off, a condition or an error that is gone. A mutant is *killed*
where a test fails or hangs. Each runs in a copy of the tree, in a process that is forked from one
that has the libraries already. Results are lines of `mutate-out/results.jsonl`: a run that was
stopped goes on there, and survivors are tried again when a test of their area has changed.
"""

import argparse
import ast
import hashlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.report import show

ROOT = Path(__file__).parents[1]
#: Of each area the files and folders that are broken, and the tests that have to notice. What is
#: not there any more is skipped.
AREAS = {
    "metrics": ("courant/evaluation/metrics.py", "tests/evaluation/test_metrics.py"),
    "data": (
        "courant/data/normalisation.py courant/data/batch.py courant/problems",
        "tests/data tests/evaluation/test_references.py tests/prediction/test_surrogate.py"
        " tests/training/test_loop.py",
    ),
    "splits": (
        "simgen/store/split.py simgen/moments.py",
        "tests/store/test_split_and_statistics.py tests/imports/test_precision.py",
    ),
    "gates": (
        "simgen/solving/gates.py simgen/foam/log.py simgen/meshing.py",
        "tests/simgen/test_gates.py tests/simgen/test_solver_log.py tests/simgen/test_meshing.py",
    ),
    "bands": ("courant/prediction/bands.py", "tests/prediction/test_bands.py"),
    "decoder": (
        "courant/model/decoder.py courant/model/gaussian_window.py",
        "tests/model tests/training/test_options.py",
    ),
    "resume": (
        "courant/runs/checkpoint.py courant/runs/record.py courant/training/train.py",
        "tests/training/test_loop.py tests/training/test_options.py tests/training/test_step.py"
        " tests/training/test_run_directory.py tests/training/test_ray_train.py"
        " tests/runs/test_run_state.py"
        " tests/runs/test_moved.py tests/runs/test_hostile_run.py",
    ),
}
#: Imported before the tree's own code, and shared by all mutants.
LIBRARIES = ("pytest", "hypothesis", "numpy", "scipy", "torch", "zarr", "s3fs", "pydantic")
PYTEST = ("-x", "-q", "-p", "no:cacheprovider", "-m", "not nightly and not openfoam")
LEAST = 0.9
#: How an operator is written, and what replaces it in a mutant.
_OPERATORS: dict[type[ast.AST], tuple[str, ...]] = {
    getattr(ast, kind): tuple(texts.split(", "))
    for kind, texts in (
        *(("Lt", "<, <=, >="), ("LtE", "<=, <, >"), ("Gt", ">, >=, <="), ("GtE", ">=, >, <")),
        *(("Eq", "==, !="), ("NotEq", "!=, =="), ("Is", "is, is not"), ("IsNot", "is not, is")),
        *(("In", "in, not in"), ("NotIn", "not in, in"), ("And", "and, or"), ("Or", "or, and")),
        *(("Add", "+, -"), ("Sub", "-, +"), ("Mult", "*, /"), ("Div", "/, *"), ("Pow", "**, *")),
        *(("FloorDiv", "//, *"), ("Mod", "%, *"), ("BitAnd", "&, |"), ("BitOr", "|, &")),
    )
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "abs": ""}


class BrokenTestsError(Exception):
    """Tests that fail on the tree as it is."""


@dataclass(frozen=True)
class Mutant:
    """A place in a file, and what replaces it."""

    path: str
    line: int
    column: int
    start: int
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutants(path: str, source: bytes) -> list[Mutant]:
    """List the mutants of a file in order; types, messages and logs are left alone."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def place(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            starts[node.lineno - 1] + node.col_offset,
            starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def mutant(node: ast.expr | ast.stmt, start: int, end: int, text: str) -> Mutant:
        return Mutant(path, node.lineno, node.col_offset, start, end, text)

    def between(left: ast.expr, right: ast.expr, old: ast.AST) -> Iterator[Mutant]:
        """Replace the operator between two operands, which may be in parentheses."""
        start, end = place(left)[1], place(right)[0]
        gap = source[start:end].decode()
        symbol, *others = _OPERATORS[type(old)]
        at = start + gap.index(symbol)
        for new in others:
            yield mutant(left, at, at + len(symbol), new)

    def of(node: ast.AST) -> Iterator[Mutant]:
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            for left, old, right in zip(operands, node.ops, operands[1:], strict=False):
                yield from between(left, right, old)
        elif isinstance(node, ast.BoolOp):
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from between(left, right, node.op)
        elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            yield from between(node.left, node.right, node.op)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            start = place(node)[0]
            yield mutant(node, start, start + (3 if isinstance(node.op, ast.Not) else 1), "")
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            value = node.value
            new = not value if isinstance(value, bool) else value + 1
            is_fraction = isinstance(value, float) and value != 0
            yield mutant(node, *place(node), repr(2 * value if is_fraction else new))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if name in _CALLS and (_CALLS[name] or isinstance(node.func, ast.Name)):
                end = place(node.func)[1]
                yield mutant(node, end - len(name), end, _CALLS[name])
        elif isinstance(node, ast.If | ast.IfExp):
            start, end = place(node.test)
            yield mutant(node.test, start, end, f"(not ({source[start:end].decode()}))")
        elif isinstance(node, ast.Raise) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        ):
            yield mutant(node, *place(node), "pass")

    return sorted(
        {each for node in _code(ast.parse(source)) for each in of(node)},
        key=lambda each: (each.start, each.end, each.text),
    )


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Walk what computes: no annotation, decorator, message, log line or import for types.

    Nor what changes no result: `strict=True`, tolerances, and sizes of blocks such as 1 << 24.
    """
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift):
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, float) and 0 < node.value < 1e-5:
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        if isinstance(node, ast.Raise | ast.JoinedStr):
            continue
        for child in value if isinstance(value, list) else [value]:
            text = ast.unparse(child) if isinstance(child, ast.Expr | ast.If) else ""
            silent = text.startswith(("logger.", "warnings.warn", "if TYPE_CHECKING"))
            if isinstance(child, ast.AST) and not silent:
                yield from _code(child)


def draw(area: str, number: int, seed: int) -> list[Mutant]:
    """Draw some mutants of an area's files; a line that is added elsewhere changes none of them."""
    ranked: list[tuple[str, Mutant]] = []
    for path in files(AREAS[area][0]):
        source = (ROOT / path).read_bytes()
        lines = source.splitlines()
        for each in mutants(path, source):
            line, length = lines[each.line - 1].strip(), each.end - each.start
            place = (seed, path, line, each.column, length, each.text)
            ranked.append((hashlib.blake2b(repr(place).encode()).hexdigest(), each))
    return [each for _, each in sorted(ranked, key=lambda pair: pair[0])[:number]]


def is_killed(copy: Path, tests: list[str], limit_s: float) -> bool:
    """Run the tests of the copy in a forked process; whether they fail, or take too long."""
    child = os.fork()
    if not child:
        os.setsid()
        os.chdir(copy)
        sys.path[:] = [str(copy), *(each for each in sys.path if each not in ("", str(ROOT)))]
        os.environ["PYTHONPATH"] = str(copy)
        for name in [each for each in sys.modules if each.partition(".")[0] in ("bench", "tests")]:
            del sys.modules[name]
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        code = 1
        with suppress(BaseException):
            code = int(importlib.import_module("pytest").main([*PYTEST, *tests]))
        os._exit(code)
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            return os.waitstatus_to_exitcode(status) != 0
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def copy_tree(to: Path) -> None:
    """Copy what git knows, and what it would."""
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True).stdout.decode()
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def files(paths: str) -> list[str]:
    """List the files of some paths, and all Python files of folders among them."""
    found = []
    for place in map(ROOT.__truediv__, paths.split()):
        found += sorted(place.rglob("*.py")) if place.is_dir() else [place] * place.exists()
    return [str(file.relative_to(ROOT)) for file in found]


def digest(*paths: str) -> str:
    """Return a digest of files."""
    found = hashlib.blake2b(digest_size=8)
    for path in paths:
        found.update((ROOT / path).read_bytes())
    return found.hexdigest()


def run_area(area: str, number: int, seed: int, results: Path) -> list[tuple[Mutant, bool]]:
    """Try an area's mutants, those first that have no result yet; return all with theirs."""
    paths, tests = files(AREAS[area][0]), [each for each in AREAS[area][1].split() if files(each)]
    sources, of_tests = {path: digest(path) for path in paths}, digest(*files(AREAS[area][1]))
    known: dict[str, bool] = {}
    for line in results.read_text().splitlines() if results.exists() else ():
        record = json.loads(line)
        if record["killed"] or record["tests"] == of_tests:
            known[record["mutant"]] = record["killed"]
    drawn = draw(area, number, seed)
    keys = [f"{sources[each.path]} {each}" for each in drawn]
    if all(key in known for key in keys):
        return [(each, known[key]) for each, key in zip(drawn, keys, strict=True)]
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        copy = Path(folder)
        copy_tree(copy)
        began = time.monotonic()
        if is_killed(copy, tests, 3600):
            raise BrokenTestsError(f"tests fail without a mutant: {' '.join(tests)}")
        limit_s = 60 + 4 * (time.monotonic() - began)
        # Two versions of a file may have one size and one time: bytecode would be the other's.
        sys.dont_write_bytecode = True
        for path in paths:
            for stale in (copy / path).parent.glob(f"__pycache__/{Path(path).stem}.*"):
                stale.unlink()
        for at, (each, key) in enumerate(zip(drawn, keys, strict=True), start=1):
            if key in known:
                continue
            source = (copy / each.path).read_bytes()
            (copy / each.path).write_bytes(each.apply(source))
            known[key] = is_killed(copy, tests, limit_s)
            (copy / each.path).write_bytes(source)
            with results.open("a") as file:
                record = {"mutant": key, "killed": known[key], "tests": of_tests}
                file.write(json.dumps(record) + "\n")
            if not known[key]:
                print(f"{area} {at} of {number}: survives: {shown(each)}", flush=True)
        sys.dont_write_bytecode = False
    return [(each, known[key]) for each, key in zip(drawn, keys, strict=True)]


def shown(each: Mutant) -> str:
    """Show a mutant as its place, its line, and what became of it."""
    source = (ROOT / each.path).read_bytes()
    old = source[each.start : each.end].decode() or "nothing"
    line = source.decode().splitlines()[each.line - 1].strip()
    return f"{each.path}:{each.line}: {old} -> {each.text or 'nothing'} in: {line}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.mutate", description=__doc__)
    parser.add_argument("--area", choices=AREAS, action="append", help="default: every one")
    parser.add_argument("--mutants", type=int, default=203, help="of all areas together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("mutate-out"))
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in LIBRARIES:
        importlib.import_module(name)
    number = -(-asked.mutants // len(AREAS))
    rows: list[tuple[str, int, int]] = []
    survivors: list[Mutant] = []
    untried = []
    for area in asked.area or AREAS:
        try:
            tried = run_area(area, number, asked.seed, asked.out.absolute() / "results.jsonl")
        except BrokenTestsError as error:
            untried.append(f"{area}: {error}")
            continue
        rows.append((area, len(tried), sum(killed for _, killed in tried)))
        survivors += [each for each, killed in tried if not killed]
    rows.append(("all", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    show(
        [
            {"area": area, "mutants": num, "killed": killed, "share": killed / max(1, num)}
            for area, num, killed in rows
        ]
    )
    for each in survivors:
        print(f"survives: {shown(each)}")
    for line in untried:
        print(line, file=sys.stderr)
    return int(bool(untried) or rows[-1][2] < LEAST * rows[-1][1])


if __name__ == "__main__":
    sys.exit(main())
