"""Planning: a problem and a device's facts in, a plan out. Pure: no device is touched here."""
