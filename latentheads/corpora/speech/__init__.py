"""Speech corpora: audio files to filterbank frames, frames and transcripts to a corpus."""
