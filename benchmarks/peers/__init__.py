"""The contenders of `benchmarks/peers.py`, one file each, and what they share."""
