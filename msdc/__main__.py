"""`python -m msdc` is the command line."""

from msdc.cli import main

if __name__ == "__main__":
    main()
