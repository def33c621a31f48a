"""How shallow and deep layers fit across time: composites of checkpoints, and what is measured on them.

    from undertow.temporal import compose, composite_matrix, valid_cuts

    valid_cuts(model, x)                                      # where a network can be parted
    compose(model, shallow=state_10, deep=state_50, cut="layer2")
    found = composite_matrix(run)                             # all pairs of checkpoints at all cuts
    found.predictions, found.losses, found.table
    at = found.cut("layer2")
    matrix = consistency_matrix(found.predictions[at], found.deep)
    memory_window(matrix.values, matrix.checkpoints).trend()  # does the memory window widen?
    swap_profile(early_late, late_early, early, late, cuts).entered        # where memorisation sits

What only the studies of paper 000 measure (one-step SGD noise, forgetting, the bound) is in undertow.studies.temporal.
Names are imported when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
