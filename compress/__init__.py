"""The student and its size: bottleneck, recurrence, vocabulary, quantization, size planning."""
