"""Models for other programs to run."""
