"""`python -m seqloom` is `seqloom`."""

from seqloom.cli.main import main

if __name__ == "__main__":
    main()
