"""What is done to pictures, a file a stage; the contract stands in contract.py."""
