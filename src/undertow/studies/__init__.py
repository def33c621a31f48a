"""The papers' figures and tables as recipes: what to train, what to measure, what the paper found.

    from undertow.studies import find_study

    study = find_study("richness/target-scale")
    study.differences("laptop")                  # what a scale changes
    tasks = study.at("laptop").tasks(seeds=3)    # pure tasks; undertow.engine runs them
    StudyOutcome.of(study, "laptop", rows).verdicts()

On the command line: undertow study list | show | run. Names are imported when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
