"""Targets that feed damaged and hostile files to every reader: one format a file.

python -m fuzz.npz --inputs 100000     one of them
python -m fuzz --inputs 2000           each of them
"""
