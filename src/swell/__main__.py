"""`python -m swell` is `swell`."""

import os
import sys

# `python -m` looks into the current directory first: a file there must not take the place of an installed package.
if not sys.flags.safe_path and os.path.exists(".") and sys.path[:1] == [os.getcwd()]:
    del sys.path[0]

from swell.cli import main

main()
