"""What of a reply is the reply: a mail without its quotes, greeting, closing and signature; of a chat all of it."""

from __future__ import annotations

from seqloom.reply.messages import Message
from seqloom.reply.prepare import Preprocess

STEPS = ("closing", "greeting", "signature", "quotes")  # the last one that left something has the reply


def own_words(message: Message, preprocess: Preprocess) -> str:
    """The text of a reply as its author wrote it; "Thanks, Ann" alone stays what it is."""
    body = message.body.strip()
    if not message.subject and "\n" not in body:
        return body
    texts = {step.name: step.text.strip() for step in preprocess(message).steps}
    return next((texts[name] for name in STEPS if texts.get(name)), "")
