"""One call from a run to a verdict: all lenses over checkpoints and layers, one table, a few sentences.

    from undertow.audit import audit

    result = audit(run)                                   # or with train=..., test=... for anyone's checkpoints
    result.table, result.headline, result.measures
    print(result.verdict)
    result.save("runs/m40"); result.to_html("report.html")

The room can be called: `undertow.audit(...)` is `undertow.audit.audit(...)`. Names are imported when they are first
used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from undertow._lazy import lazy, make_callable

if TYPE_CHECKING:
    from undertow.audit.evidence import Context, Evidence
    from undertow.audit.measures import MEASURES, Condition, parse_condition
    from undertow.audit.outcome import Audit, Verdict, make_audit
    from undertow.audit.rules import Finding, judge
    from undertow.audit.settings import AuditConfig
    from undertow.audit.work import audit

__all__ = [
    "MEASURES",
    "Audit",
    "AuditConfig",
    "Condition",
    "Context",
    "Evidence",
    "Finding",
    "Verdict",
    "audit",
    "judge",
    "make_audit",
    "parse_condition",
]

_HOMES = {
    "evidence": ("Context", "Evidence"),
    "measures": ("MEASURES", "Condition", "parse_condition"),
    "outcome": ("Audit", "Verdict", "make_audit"),
    "rules": ("Finding", "judge"),
    "settings": ("AuditConfig",),
    "work": ("audit",),
}

make_callable(__name__)
__getattr__, __dir__ = lazy(
    __name__, {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}
)
