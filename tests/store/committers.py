"""A process that writes and commits cases, for tests of several writers at once: URL, case
numbers...
"""

import sys

from simgen.store.write import DatasetWriter
from tests.store.conftest import SCHEMA, add

if __name__ == "__main__":
    url, *numbers = sys.argv[1:]
    for number in numbers:  # a writer of its own for each case: creation races as well
        opened = DatasetWriter.open(url, SCHEMA)
        add(opened, int(number))
    print(opened.publish())
