"""The type map: what each column becomes, and how its values are read, converted and refused."""
