"""Digests COPY text that is broken at random: `broken_copy_text.py FOLDER TRIES`.

The folder has the extension, which may be built with sanitizers. Prints how many buffers were
digested, and how many refused; what is refused names a row and a column.
"""

from __future__ import annotations

import ctypes
import random
import re
import sys

FORMS, SCALES = b"ibdfrDtTZusp", bytes([0, 0, 76, 0, 0, 0, 6, 6, 7, 0, 0, 0])
ROW = (
    b"-12\tt\t-0.50\t1.5e-300\t0.1\t0044-03-15 BC\t23:59:59.999999\t294276-12-31 23:59:59.999999"
    b"\t2020-01-01 00:00:00.5+00\t0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0\ta\\tb\\\\\\n\xc3\xa4\tx  \n"
)
PIECES = [
    b"\t",
    b"\n",
    b"\\",
    b"\\N",
    b"\0",
    b"-",
    b".",
    b" BC",
    b"infinity",
    b"9" * 30,
    b"e",
    b" ",
]


def broken(chance: random.Random) -> bytes:
    """Some rows, some of whose bytes were lost, changed or added."""
    data = bytearray(ROW * chance.randint(1, 20))
    for _ in range(chance.randint(0, 4)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                del data[at : at + chance.randint(1, 40)]
            case 1:
                data[at:at] = chance.choice(PIECES)
            case 2:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case _:
                del data[at:]
    return bytes(data)


def main(folder: str, tries: int) -> None:
    """Digest so many buffers."""
    sys.path.insert(0, folder)
    from copy_text import digest

    chance, digested, refused = random.Random(20), 0, 0
    for _ in range(tries):
        data = broken(chance)
        # without the byte that Python has behind its own
        buffer = (ctypes.c_char * len(data)).from_buffer_copy(data) if data else b""
        try:
            read, rows, _ = digest(buffer, FORMS, SCALES)
            assert 0 <= read <= len(data) and rows <= data.count(b"\n"), (read, rows, data)
            digested += 1
        except ValueError as error:
            assert re.match(r"row \d+, column \d+: ", str(error)), error
            refused += 1
    print(digested, refused)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
