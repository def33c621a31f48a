"""Pictures as addresses that need no file.

png_address(image)        # data:image/png;base64,..., of (H, W), (H, W, 1) or (H, W, 3) bytes
"""

from __future__ import annotations

import base64
import io

import numpy as np
from numpy.typing import NDArray


def png_address(image: NDArray[np.uint8]) -> str:
    """A PNG of the array as a page or another program can show it."""
    from PIL import Image

    written = io.BytesIO()
    flat = image[..., 0] if image.ndim == 3 and image.shape[-1] == 1 else image
    Image.fromarray(flat).save(written, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(written.getvalue()).decode()
