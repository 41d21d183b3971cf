"""Process micro-batches on any backend: watermarks, buffered rows, state and sinks."""
