"""What a caller passed, checked: devices, arrays, matrices of a batch; one clear error each.

Also where the arrays lie, what overlaps, which products are added into one result, `RaggedBatch`,
and new arrays.
"""
