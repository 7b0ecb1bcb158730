"""The student: its class, its folders, and the ways from and to stock encoders."""

from msdc.compress.student.model import Student, StudentConfig

__all__ = ["Student", "StudentConfig"]
