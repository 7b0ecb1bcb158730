"""Artifacts: ExecuTorch, ONNX, tokenizer, bundle per target, parity gates."""
