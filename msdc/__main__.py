"""`python -m msdc` is the command line."""

from msdc.cli import main

main()
