"""Running the tasks of studies: in this process, in a pool, or on a cluster.

from undertow.engine import Store, run_local

run_local(tasks, Store(out / "tasks"), workspace=out, workers=2)
"""

from __future__ import annotations

from undertow.engine.local import Progress, run_local
from undertow.engine.store import Store

__all__ = ["Progress", "Store", "run_local"]
