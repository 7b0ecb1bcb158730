"""The frozen teachers of a stage, the stores of their vectors, and the negatives that they find."""

from msdc.distill.teacher.cached import CachedTeacher, default_cache, fill
from msdc.distill.teacher.joined import JoinedTeacher, Teacher
from msdc.distill.teacher.mining import mined

__all__ = ["CachedTeacher", "JoinedTeacher", "Teacher", "default_cache", "fill", "mined"]
