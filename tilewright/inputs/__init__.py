"""What a caller passed, checked: devices, arrays, matrices of a batch; one clear error each."""
