"""Encoders and bundles as objects of other libraries; each module needs its library only when it is imported."""
