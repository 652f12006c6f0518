"""`python -m swell` is `swell`."""

from swell.cli import main

main()
