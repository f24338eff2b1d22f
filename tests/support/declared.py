"""A declared trainer for tests: one toggle of each kind, and a config file."""

from __future__ import annotations

from pathlib import Path

from flashprof.contracts.foreign import ForeignSubject
from flashprof.store.subject_file import read_subject

CONFIG = "model:\n  attn: eager\n  layers: [{kind: a}, {kind: b}]\nworkers: 0\n"
DECLARATION = """
[subject]
command = ["python", "train.py", "--config", "{file}", "{args}", "--last"]
tok_per_s = 'tok/s=([\\d,.]+)'
env = { MODE = "quiet", LEVEL = 3 }

[toggles.flash]
help = "Fused attention."
on = { args = ["--attn", "flash"] }
off = { args = ["--attn", "eager"] }

[toggles.workers]
arg = "--num-workers={value}"
default = 0
on = 4
minimum = 0
maximum = 16

[toggles.buckets]
values = { "25" = {}, "100" = { env = { BUCKET_MB = 100 } } }
default = 25
on = 100

[toggles.cudnn]
requires = ["flash"]
on = { env = { CUDNN = "1" } }

[toggles.kind]
on = { edit = [
  { file = "conf.yaml", key = "model.attn", value = "flash" },
  { file = "conf.yaml", key = "model.layers.1.kind", value = 7 },
] }
"""


def declare(folder: Path, text: str = DECLARATION) -> ForeignSubject:
    """The subject that *text* declares in *folder*, beside its config file and its script."""
    write_declaration(folder, text)
    return read_subject(folder / "flashprof.toml")


def write_declaration(folder: Path, text: str = DECLARATION) -> Path:
    """Only the files."""
    (folder / "conf.yaml").write_text(CONFIG)
    (folder / "train.py").write_text("print('tok/s=1')\n")
    path = folder / "flashprof.toml"
    path.write_text(text)
    return path
