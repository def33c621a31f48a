"""The papers' figures and tables as recipes: what to train, what to measure, what the paper found.

    from undertow.studies import find_study

    study = find_study("richness/target-scale")
    study.differences("laptop")                  # what a scale changes
    tasks = study.at("laptop").tasks(seeds=3)    # pure tasks; undertow.engine runs them
    Outcome.of(study, "laptop", rows).verdicts()

On the command line: undertow study list | show | run. Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow._lazy import lazy

if TYPE_CHECKING:
    from undertow.studies.catalogue import STUDIES, find_studies, find_study
    from undertow.studies.findings import Findings
    from undertow.studies.outcome import Outcome
    from undertow.studies.recipe import SCALES, Case, Change, Claim, Published, Study, Verdict
    from undertow.studies.task import Task

__all__ = [
    "SCALES",
    "STUDIES",
    "Case",
    "Change",
    "Claim",
    "Findings",
    "Outcome",
    "Published",
    "Study",
    "Task",
    "Verdict",
    "find_studies",
    "find_study",
]

_HOMES = {
    "catalogue": ("STUDIES", "find_studies", "find_study"),
    "findings": ("Findings",),
    "outcome": ("Outcome",),
    "recipe": ("SCALES", "Case", "Change", "Claim", "Published", "Study", "Verdict"),
    "task": ("Task",),
}

__getattr__, __dir__ = lazy(
    __name__, {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}
)
