"""The recipe of the model that ranks replies, as a person gets it: every line may be changed."""

from __future__ import annotations

RECIPE = """\
# Messages to short replies, for `seqloom reply`: `seqloom reply train DATA --run THIS_FOLDER` uses this file.
# `seqloom config THIS_FILE` shows all the keys that are left at their defaults.

data:
  train: {train}          # a prepared message, a tab, the canonical reply
  dev: {dev}
  test: {test}            # of other conversations
  limits: {max_source: 200, max_target: 40}

source: {tokenizer: symbols}      # rare words are <rare> already
target: {tokenizer: symbols}

model:                            # what short replies depend on is words more than their order
  source_embedding: {width: 128}
  target_embedding: {width: 128}
  encoder: {kind: bag, width: 256, dropout: 0.3}  # try: {kind: rnn, cell: lstm, width: 128, dropout: 0.3}
  decoder: {kind: luong, cell: lstm, width: 256, dropout: 0.3}

task: {source_noise: {drop: 0.2}, label_smoothing: 0.05}  # a message is understood without some of its words
batching: {tokens: 1024}

training:
  epochs: 6
  optimiser: {kind: adam, lr: 3e-3}
  schedule: {kind: cosine, warmup: 100}
  clip: 1.0
  log_every: 20
  validate_every: 250
  metric: nll                     # the best validation is what is kept

evaluation: {metrics: [exact], validate_examples: 0, show: 0}
"""
