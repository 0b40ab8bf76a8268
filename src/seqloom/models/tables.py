"""The encoders and decoders that a recipe can name. A new one is a class and a line here."""

from __future__ import annotations

from seqloom.config import Table
from seqloom.models.bag import Bag
from seqloom.models.contracts import Decoder, Encoder
from seqloom.models.convolution import ConvolutionalEncoder
from seqloom.models.labels import Label, LabelSet, Number, Tags
from seqloom.models.monotonic import Monotonic
from seqloom.models.pictures import CnnEncoder, PatchesEncoder
from seqloom.models.pyramid import PyramidEncoder
from seqloom.models.rnn import Bahdanau, Luong, RecurrentDecoder
from seqloom.models.rnn_encoder import RecurrentEncoder
from seqloom.models.spans import Span
from seqloom.models.spelling import SpelledEncoder
from seqloom.models.subsampled import SubsampledEncoder
from seqloom.models.transformer import TransformerDecoder, TransformerEncoder

ENCODERS: Table[Encoder] = Table(
    "encoders",
    {
        "rnn": RecurrentEncoder,
        "transformer": TransformerEncoder,
        "convolution": ConvolutionalEncoder,
        "bag": Bag,
        "spelled": SpelledEncoder,
        "cnn": CnnEncoder,
        "patches": PatchesEncoder,
        "pyramid": PyramidEncoder,
        "subsampled": SubsampledEncoder,
    },
)
DECODERS: Table[Decoder] = Table(
    "decoders",
    {
        "rnn": RecurrentDecoder,
        "bahdanau": Bahdanau,
        "luong": Luong,
        "transformer": TransformerDecoder,
        "monotonic": Monotonic,
        "label": Label,
        "labels": LabelSet,
        "number": Number,
        "tags": Tags,
        "span": Span,
    },
)
