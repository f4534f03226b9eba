"""Triton kernels, one program for NVIDIA and AMD: importing one of these modules imports Triton.

record     the table of problems that all of them read, and how a sum becomes C
grouped    tiles of many problems of unlike sizes; one product is a batch of one
sum_parts  the second phase of products cut along k
ragged     products whose sizes the device alone knows; ragged_plans, ragged_blocks, ragged_either
           write their tables, ragged_offsets is what these share
"""
