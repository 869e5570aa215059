"""Jobs: processes that start on this machine together and end when one fails, and their ranks."""
