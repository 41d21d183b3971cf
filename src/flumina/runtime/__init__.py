"""The runtime: workers as pure state machines. A message goes in, messages and outputs come out; no I/O at all."""
