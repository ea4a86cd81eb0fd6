"""A clock that tests set, which programs read instead of the host's, as a preloaded library says so."""

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

# By system calls, so that it need not find the functions that it replaces.
LIBRARY = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const long *ahead;

__attribute__((constructor)) static void begin(void) {
    ahead = mmap(0, sizeof *ahead, PROT_READ, MAP_SHARED, open(getenv("SECONDS_AHEAD"), O_RDONLY | O_CLOEXEC), 0);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int status = syscall(SYS_clock_gettime, clock, now);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *ahead;
    return status;
}

int gettimeofday(struct timeval *now, void *zone) {
    int status = syscall(SYS_gettimeofday, now, zone);
    if (status == 0) now->tv_sec += *ahead;
    return status;
}

time_t time(time_t *now) {
    struct timespec read;
    clock_gettime(CLOCK_REALTIME, &read);
    if (now) *now = read.tv_sec;
    return read.tv_sec;
}
"""


class SettableClock:
    """The clock of the processes that run in its environment; the clock that nobody sets is left alone."""

    def __init__(self, folder: Path) -> None:
        """Build the library. Skip the test where there is no C compiler."""
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("there is no C compiler for a library that sets the clock")
        library, self._ahead = folder / "clock.so", folder / "ahead"
        self.set_ahead(0)
        command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
        subprocess.run(command, input=LIBRARY, text=True, check=True, capture_output=True)
        self.environment = {"LD_PRELOAD": str(library), "SECONDS_AHEAD": str(self._ahead)}

    def set_ahead(self, seconds: int) -> None:
        """Set the clock so many seconds before the host's, or behind it."""
        with self._ahead.open("r+b" if self._ahead.exists() else "wb") as file:
            file.write(struct.pack("l", seconds))
