"""Motion between a film's pictures and those made from it, on NVIDIA GPUs: `video/motion.py`'s."""
