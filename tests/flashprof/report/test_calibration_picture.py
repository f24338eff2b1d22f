"""The calibration's picture is XML, holds every curve and bar, and stays within its frame."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree as ET

import calibrations
import pytest

from flashprof.contracts.calibration import Calibration, Spread
from flashprof.report.calibration_picture import HEIGHT, WIDTH, render_picture

SVG = "{http://www.w3.org/2000/svg}"


def parse(calibration: Calibration) -> ET.Element:
    return ET.fromstring(render_picture(calibration))


def texts(picture: ET.Element) -> str:
    return " ".join(element.text or "" for element in picture.iter(f"{SVG}text"))


def test_both_curves_and_all_sources_are_drawn() -> None:
    picture = parse(calibrations.quiet())

    assert 2 == len(list(picture.iter(f"{SVG}polyline")))
    # Of cold launches 2 % was found in 6 of 20 trials only: no point.
    assert 6 == len(list(picture.iter(f"{SVG}circle")))
    assert 6 + 1 == len(list(picture.iter(f"{SVG}rect")))
    for name in ("hot", "cold (dashed)", "step to step", "pair, per 20 s", "runs of 25 s", "0.71 %"):
        assert name in texts(picture)


@pytest.mark.parametrize("make", [calibrations.quiet, calibrations.scant])
def test_nothing_is_drawn_outside_the_frame(make: Callable[[], Calibration]) -> None:
    wild = make()
    wide = Spread(sd=0.02, low=0.001, high=math.inf, freedom=1)
    picture = render_picture(replace(wild, noise=replace(wild.noise, launch=wide)))
    xs = [float(x) for x in re.findall(r'\b(?:x|x1|x2|cx)="(-?[\d.]+)"', picture)]
    ys = [float(y) for y in re.findall(r'\b(?:y|y1|y2|cy)="(-?[\d.]+)"', picture)]

    assert 0 <= min(xs) <= max(xs) <= WIDTH
    assert 0 <= min(ys) <= max(ys) <= HEIGHT


def test_without_power_it_says_so() -> None:
    assert "no planted slow-down was found" in texts(parse(calibrations.scant()))


def test_noise_of_zero_is_drawn() -> None:
    full = calibrations.quiet()
    zero = Spread(sd=0.0, low=0.0, high=0.0, freedom=3)
    still = replace(full.noise, step=zero, window=zero, block=zero, pair=zero, launch=None)

    assert "0 %" in texts(parse(replace(full, noise=still, launch_sd=None)))
