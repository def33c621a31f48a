"""undertow reads a neural network's training run from beneath.

    import undertow as ut

    recorder = ut.Recorder("runs/mine")                     # in anyone's own training loop
    recorder.save(model, epoch, test_accuracy=accuracy)

    run = ut.train("mlp", data="mnist", noise=0.4, epochs=60, out="runs/m40")
    run = ut.open_run("runs/m40")                           # or a folder of .pt/.pth/.ckpt/.safetensors
    run.model(20); run.metrics; run.data()

    table = ut.probe_grid(run)                              # what every layer knew at every checkpoint
    probe = ut.MASC(variance=0.99).fit(features, labels)    # scikit-learn estimators
    result = ut.audit(run); print(result.verdict)           # all lenses, and what follows from them
    ut.d_lr(features, outputs)                              # 0 rich, towards 1 lazy
    with ut.Tap(model, ["layer2", "blocks.*.mlp"]) as tap:  # features of any module
        outputs, features = tap(x)

Importing undertow imports no torch: names are loaded when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
