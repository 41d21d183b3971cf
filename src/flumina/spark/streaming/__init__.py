"""Run programs as queries of Structured Streaming, one plan run per micro-batch."""
