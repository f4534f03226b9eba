"""Motion between a film's pictures and those made from it, on OpenCL devices; kernels/film/."""
