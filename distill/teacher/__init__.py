"""The frozen teacher of a stage and the store of its vectors."""

from msdc.distill.teacher.cached import CachedTeacher, TeacherOutput, default_cache
from msdc.distill.teacher.mining import mined

__all__ = ["CachedTeacher", "TeacherOutput", "default_cache", "mined"]
