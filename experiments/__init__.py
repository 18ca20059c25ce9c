"""The programs: one page each. They read options, call the library, and print."""
