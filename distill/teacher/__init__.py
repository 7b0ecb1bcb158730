"""The frozen teachers of a stage, the stores of their vectors, and the negatives that they find."""

from msdc.distill.teacher.cached import CachedTeacher, default_cache, fill
from msdc.distill.teacher.external import TableTeacher, open_external, require_vectors
from msdc.distill.teacher.joined import JoinedTeacher, Teacher
from msdc.distill.teacher.mining import mined

__all__ = ["CachedTeacher", "JoinedTeacher", "TableTeacher", "Teacher", "default_cache", "fill",
           "mined", "open_external", "require_vectors"]  # fmt: skip
