"""A declaration is read as written; a mistake in it is named with file, table, what is allowed and what to do next."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from declared import DECLARATION, declare, write_declaration
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flashprof.contracts.errors import FlashProfError, FormatError, UsageError
from flashprof.contracts.foreign import Edit, Setting
from flashprof.store.subject_file import find_subject_file, read_subject

ROOT = Path(__file__).parents[3]
HEAD = '[subject]\ncommand = ["python", "train.py"]\n'
SWITCH = '[toggles.flash]\non = { args = ["--flash"] }\n'
EDITS = 'on = {edit = {file = "conf.yaml", key = "workers", value = 1}}\n'
EDIT = f'[subject]\ncommand = ["t", "{{file}}"]\n[toggles.a]\n{EDITS}'
MISTAKES: list[tuple[str, str, str]] = [
    ("", "subject is missing", "a table [subject]"),
    ("subject = 1", "subject is not a table", "[subject]"),
    ("[subject]", "command is missing", "a list of texts"),
    ('[subject]\ncommand = "python train.py"', "command is not a list of texts", '["python", "train.py"]'),
    ("[subject]\ncommand = []", "command is not a list of texts", "a list of texts"),
    (HEAD + "[togles.flash]", "did you mean 'toggles'", "subject, toggles"),
    (HEAD + 'comand = "x"', "did you mean 'command'", "command, cwd, env, tok_per_s, needs, files, packages"),
    (HEAD + 'cwd = "nowhere"', "cwd is no folder", "a folder, seen from"),
    (HEAD + 'tok_per_s = "hf-trainr"', "did you mean 'hf-trainer'", "or a regular expression"),
    (HEAD + 'tok_per_s = "("', "tok_per_s is no regular expression", "one group"),
    (HEAD + "tok_per_s = 'tok/s'", "tok_per_s has no group", "tok/s=("),
    (HEAD + 'needs = ["cudaa"]', "did you mean 'cuda'", "cuda, compiler"),
    (HEAD + "env = {A = true}", "env.A is no variable", "a text or a whole number"),
    (HEAD + 'env = {PYTHONPATH = "x"}', "env.PYTHONPATH is set by FlashProf", "other variables"),
    (HEAD + "tok_per_s = 'a{99999999999}(x)'", "tok_per_s is no regular expression: the repetition", "one group"),
    (HEAD + f"tok_per_s = '{'(' * 3000}x{')' * 3000}'", "is no regular expression: nested too deep", "one group"),
    ('[subject]\ncommand = ["a\\u0000b"]', "command holds a NUL character", "without"),
    (HEAD + 'cwd = "a\\u0000b"', "cwd holds a NUL character", "without"),
    (HEAD + 'files = ["a\\u0000b"]', "files holds a NUL character", "without"),
    (HEAD + 'env = {A = "a\\u0000b"}', "env.A holds a NUL character", "without"),
    (HEAD + 'env = {"A\\u0000" = "b"}', "holds a NUL character", "without"),
    (HEAD + '[toggles.flash]\non = {args = ["a\\u0000b"]}', "args holds a NUL character", "without"),
    (EDIT.replace('"conf.yaml"', '"conf\\u0000.yaml"'), "file holds a NUL character", "without"),
    (HEAD + "[toggles]\nflash = 1", "flash is not a table", "[toggles.flash]"),
    (HEAD + "[toggles.flash]\nhelp = 'x'", "sets nothing", "--flash"),
    (HEAD + "[toggles.all]\non = {args = ['x']}", "cannot be a toggle's name", "not all, none, good, bad"),
    (HEAD + '[toggles."a b"]\non = {args = ["x"]}', "cannot be a toggle's name", "letters, digits"),
    (HEAD + "[toggles.flash]\non = {}\noff = {}", "on is the same as off", "settings that differ"),
    (HEAD + "[toggles.flash]\non = {arg = 'x'}", "did you mean 'args'", "args, env, edit"),
    (HEAD + SWITCH + "defualt = true", "did you mean 'default'", "help, default, needs, requires"),
    (HEAD + SWITCH + "default = 1", "default is not true or false", "true or false"),
    (HEAD + SWITCH + "requires = ['flesh']", "unknown toggle 'flesh'", "none"),
    (HEAD + SWITCH + "requires = ['flash']", "unknown toggle 'flash'", "none"),
    (HEAD + "[toggles.w]\narg = '-w'\ndefault = 0\non = 4", "arg has no {value}", "--num-workers={value}"),
    (HEAD + "[toggles.w]\narg = '-w{value}'\non = 4", "default is missing", "a whole number"),
    (HEAD + "[toggles.w]\narg = '-w{value}'\ndefault = 4\non = 4", "on is the default", "another value"),
    (HEAD + "[toggles.w]\narg = '-w{value}'\ndefault = 0\non = 4\nmaximum = 3", "on is out of its range", "None..3"),
    (HEAD + "[toggles.w]\nvalues = {a = {}, b = {}}\ndefault = 0\non = 1", "no whole number", "a toggle for each"),
    (HEAD + "[toggles.w]\nvalues = {1 = {}}\ndefault = 1\non = 1", "fewer than two values", "at least two"),
    (HEAD + "[toggles.w]\nvalues = {1 = {}, 2 = {}}\ndefault = 1\non = 3", "not among its values", "1, 2"),
    (EDIT.replace('"conf.yaml"', '"con.yaml"'), "edit.file does not exist", "a file, seen from"),
    (EDIT.replace('"conf.yaml"', '"train.py"'), "of a kind that cannot be edited", ".yaml, .yml, .toml, .json"),
    (EDIT.replace('"workers"', '"wrokers"'), "did you mean 'workers'", "model, workers"),
    (EDIT.replace("value = 1", "value = [1]"), "value is no single value", "a number"),
    (EDIT.replace('"{file}"', '"x"'), "does not say where the edited copy", "{file:conf.yaml} or {file}"),
    (EDIT.replace('"{file}"', '"{file}", "{file:x}"'), "names a copy that is not made", "{file:conf.yaml}, {file}"),
    (HEAD.replace('"train.py"', '"{file}"'), "names a copy that is not made", "none: no toggle edits a file"),
    (f"{EDIT}[toggles.b]\n{EDITS}", "sets what toggle 'a' sets", "one toggle"),
    (
        HEAD + SWITCH + "[toggles.b]\non = {env = {X = 1}}\ndefault = true\nrequires = ['flash']",
        "'b' requires",
        "go together",
    ),
    (
        HEAD + "[toggles.w]\nargs = ['{args}', '{value}']\ndefault = 0\non = 1",
        "args holds {args}",
        "in the command only",
    ),
]


def test_a_whole_declaration_is_read(tmp_path: Path) -> None:
    subject = declare(tmp_path)

    assert ("python", "train.py", "--config", "{file}", "{args}", "--last") == subject.command
    assert (("MODE", "quiet"), ("LEVEL", "3")) == subject.env
    assert (tmp_path, r"tok/s=([\d,.]+)") == (subject.cwd, subject.tok_per_s)
    assert ("flash",) == subject.toggles[3].toggle.requires
    kind = Setting(
        edits=(
            Edit(file="conf.yaml", key="model.attn", value="flash"),
            Edit(file="conf.yaml", key="model.layers.1.kind", value=7),
        )
    )
    assert ((False, Setting()), (True, kind)) == subject.toggles[4].settings


@pytest.mark.parametrize(("text", "what", "allowed"), MISTAKES)
def test_a_mistake_is_named_with_its_place_and_the_way_out(tmp_path: Path, text: str, what: str, allowed: str) -> None:
    path = write_declaration(tmp_path, text)
    with pytest.raises(UsageError) as raised:
        read_subject(path)

    assert what in raised.value.what
    assert allowed in str(raised.value.allowed)
    assert str(path) in str(raised.value.where)
    assert raised.value.offered
    assert raised.value.next_command


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="not a TOML file"):
        declare(tmp_path, "[subject")


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, f"[subject.command{'.a' * 5000}]"])
def test_a_file_that_is_nested_without_end_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(FormatError, match="not a TOML file: nested too deep"):
        declare(tmp_path, text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_subject(tmp_path / "nowhere.toml")


def test_a_folder_without_a_declaration_has_no_subject(tmp_path: Path) -> None:
    assert find_subject_file(tmp_path) is None


def test_a_declaration_in_the_folder_is_found(tmp_path: Path) -> None:
    assert write_declaration(tmp_path) == find_subject_file(tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(line=st.integers(0, DECLARATION.count("\n")), cut=st.integers(0, 40), insert=st.sampled_from("{}[]=\"'x1\n"))
def test_a_damaged_declaration_is_read_or_refused_never_a_traceback(
    tmp_path: Path, line: int, cut: int, insert: str
) -> None:
    lines = DECLARATION.split("\n")
    lines[line] = lines[line][:cut] + insert + lines[line][cut:]
    with suppress(FlashProfError):
        assert declare(tmp_path, "\n".join(lines)).command


def test_the_documented_declaration_is_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "foreign.md").read_text()
    (tmp_path / "conf.yaml").write_text("model: {norm: plain}\n")
    path = tmp_path / "flashprof.toml"
    path.write_text(page.partition("```toml\n")[2].partition("```")[0])

    assert ["flash", "workers", "buckets", "fused-norm"] == [item.name for item in read_subject(path).registry()]


def test_the_example_is_read() -> None:
    subject = read_subject(ROOT / "examples" / "hf_trainer" / "flashprof.toml")

    assert ["sdpa", "checkpointing", "slow-words", "threads"] == [item.name for item in subject.registry()]
