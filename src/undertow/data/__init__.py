"""Where samples come from: named and own data, label noise, corruptions and encodings.

    from undertow.data import DATA, LabelNoise, load_data

    DATA                                            # the sets known by name; needs no torch
    data = load_data("mnist", train_size=5000)      # DataSet with .train and .test
    noisy = LabelNoise("uniform", 0.4).apply(data.train, classes=10)

Names are imported when they are first used, so that this package alone costs no torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
