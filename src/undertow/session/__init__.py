"""What every verb needs of a run, each computed once: samples, models, one pass over them, and what was measured.

from undertow.session import Session

session = Session(run)
ut.audit(session); ut.label_errors(session); ut.repair(session)      # the passes are shared
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
