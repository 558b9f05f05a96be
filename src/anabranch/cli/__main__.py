"""`python -m anabranch.cli`."""

import sys

from anabranch.cli.command import main

sys.exit(main())
