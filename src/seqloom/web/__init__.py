"""What every server of ours shares: how it listens and ends, what it lets through its door, how it refuses and logs."""
