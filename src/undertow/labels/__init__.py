"""Wrong labels: which they are, what they should be, how many, and what follows for a run's checkpoints.

from undertow.labels import label_errors, choose_checkpoint

found = label_errors(run); found.table, found.rate       # which labels are wrong
choose_checkpoint(run).epoch                                   # which checkpoint to use, without clean labels
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
