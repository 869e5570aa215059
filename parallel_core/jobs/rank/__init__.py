"""What a rank does: report, keep its own deadline, and measure together with the other ranks."""
