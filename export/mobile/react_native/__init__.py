"""The files for React Native and Flutter packages that run any sentence encoder with ExecuTorch."""
