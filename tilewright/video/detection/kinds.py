"""What the network that is brought along knows: kinds that were drawn, not photographed."""

KINDS = ("ball", "bird", "drone", "sign")
