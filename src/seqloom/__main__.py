"""`python -m seqloom` is `seqloom`."""

from seqloom.cli.main import program

if __name__ == "__main__":
    program()
