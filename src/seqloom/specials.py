"""The special tokens, which begin every vocabulary. They are ids, not strings: a text that spells "<eos>" is text.

A file of its own, because text becomes ids without torch.
"""

from __future__ import annotations

PAD, UNK, BOS, EOS, MASK, SEP = range(6)
UNSPEAKABLE = (PAD, BOS, MASK, SEP)  # never generated, whatever a model says
SPECIALS = ("<pad>", "<unk>", "<bos>", "<eos>", "<mask>", "<sep>")  # how they are shown, never how they are read
