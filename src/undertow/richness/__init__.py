"""How rich the training was: did the network transform its features, or fit a readout on what it had?

    from undertow.richness import d_lr, d_lr_interval, head_richness, measure_richness, neural_collapse

    d_lr(features, outputs)                      # 0 = rich, towards 1 = lazy; tensors or arrays
    d_lr_interval(features, outputs).low         # where it would lie for many samples
    neural_collapse(features, labels).nc1        # how far the classes have collapsed
    feature_spectrum(train, test, targets, outputs)      # which features express the target, and which are used
    head_richness(features, outputs, labels=labels)      # all measures from arrays at hand
    measure_richness(model, x, y)                # all of it from one pass over the samples
    DLR(), NeuralCollapse(classes=10)            # batch by batch, merged across processes

Names are imported when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
