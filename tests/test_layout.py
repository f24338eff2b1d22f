"""The house rules, as tests: budgets, floors, light imports, links that lead somewhere."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flashprof.store.run_folder import FALLBACK, create_run_folder

ROOT = Path(__file__).parents[1]
FOLDERS = ("flashprof", "pipeline", "benchmarks", "scripts", "tests")
GENERATED = {"reports", "node_modules", "build", "dist"}
FLOOR_ZERO = ("flashprof.contracts", "flashprof.emit", "flashprof.emit_torch")

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 8
MAX_CLASS_DEPTH = 2
HEAVY = ("datasets", "numpy", "pandas", "psutil", "pyarrow", "rich", "scipy", "torch", "transformers")
MUTATORS = {"add", "append", "clear", "extend", "insert", "pop", "popitem", "remove", "setdefault", "sort", "update"}
MUTABLE_CALLS = {"list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_files(*folders: str) -> list[Path]:
    files = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    assert files, f"no Python files in {folders}"
    return files


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def place(path: Path, node: ast.AST | None = None) -> str:
    line = f":{node.lineno}" if isinstance(node, ast.stmt | ast.expr) else ""
    return f"{path.relative_to(ROOT)}{line}"


def functions(*folders: str) -> Iterator[tuple[Path, Function]]:
    for path in python_files(*folders):
        for node in ast.walk(parse(path)):
            if isinstance(node, Function):
                yield path, node


def last_name(node: ast.expr) -> str:
    """`option` of `@click.option(…)`, `Group` of `click.Group`, `Generic` of `Generic[T]`."""
    match node:
        case ast.Call(func=inner) | ast.Subscript(value=inner):
            return last_name(inner)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def test_files_keep_to_their_budget() -> None:
    lengths = {place(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files(*FOLDERS)}

    assert {} == {path: length for path, length in lengths.items() if length > MAX_FILE_LINES}


def test_functions_keep_to_their_budget() -> None:
    lengths = {
        f"{place(path, node)} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path, node in functions(*FOLDERS)
        # Canned data: one literal, however long.
        if "support" not in path.parts
    }

    assert {} == {name: length for name, length in lengths.items() if length > MAX_FUNCTION_LINES}


def test_functions_take_few_parameters_unless_they_are_a_command_line() -> None:
    counts = {}
    for path, node in functions("flashprof", "pipeline", "benchmarks", "scripts"):
        arguments = node.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        num_parameters = sum(argument.arg not in ("self", "cls") for argument in named)
        is_command = any(last_name(decorator) in ("command", "group") for decorator in node.decorator_list)
        if num_parameters > MAX_PARAMETERS and not is_command:
            counts[f"{place(path, node)} {node.name}"] = num_parameters

    assert {} == counts


def test_no_function_writes_a_global() -> None:
    places = [
        place(path, node)
        for path in python_files(*FOLDERS)
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Global)
    ]

    assert [] == places


def containers(tree: ast.Module) -> set[str]:
    """Names that a module binds, at its top, to something that can be changed."""
    literals = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
    names = set()
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            is_made = isinstance(node.value, ast.Call) and last_name(node.value) in MUTABLE_CALLS
            if is_made or isinstance(node.value, literals):
                names.add(last_name(target))
    return names - {"__all__"}


def changes(node: ast.AST, names: set[str]) -> bool:
    """Whether *node* changes one of the containers."""
    match node:
        case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
            return name in names
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)):
            return name in names and method in MUTATORS
    return False


def test_modules_of_flashprof_hold_no_state() -> None:
    """A table in capitals is a constant, as long as nobody changes it."""
    places = []
    for path in python_files("flashprof"):
        tree = parse(path)
        names = containers(tree)
        places += [f"{place(path)} {name}" for name in names if name != name.upper()]
        places += [place(path, node) for node in ast.walk(tree) if changes(node, names)]

    assert [] == places


def does_work(node: ast.stmt) -> bool:
    """Whether a statement at the top of a module does more than define."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.ClassDef() | ast.FunctionDef() | ast.Assign() | ast.AnnAssign():
            return False
        case ast.Expr(value=ast.Constant(value=str())):
            return False
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return False
    return True


def test_importing_a_module_does_no_work() -> None:
    places = [
        place(path, node)
        for path in python_files("flashprof", "pipeline", "benchmarks")
        if path.name != "__main__.py"
        for node in parse(path).body
        if does_work(node)
    ]

    assert [] == places


def test_classes_inherit_from_at_most_one_of_ours() -> None:
    classes = {
        node.name: [last_name(base) for base in node.bases]
        for path in python_files("flashprof", "pipeline")
        if path != ROOT / "flashprof" / "contracts" / "errors.py"
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ClassDef)
    }

    def depth(name: str) -> int:
        return 1 + max((depth(base) for base in classes[name] if base in classes and base != name), default=0)

    assert [] == [name for name in classes if depth(name) > MAX_CLASS_DEPTH]


def markdown_links() -> Iterator[tuple[Path, str]]:
    for path in sorted(ROOT.rglob("*.md")):
        parts = path.relative_to(ROOT).parts
        if any(part.startswith(".") or part in GENERATED for part in parts):
            continue
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(<?([^)\s>]+)", prose):
            if not re.match(r"[a-z]+:|#", target):
                yield path, target


def test_relative_links_in_the_documents_lead_somewhere() -> None:
    broken = [
        f"{place(path)} → {target}"
        for path, target in markdown_links()
        if not (path.parent / target.partition("#")[0]).exists()
    ]

    assert [] == broken


@pytest.mark.slow
def test_imports_flow_one_way_between_the_floors() -> None:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 0, done.stdout + done.stderr


def run_python(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_command_line_starts_without_heavy_modules() -> None:
    code = f"import sys, flashprof.cli.main; print([m for m in {HEAVY} if m in sys.modules])"

    assert run_python("-c", code) == "[]"


def test_contracts_and_emitter_need_the_standard_library_only() -> None:
    modules = [f"flashprof.contracts.{path.stem}" for path in (ROOT / "flashprof" / "contracts").glob("*.py")]
    imports = "\n".join(f"import {module}" for module in (*FLOOR_ZERO, *modules) if not module.endswith("__init__"))
    # -I and -S: no site-packages, so that an import of anything installed fails.
    seen = run_python("-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{imports}\nprint('imported')")

    assert seen == "imported"


def test_the_emitter_that_a_run_pins_is_complete(tmp_path: Path) -> None:
    pinned = create_run_folder(tmp_path, "run").emitter
    wanted = {
        module
        for path in pinned.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for module in [node.module or ""]
        if module.startswith("flashprof.")
    }

    def is_there(module: str) -> bool:
        path = pinned / f"{module.replace('.', '/')}.py"
        # Contracts that are not the emitter's own: the subject's commit has them, or else these.
        return path.exists() or (path.parent / FALLBACK / path.name).exists()

    assert [] == sorted(module for module in wanted if not is_there(module))
