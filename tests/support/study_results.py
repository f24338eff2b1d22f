"""Results of comparisons as `flashprof compare` would give them."""

from __future__ import annotations

import math

from flashprof.contracts.comparison import (
    Block,
    Comparison,
    DecisionRule,
    Method,
    PhaseChange,
    Standing,
    StudyResult,
    Verdict,
)
from flashprof.contracts.results import Interval

CELL = {"preset": "tiny", "topology": "1+1", "seed": "0", "machine": "box, 2 cores"}
PATHS = (
    ("study", "reports/none-compile-4f1c2ab09d3e"),
    ("report", "reports/none-compile-4f1c2ab09d3e/report.md"),
)


def interval(estimate: float, low: float, high: float, level: float = 0.95, num_samples: int = 6) -> Interval:
    return Interval(
        estimate=estimate, low=low, high=high, level=level, num_samples=num_samples, method="t-mixture sequence"
    )


def hot_blocks(*changes: float, left_out: tuple[int, ...] = ()) -> tuple[Block, ...]:
    """Blocks with these relative changes; numbers in *left_out* are disturbed."""
    return tuple(
        Block(
            number=number,
            method=Method.HOT,
            order="ABBA" if number % 3 else "BAAB",
            launches=("hot-1",),
            site="box",
            difference=math.log1p(change),
            base_log_tok_per_s=math.log(12_230.0),
            num_windows=4,
            length_s=11.3,
            disturbances=("other processes used 1.1 cores (typically 0.1)",) if number in left_out else (),
        )
        for number, change in enumerate(changes, start=1)
    )


def cold_blocks(*changes: float) -> tuple[Block, ...]:
    return tuple(
        Block(
            number=number,
            method=Method.COLD,
            order="AB" if number % 2 else "BA",
            launches=(f"cold-{number}-base", f"cold-{number}-candidate"),
            site="box gpu 0,1",
            difference=math.log1p(change),
            base_log_tok_per_s=math.log(12_200.0),
            num_windows=10,
            length_s=131.0,
        )
        for number, change in enumerate(changes, start=1)
    )


def comparison(method: Method, effect: Interval, deciding: Interval, verdict: Verdict, **fields: object) -> Comparison:
    values: dict[str, object] = {
        "base_tok_per_s": 12_230.0,
        "reason": "slower by at least 16.2 %, 99 % sure",
        "num_launches": 1,
        "num_blocks": 6,
        "num_windows": 24,
        "num_left_out": 0,
        "spent_s": 74.0,
        "to_resolve_s": None,
        "rule": DecisionRule(),
        **fields,
    }
    return Comparison(method=method, effect=effect, deciding=deciding, verdict=verdict, **values)  # type: ignore[arg-type]


def phases() -> tuple[PhaseChange, ...]:
    rows = (
        ("drafter", "forward", "work", 21_300.0, (40.0, -210.0, 290.0), False),
        ("drafter", "mask", "work", 2_410.0, (16_650.0, 16_100.0, 17_200.0), True),
        ("drafter", "wait_hidden", "wait", 310.0, (-240.0, -300.0, -180.0), True),
        ("target", "wait_queue", "wait", 52_700.0, (16_900.0, 15_800.0, 18_000.0), True),
        ("target", "forward", "work", 28_400.0, (12.0, -150.0, 174.0), False),
    )
    return tuple(
        PhaseChange(
            role=role,
            phase=phase,
            kind=kind,
            base_ns_per_token=base_ns,
            difference=interval(*difference),
            is_changed=is_changed,
        )
        for role, phase, kind, base_ns, difference, is_changed in rows
    )


def study(verdict: Verdict, standing: Standing, comparisons: tuple[Comparison, ...], **fields: object) -> StudyResult:
    values: dict[str, object] = {
        "study": "none-compile-4f1c2ab09d3e",
        "base": "compile,swa",
        "candidate": "none",
        "cell": CELL,
        "spent_s": 598.0,
        "num_reused": 0,
        "paths": PATHS,
        **fields,
    }
    return StudyResult(verdict=verdict, standing=standing, comparisons=comparisons, **values)  # type: ignore[arg-type]


def regression() -> StudyResult:
    """Screened hot, confirmed cold; one hot block disturbed, one launch retried."""
    hot = comparison(
        Method.HOT,
        interval(-0.171, -0.176, -0.166),
        interval(-0.171, -0.180, -0.162, 0.99),
        Verdict.REGRESSION,
        num_left_out=1,
        phases=phases(),
        notes=("first use of an arm compiled for 9.1 s; it lies before block 1",),
    )
    cold = comparison(
        Method.COLD,
        interval(-0.1733, -0.181, -0.164, num_samples=4),
        interval(-0.1733, -0.190, -0.155, 0.99, 4),
        Verdict.REGRESSION,
        base_tok_per_s=12_230.0,
        num_launches=8,
        num_blocks=4,
        num_windows=40,
        spent_s=524.0,
        reason="slower by at least 15.5 %, 99 % sure",
    )
    screening = hot_blocks(-0.172, -0.169, -0.174, -0.168, -0.143, -0.171, -0.170, left_out=(5,))
    return study(
        Verdict.REGRESSION,
        Standing.CONFIRMED,
        (hot, cold),
        blocks=screening + cold_blocks(-0.181, -0.168, -0.174, -0.170),
        num_reused=2,
        failures=("cold-2-candidate: killed by a signal (9); launched again",),
        notes=("the drafter waits for memory in both arms",),
    )


def no_regression() -> StudyResult:
    """Faster, screened only."""
    hot = comparison(
        Method.HOT,
        interval(0.212, 0.205, 0.219),
        interval(0.212, 0.198, 0.226, 0.99),
        Verdict.NO_REGRESSION,
        base_tok_per_s=10_110.0,
        reason="faster by at least 19.8 %, 99 % sure",
    )
    return study(
        Verdict.NO_REGRESSION,
        Standing.SCREENED,
        (hot,),
        base="none",
        candidate="compile,swa",
        spent_s=74.0,
        blocks=hot_blocks(0.210, 0.214, 0.209, 0.216, 0.211, 0.212),
    )


def inconclusive() -> StudyResult:
    """Budget spent, with 30 blocks around zero."""
    hot = comparison(
        Method.HOT,
        interval(-0.0071, -0.0122, -0.0019),
        interval(-0.0071, -0.0163, 0.0022, 0.99),
        Verdict.INCONCLUSIVE,
        num_blocks=30,
        num_windows=120,
        spent_s=598.0,
        to_resolve_s=231.0,
        reason="between 1.63 % slower and 0.22 % faster, 99 % sure; about 12 more blocks would tell",
    )
    changes = [-0.007 + 0.012 * math.sin(1.7 * index) for index in range(30)]
    return study(Verdict.INCONCLUSIVE, Standing.SCREENED, (hot,), blocks=hot_blocks(*changes))


def failed_arm() -> StudyResult:
    """The candidate never trained a step that could be compared."""
    return study(
        Verdict.INCONCLUSIVE,
        Standing.SCREENED,
        (),
        spent_s=61.0,
        failures=(
            "hot-1: out of memory: CUDA out of memory in drafter 0; launched again",
            "hot-2: out of memory: CUDA out of memory in drafter 0; the candidate is given up",
        ),
    )


def existing() -> StudyResult:
    """One run a side, never calibrated: nothing says how much two launches differ by themselves."""
    unbounded = interval(-0.021, -1.0, math.inf, 0.99, 2)
    item = comparison(
        Method.EXISTING,
        interval(-0.021, -1.0, math.inf, num_samples=2),
        unbounded,
        Verdict.INCONCLUSIVE,
        num_launches=2,
        num_blocks=0,
        num_windows=0,
        spent_s=0.0,
        reason="1 and 1 launches do not show how much launches differ: 3 a side do, or `flashprof calibrate`",
    )
    return study(
        Verdict.INCONCLUSIVE,
        Standing.SCREENED,
        (item,),
        study="",
        base="monday",
        candidate="tuesday",
        spent_s=0.0,
        notes=("machine.host differs, as --allow machine.host says",),
        paths=(),
    )
