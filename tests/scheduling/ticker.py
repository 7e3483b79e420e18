"""A command for jobs: `python -m tests.scheduling.ticker FILE SECONDS` logs its begin and end."""

import os
import sys
import time

if __name__ == "__main__":
    begun = time.time()
    for word, rest_s in (("begin", float(sys.argv[2])), ("end", 0.0)):
        with open(sys.argv[1], "a") as file:  # noqa: PTH123 - pathlib is slow to import
            file.write(f"{word} {os.getpid()} {begun} {os.environ.get('SCHEDULED_ATTEMPT', '')}\n")
        time.sleep(rest_s)
    print("well")
