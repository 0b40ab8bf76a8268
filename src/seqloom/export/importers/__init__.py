"""Models of other tools, read from files that hold numbers and text alone, and said in seqloom's words."""
