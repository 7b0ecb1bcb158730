"""The student: its class, its folders, and conversion from and to stock encoders."""

from msdc.compress.student.model import Student, StudentConfig

__all__ = ["Student", "StudentConfig"]
