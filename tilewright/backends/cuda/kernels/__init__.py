"""Kernels by family.

triton/  one program for NVIDIA and AMD          simt/    CUDA C++ for any NVIDIA GPU: fp32, probes
hopper/  CUDA C++ on TMA and wgmma, sm_90 alone  bits/    one-bit products in CUDA C++
film/    CUDA C++ for any NVIDIA GPU: motion between a film's pictures
"""
