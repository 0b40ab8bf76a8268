"""Public sets that recipes read: what they are, and how their upstream files become what a recipe reads.

seqloom brings none of them along and fetches none: a person gets the files where they live, under their licence.
"""
