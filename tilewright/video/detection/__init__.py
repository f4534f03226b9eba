"""Things found in pictures: boxes, what networks say of them, tracks, and files of them."""
