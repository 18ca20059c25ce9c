"""What the heads of a sentence encoder bear: paraphrases to find, noise, gates, removal."""
