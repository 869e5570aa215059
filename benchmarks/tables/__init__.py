"""The tables and pictures of the pages, written from stored results."""
