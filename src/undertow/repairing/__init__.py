"""Giving a model back what its layers still know: new heads, grafts, and the evidence for them.

from undertow.repairing import repair, load_repaired

fixed = repair(model, train=(x, y), test=(x2, y2))       # VeLPIC's vectors in the last linear layer
fixed = repair(run, layer="best", probe="masc")                # a shorter model with a head on that layer
print(fixed); fixed.accepted, fixed.before, fixed.after
fixed.save("fixed.safetensors"); load_repaired("fixed.safetensors")
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
