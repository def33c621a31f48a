"""Features of any layer: taps, streams, mergeable moments, and stored features for wide layers.

    from undertow.features import Moments, Tap, stream_features

    with Tap(model, "auto") as tap:
        logits, features = tap(x)                            # layer name -> (N, D)
    Moments.of(features["layer2"], labels, classes=10)         # mergeable, in any order
    choose_route([1000] * 10, dim=16384, budget="2GB").reason  # which side of the matrix, and why

Names are imported when they are first used; sizes and routes need no torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
