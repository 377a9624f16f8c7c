"""Key ranges of the tables of a system: which columns have them, where they are cut, their SQL."""
