"""Smart Reply: from a message to three suggestions of different intents, or to none and the reason."""
