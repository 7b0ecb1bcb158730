"""The frozen teacher of a stage and the store of its vectors."""

from msdc.distill.teacher.cached import CachedTeacher, default_cache, mined

__all__ = ["CachedTeacher", "default_cache", "mined"]
