"""
Stack samples as one interactive HTML file that needs nothing else: it opens from file:// and prints.

An icicle: the outermost frame on top, each lane as wide as its samples, heavier frames to the left. The tree is built
and pruned here; drawing, zoom and search are in flamegraph.js.
"""

from __future__ import annotations

import html
import json
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import resources
from typing import Any

PRUNE_SHARE = 0.001
"""Boxes below this share of all samples are a pixel wide at best: left out, and counted."""

TORCH_PACKAGES = frozenset({"torch", "torchgen", "functorch", "triton", "torchvision"})
# fmt: off
LIBRARIES = frozenset({
    "accelerate", "click", "datasets", "deepspeed", "fsspec", "huggingface_hub", "lightning", "matplotlib", "megatron",
    "numpy", "pandas", "peft", "psutil", "pyarrow", "safetensors", "scipy", "sympy", "tokenizers", "tqdm",
    "transformer_engine", "transformers", "urllib3", "vllm", "yaml",
})
# fmt: on
_PLACE = re.compile(r"\((?P<path>[^()]*?)(?::\d+)?\)$")


class Origin(StrEnum):
    """Whose code a frame is; one colour each."""

    OWN = "own"
    TORCH = "torch"
    LIBRARY = "library"
    STDLIB = "stdlib"
    NATIVE = "native"


ORIGIN_TITLES = {
    Origin.OWN: "own code",
    Origin.TORCH: "torch",
    Origin.LIBRARY: "other libraries",
    Origin.STDLIB: "standard library",
    Origin.NATIVE: "native or unknown",
}


@dataclass(slots=True)
class _Node:
    label: str
    num_samples: int = 0
    num_self_samples: int = 0
    children: dict[str, _Node] = field(default_factory=dict)


def render_flamegraph(stacks: Mapping[str, Mapping[tuple[str, ...], int]], *, title: str, subtitle: str) -> str:
    """
    Draw the samples of all lanes.

    Args:
        stacks: Lane name ("drafter 0"), then frame labels `name (file:line)`, outermost first, then samples.
        title: Heading and window title.
        subtitle: One line below it: the cell, the sampling rate.

    Returns:
        A complete HTML document.
    """
    root = _build(stacks)
    return _PAGE.format(
        title=html.escape(title),
        subtitle=html.escape(subtitle),
        legend=_legend(root),
        style=_resource("flamegraph.css"),
        script=_resource("flamegraph.js"),
        data=_embed(_data(root)),
    )


def origin_of(label: str) -> Origin:
    """Whose code *label* is, by the file in its parentheses; samplers write paths from the package on."""
    match = _PLACE.search(label)
    path = match["path"].replace("\\", "/") if match else ""
    if not path.endswith((".py", ".pyx")) and not path.startswith("<"):
        return Origin.NATIVE
    installed = re.search(r"(?:site|dist)-packages/(.*)", path)
    stdlib = re.search(r"/lib/python\d\.\d+/(.*)", path)
    within = installed or stdlib
    top = (within[1] if within else path).lstrip("./").split("/")[0].removesuffix(".py")
    if top in TORCH_PACKAGES:
        return Origin.TORCH
    if top in LIBRARIES or installed:
        return Origin.LIBRARY
    return Origin.STDLIB if stdlib or top in sys.stdlib_module_names or path.startswith("<frozen") else Origin.OWN


def _build(stacks: Mapping[str, Mapping[tuple[str, ...], int]]) -> _Node:
    root = _Node("all")
    for lane, samples in stacks.items():
        for stack, num_samples in samples.items():
            root.num_samples += num_samples
            node = root
            for label in (lane, *stack):
                node = node.children.setdefault(label, _Node(label))
                node.num_samples += num_samples
            node.num_self_samples += num_samples
    return root


def _data(root: _Node) -> dict[str, Any]:
    """
    The tree as the script reads it.

    Nodes are parallel lists in depth-first order, a parent before its children, because nested objects of a
    100-frame stack meet the recursion limits of JSON readers. Labels are stored once.
    """
    labels: dict[str, int] = {}
    nodes: list[tuple[int, int, int, int]] = []
    num_pruned = 0
    least = root.num_samples * PRUNE_SHARE
    todo = [(root, -1)]
    while todo:
        node, parent = todo.pop()
        index = len(nodes)
        nodes.append((labels.setdefault(node.label, len(labels)), parent, node.num_samples, node.num_self_samples))
        kept = [child for child in node.children.values() if child.num_samples >= least]
        num_pruned += sum(_count(child) for child in node.children.values() if child.num_samples < least)
        if parent >= 0:
            kept.sort(key=lambda child: -child.num_samples)
        todo += [(child, index) for child in reversed(kept)]
    label_of, parents, samples, self_samples = (list(column) for column in zip(*nodes, strict=True))
    return {
        "labels": list(labels),
        "origins": [str(origin_of(label)) for label in labels],
        "shades": [_shade(label) for label in labels],
        "nodes": {"label": label_of, "parent": parents, "samples": samples, "self": self_samples},
        "num_pruned": num_pruned,
        "prune_share": PRUNE_SHARE,
    }


def _count(node: _Node) -> int:
    num_nodes, todo = 0, [node]
    while todo:
        num_nodes += 1
        todo += todo.pop().children.values()
    return num_nodes


def _shade(label: str) -> int:
    """0 to 7, the same for all frames of a file, in every graph."""
    match = _PLACE.search(label)
    return zlib.crc32((match["path"] if match else label).encode()) % 8


def _legend(root: _Node) -> str:
    """Each origin with the share of samples in which the innermost frame is its."""
    own: Counter[Origin] = Counter()
    for node in _walk(root.children.values()):
        if node.num_self_samples:
            own[origin_of(node.label)] += node.num_self_samples
    items = [
        f'<li class="{origin}"><i></i>{ORIGIN_TITLES[origin]} <b>{100 * own[origin] / root.num_samples:.0f} %</b></li>'
        for origin in Origin
        if own[origin]
    ]
    return "".join(["<li>innermost frames:</li>", *items]) if items else ""


def _walk(nodes: Iterable[_Node]) -> Iterable[_Node]:
    todo = list(nodes)
    while todo:
        node = todo.pop()
        todo += node.children.values()
        yield node


def _embed(data: dict[str, Any]) -> str:
    """JSON that cannot end its script element, whatever a frame is called."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")


def _resource(name: str) -> str:
    return resources.files("flashprof.report").joinpath(name).read_text(encoding="utf-8")


_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<header>
<div class="heading"><h1>{title}</h1><p>{subtitle}</p></div>
<div class="tools">
<input id="search" type="search" placeholder="Search frames  ( / )" aria-label="Search frames" spellcheck="false">
<output id="matched"></output>
<button id="reset" type="button" disabled>Reset zoom <kbd>Esc</kbd></button>
</div>
<ul class="legend" title="share of samples whose innermost frame is of this origin">{legend}</ul>
</header>
<noscript>This page draws itself with JavaScript, all of it inside this file.</noscript>
<main id="graph" tabindex="0" aria-label="icicle graph; arrow keys move, Enter zooms"></main>
<footer><span id="pruned"></span>
<span>Width is samples. Click or Enter: zoom; arrows: move; / search; Esc: back.</span></footer>
<div id="tip" role="status" hidden></div>
<script id="data" type="application/json">{data}</script>
<script>
{script}</script>
</body>
</html>
"""
