"""What commands say of stored inputs, in files that a review reads as a diff."""
