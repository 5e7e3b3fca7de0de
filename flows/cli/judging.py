"""Judge a dataset's cases again, for `courant generate FAMILY --judge-again`."""

from __future__ import annotations

import simgen
from flows.terminal import counted, errors, say
from simgen.audit.judging import Judgement, apply_judgement, judge_version
from simgen.solving.acceptance import rejection


def judge_stored(url: str) -> None:
    """Hold stored figures against the present gates; publish and print what that changes."""
    dataset = simgen.open_dataset(url)
    with errors.status("judging"):
        judgement = judge_version(dataset)
    family = dataset.schema.family
    say(f"judged    {counted(judgement.num_judged, 'case')} of {family} {dataset.version}")
    for case, gates in judgement.rejected.items():
        say(f"rejected  {case}: {rejection(list(gates))}")
    done = apply_judgement(dataset, judgement)
    for case in done.restored:
        say(f"accepted  {case}, with the fields of its archive")
    for case, reason in done.withdrawn.items():
        say(f"passes    {case}: {reason}; the same courant generate as before solves it again")
    _tell_unjudged(judgement)
    changed = "" if done.version != dataset.version else ", unchanged"
    say(f"dataset   {url}  {done.version}{changed}")


def _tell_unjudged(judgement: Judgement) -> None:
    if judgement.unjudged:
        case, missing = next(iter(judgement.unjudged.items()))
        say(
            f"unjudged  {counted(len(judgement.unjudged), 'case')}, whose records lack something;"
            f" the first: {case} has {missing}"
        )
