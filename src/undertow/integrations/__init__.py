"""undertow inside other people's training loops, metrics and trackers; each module needs its own library.

    from undertow.integrations.watch import Watch                      # a plain loop
    from undertow.integrations.lightning import UndertowCallback       # undertow[lightning]
    from undertow.integrations.transformers import UndertowCallback    # undertow[huggingface]
    from undertow.integrations.metrics import DLR, NeuralCollapse, LatentAccuracy    # undertow[torchmetrics]
    from undertow.integrations.trackers import log_audit               # undertow[trackers]

Nothing is imported here, so that each module asks for no library but its own.
"""
