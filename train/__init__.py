"""Recipes of the networks that the package brings along: `python -m train.superres --size m`.

Each says what it learns from, is seeded, keeps a checkpoint and goes on from it, and writes the
network with its card. They need torch, onnx and pillow.
"""
