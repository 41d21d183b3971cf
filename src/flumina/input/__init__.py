"""Input: declared streams, their sources and files, decoding, validation, watermarks and dead letters."""
