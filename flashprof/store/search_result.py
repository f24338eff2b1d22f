"""
A search's result for programs: what `flashprof bisect --json` prints, and `result.json` in the search's folder.

    format, version
    search, kind, good, bad, cell, verdict, standing, reason
    drop                      an interval, or null
    culprits, gains           causes; a cause is the list of its members: ["swa"], ["compile", "swa"], ["<commit id>"]
    beliefs                   [{causes, probability, effects}], the likeliest first
    proofs                    [{number, cause, is_back, base, candidate, comparison, is_shown, is_refuted}]
    cells                     [{cell, label, num_launches, num_readings, tok_per_s, outcome}]
    num_readings, num_left_out, num_launches, num_builds, spent_s, num_reused, to_resolve_s, is_interrupted
    failures, notes           sentences
    labels                    member of a cause → what it is, for a person; or null
    paths                     what → where

Fields are those of `flashprof.contracts.search`, where they are explained. An interval is {estimate, low, high, level,
num_samples, method}; an end that is not bounded is null. Effects and drops are shares: −0.17 for 17 % slower.

Format history
    1  2026-11  as above
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from flashprof.contracts.errors import FormatError
from flashprof.contracts.search import Belief, Cause, Proof, SearchResult
from flashprof.store.from_json import from_json
from flashprof.store.json_numbers import finite

FORMAT = "flashprof-search-result"
VERSION = 1
FILE = "result.json"
REMEDY = "flashprof bisect --resume writes it again"


def search_to_json(result: SearchResult) -> str:
    """One JSON document; an end of an interval that is not bounded becomes null."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        **asdict(result),
        "culprits": _members(result.culprits),
        "gains": _members(result.gains),
        "beliefs": [_belief(belief) for belief in result.beliefs],
        "proofs": [_proof(proof) for proof in result.proofs],
        "paths": dict(result.paths),
    }
    return json.dumps(finite(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def search_from_json(text: str, *, where: str | None = None) -> SearchResult:
    """
    Read what `search_to_json` made.

    Args:
        text: The document.
        where: Its file, for messages.

    Raises:
        FormatError: It is no result of a search, is damaged, or of another version.
    """
    try:
        document = dict(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise FormatError("not a search's result", where=where, next_command=REMEDY) from error
    if document.get("format") != FORMAT or document.get("version") != VERSION:
        raise FormatError(
            f"search result format {document.get('format')} version {document.get('version')} is not known",
            where=where,
            allowed=f"{FORMAT} version {VERSION}",
            next_command=f"read it with the FlashProf that wrote it, or {REMEDY}",
        )
    try:
        return from_json(SearchResult, document, "result")
    except (TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"the search's result is damaged: {error}", where=where, next_command=REMEDY) from error


def _members(causes: tuple[Cause, ...]) -> list[list[str]]:
    return [list(cause.members) for cause in causes]


def _belief(belief: Belief) -> dict[str, Any]:
    return {**asdict(belief), "causes": _members(belief.causes)}


def _proof(proof: Proof) -> dict[str, Any]:
    derived = {"is_shown": proof.is_shown, "is_refuted": proof.is_refuted}
    return {**asdict(proof), "cause": list(proof.cause.members), **derived}
