"""Speech: sound to frames, frames and their texts to a corpus."""
