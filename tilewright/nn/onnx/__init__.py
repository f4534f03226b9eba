"""Networks from ONNX files: read with distrust, converted, folded, checked against the file."""
