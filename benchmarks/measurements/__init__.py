"""What is measured of speed, memory and schedules: a module for each measurement."""
