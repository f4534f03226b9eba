"""What a user would pick instead, called as fairly as we know how."""
