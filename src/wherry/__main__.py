"""`python -m wherry` is `wherry`."""

from wherry.cli import main

if __name__ == "__main__":
    main()
