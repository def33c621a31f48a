"""The fifteen corruptions of CIFAR-10-C at five severities, computed for any images of 28 to 64 pixels.

    for name in CORRUPTIONS:
        for severity in SEVERITIES:
            worse = corrupt(data.test.x, name, severity)     # uint8 (N, C, H, W), grey or colour
    contact_sheet(data.test.x[:3], Path("sheet.png"))        # all of them to look at
    published(published_folder(), "fog", 3)                  # the published images, where a user has them

The extra corruption gaussian_blur is computed too; no mean over corruptions counts it.

Departures from the published set: frost is a texture of our own, not photographs; zooms go into the
exact centre instead of a whole number of pixels; elastic samples the image once, not twice; pixels are
rounded, not cut off.
"""

from __future__ import annotations

from undertow.data.corruptions.catalogue import CORRUPTIONS, EXTRA, SEVERITIES, check_corruption, corrupt
from undertow.data.corruptions.published import corrupt_samples, published, published_folder
from undertow.data.corruptions.sheet import contact_sheet

__all__ = [
    "CORRUPTIONS",
    "EXTRA",
    "SEVERITIES",
    "check_corruption",
    "contact_sheet",
    "corrupt",
    "corrupt_samples",
    "published",
    "published_folder",
]
