"""Doors: one line makes a library that somebody already uses multiply here, one file a library.

Nothing is imported until its door is: `import tilewright.doors.transformers` needs Transformers,
and `import tilewright` needs none of them. A door changes a library only by what that library
offers for it, or by names that `uninstall()` gives back.
"""
