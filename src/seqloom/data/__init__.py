"""From files to batches: readers, tokenizers, vocabularies, corpora. Strings end here; models see integers."""
