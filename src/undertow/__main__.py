"""`python -m undertow` is `undertow`."""

import sys

from undertow.cli import main

sys.exit(main())
