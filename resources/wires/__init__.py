"""Formats in which rows travel, and which of them each server is believed to speak."""
