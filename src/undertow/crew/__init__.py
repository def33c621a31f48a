"""Who does the work: this process, or workers on a Ray cluster that each hold what a job needs.

from undertow.crew.engine import Engine
from undertow.crew.workers import crew_of

with crew_of(holder, Engine("ray", address="auto")) as crew:
    for place, answer in crew.answers(jobs): ...
"""
