"""One call from a run to a verdict: all lenses over checkpoints and layers, one table, a few sentences.

from undertow.auditing import audit

result = audit(run)                                   # or with train=..., test=... for anyone's checkpoints
result.table, result.headline, result.measures
print(result.verdict)
result.save("runs/m40"); result.to_html("report.html")
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
