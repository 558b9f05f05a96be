import subprocess
import sys

import pytest

from anabranch.runtime.memory import keep_freed

FREED = """
import resource
import numpy as np
from anabranch.runtime.memory import keep_freed

{prepared}
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        held = [np.ones(16 << 20, dtype=np.uint8) for _ in range(8)]
        del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(faults())
"""


def faults(prepared):
    script = FREED.format(prepared=prepared)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(not keep_freed(), reason="the allocator is not glibc's")
def test_what_is_freed_stays_with_the_process():
    before, after = faults(""), faults("keep_freed()")

    # 8 arrays of 4,096 pages, five times.
    assert before > 10_000
    assert after < 1_000


def test_it_is_asked_for_once():
    assert keep_freed() is keep_freed()
