"""Speech: audio files to frames, their corpora, and the front end of a network that reads them."""
