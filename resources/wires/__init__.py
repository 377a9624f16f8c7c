"""The formats in which rows travel, and how each server's are found to be exact."""
