"""`python -m protodask`: the command line."""

from protodask.cli import main

if __name__ == "__main__":  # worker processes import this module under another name
    main()
