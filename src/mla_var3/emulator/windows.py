"""Where memory spaces lie among generic addresses, and where shared memory begins."""

#: Generic addresses: what is not in one of these windows is global memory.
SHARED_WINDOW = 0x0200 << 48
PARAM_WINDOW = 0x0300 << 48
LOCAL_WINDOW = 0x0400 << 48
#: Where shared memory that a kernel may use begins: a kilobyte below is the system's (sm_90 on).
SHARED_START = 0x400
