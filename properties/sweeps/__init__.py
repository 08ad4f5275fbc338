"""How far a device's elementary functions are off: measured on all arguments of a format, not believed of a manual."""
