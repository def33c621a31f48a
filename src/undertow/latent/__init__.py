"""What a layer knows: probes of its features, as scikit-learn estimators.

    from undertow.latent import MASC, VeLPIC, LogisticProbe, NearestMean, KNN, LDA, QDA

    probe = MASC(variance=0.99).fit(features, labels)     # (N, D) numpy or torch, CPU or GPU
    probe.score(test_features, test_labels)
    MASC().fit_moments(moments)                           # gathered in one pass, merged in any order

MASC and VeLPIC are the paper's probes; the logistic probe and the rest are its baselines.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
